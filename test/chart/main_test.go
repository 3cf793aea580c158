package chart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
)

// What all tests share.
var (
	bridge  string // the program
	cluster *clustertest.Cluster
)

func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, m)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(ctx context.Context, m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "kubebridge-chart-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	bridge = filepath.Join(dir, "bridge")
	build := exec.CommandContext(ctx, "go", "build", "-o", bridge, "./cmd/bridge")
	build.Dir = root()
	if text, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build the bridge: %w\n%s", err, text)
	}
	if cluster, err = clustertest.Launch(ctx, clustertest.Options{}); err != nil {
		return 1, err
	}
	code = m.Run()
	return code, cluster.Close()
}
