package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// startEtcd starts an etcd with one member and its data in dir, and returns when it serves. The caller must close it. etcd serves gRPC and
// the JSON gateway (/v3/kv/...) on one loopback port, without TLS. It appends warnings to logFile.
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
	// Without fsync, writes survive kill -9 in the page cache. Only a crash of the machine loses them, and no test does that.
	cfg.UnsafeNoFsync = true
	// The only member elects itself, so the default timeout of one second, which allows for slow members, is not needed.
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
