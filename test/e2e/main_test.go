// Package e2e tests the built bridge as a process against real servers: a kube-apiserver with its etcd, NATS, and kfake for
// Kafka (TestOutage: Apache Kafka). What the API server acknowledged is compared with what an independent reader finds on the bus.
//
// The environment: KUBEBRIDGE_E2E_RACE=1 builds the bridge with the race detector.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/paralleltest"
)

// raceEnv, if set, builds the bridge with the race detector. A race then fails the test that finds it.
const raceEnv = "KUBEBRIDGE_E2E_RACE"

// Shared by all tests. Tests that disturb the API server start one of their own.
var (
	binary      string
	demoBinary  string
	cluster     *clustertest.Cluster
	raceEnabled = os.Getenv(raceEnv) != ""
)

func TestMain(m *testing.M) {
	paralleltest.Raise(6)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, m)
	stop()
	if err == nil && code == 0 {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(ctx context.Context, m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "kubebridge-e2e-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := build(ctx, dir); err != nil {
		return 1, err
	}
	if cluster, err = clustertest.Launch(ctx, clustertest.Options{}); err != nil {
		return 1, err
	}
	code = m.Run()
	return code, cluster.Close()
}

func build(ctx context.Context, dir string) error {
	binary, demoBinary = filepath.Join(dir, "bridge"), filepath.Join(dir, "demo-changes")
	var flags []string
	if raceEnabled {
		flags = append(flags, "-race")
	}
	if err := bridge.Build(ctx, bridge.Root(), "./cmd/bridge", binary, flags...); err != nil {
		return err
	}
	_, file, _, _ := runtime.Caller(0)
	return bridge.Build(ctx, filepath.Dir(file), "./cmd/demo-changes", demoBinary)
}
