package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// startEtcd starts a single-member etcd on dir and returns it once it serves; the caller closes it. It speaks plain HTTP on
// loopback, gRPC and the JSON gateway (/v3/kv/...) on one port. Warnings are
// appended to logFile.
func startEtcd(ctx context.Context, dir, logFile string, p ports) (*embed.Etcd, error) {
	client, err := url.Parse(p.etcdURL())
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	peer, err := url.Parse(p.peerURL())
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	// What is written survives kill -9 in the page cache; only a crash of the machine loses it, and no test is about that.
	cfg.UnsafeNoFsync = true
	// The lone member elects itself; there is nobody whose slowness the usual second would have to cover.
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.LogLevel, cfg.LogOutputs = "warn", []string{logFile}

	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err = <-etcd.Err():
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-time.After(startTimeout):
		err = fmt.Errorf("not ready after %s", startTimeout)
	}
	etcd.Close()
	return nil, fmt.Errorf("start etcd: %w", err)
}
