package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/internal/operate/access"
	"github.com/kubebridge/kubebridge/internal/operate/leader"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// newClient returns a client for the cluster that the configuration names, without connecting.
func newClient(k config.Kubernetes, log *zap.Logger) (*source.Client, error) {
	client, err := renewal(k, log).NewClient()
	if err != nil {
		return nil, err
	}
	client.ExpectCluster(k.ClusterUID)
	return client, nil
}

// renewal returns how clients reach the cluster that the configuration names. They read a renewed kubeconfig.
func renewal(k config.Kubernetes, log *zap.Logger) source.Renewal {
	return source.Renewal{Load: func() (*rest.Config, error) { return restConfig(k) }, Report: func(err error) {
		if err != nil {
			log.Warn("renewed kubeconfig rejected; keeping the previous credentials", zap.Error(err))
			return
		}
		log.Info("renewed credentials for the API server")
	}}
}

// ownNamespace is where a pod finds the name of its namespace.
const ownNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// newElector returns the candidate for the configured Lease, or nil if leader election is off.
func newElector(c *config.Config, metrics prometheus.Registerer, log *zap.Logger) (*leader.Elector, error) {
	e := c.LeaderElection
	if !e.Enabled {
		return nil, nil
	}
	namespace, err := leaseNamespace(e.Namespace, ownNamespace)
	if err != nil {
		return nil, err
	}
	reach := renewal(c.Kubernetes, log)
	load := reach.Load
	reach.Load = func() (*rest.Config, error) {
		cfg, err := load()
		if err == nil {
			cfg.NextProtos = leader.Protocols()
		}
		return cfg, err
	}
	cfg, err := reach.Config()
	if err != nil {
		return nil, err
	}
	return leader.New(leader.Options{
		Client: cfg, Namespace: namespace, Name: e.LeaseName,
		LeaseDuration: e.LeaseDuration, RenewDeadline: e.RenewDeadline, RetryPeriod: e.RetryPeriod,
		Log: log, Metrics: metrics,
	})
}

// leaseNamespace returns the configured namespace, or the namespace in the pod's file.
func leaseNamespace(configured, pod string) (string, error) {
	if configured != "" {
		return configured, nil
	}
	raw, err := os.ReadFile(pod)
	own := strings.TrimSpace(string(raw))
	if err == nil && own == "" {
		err = fmt.Errorf("%s is empty", pod)
	}
	if err != nil {
		return "", &exitError{exitConfig, fmt.Errorf("leaderElection.namespace: not set, and the bridge cannot read its own namespace as in a pod: set it to the namespace of the Lease: %w", err)}
	}
	return own, nil
}

// checkCluster asks the API server for the cluster and, with resources, for every resource of the
// configuration. err lists all errors, one line each. weak lists warnings about settings that work but look
// unintended. known has no UID if the cluster does not answer.
func checkCluster(ctx context.Context, c *config.Config, resources bool) (known access.BusOptions, weak []string, err error) {
	client, err := newClient(c.Kubernetes, zap.NewNop())
	if err != nil {
		return known, nil, err
	}
	defer client.Close()
	asking, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if known.ClusterUID, err = client.ClusterUID(asking); err != nil {
		if op := new(net.OpError); errors.As(err, &op) && op.Op != "proxyconnect" {
			err = fmt.Errorf("%w: check the server's address in the kubeconfig, and the network", err)
		}
		if apierrors.IsUnauthorized(err) {
			err = fmt.Errorf("%w: the API server does not accept the credentials: renew the kubeconfig or the service account", err)
		}
		return known, nil, fmt.Errorf("ask the API server: %w", err)
	}
	if !resources {
		return known, nil, nil
	}
	asking, cancel = context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if known.Catalog, err = client.Catalog(asking); err != nil {
		return known, nil, err
	}
	var all []error
	shared := false
	for i := range c.Sinks {
		if len(c.Sinks[i].Resources) == 0 {
			if shared { // with a sink that was checked
				continue
			}
			shared = true
		}
		warnings, err := plan.Check(asking, client, c.Entries(&c.Sinks[i]), c.Exclude)
		weak, all = append(weak, warnings...), append(all, err)
	}
	return known, weak, errors.Join(append(all, checkHashKey(asking, c))...)
}

// checkHashKey checks the configured Secret. An empty Secret is no error: the first run puts a key into it.
func checkHashKey(ctx context.Context, c *config.Config) error {
	if c.Secrets.Values != "hash" || c.Secrets.HashKeySecret == "" {
		return nil
	}
	secret, err := hashKeySecret(c, zap.NewNop())
	if err != nil {
		return err
	}
	_, err = secret.Find(ctx)
	return err
}
