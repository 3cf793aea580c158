package clustertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// startTimeout bounds one start of the compiled program; a few seconds are usual.
	startTimeout = 3 * time.Minute
	// stopTimeout bounds a clean stop; about a second is usual. The API server itself waits up to a minute for requests.
	stopTimeout = 75 * time.Second
)

// Options of a cluster. The zero value is a fresh cluster in a temporary directory on free ports.
type Options struct {
	// DataDir holds etcd's data, certificates and the log; a directory used before continues with the same objects, ports
	// and credentials. Empty: a temporary directory that Close removes.
	DataDir string
	// Port of the API server and EtcdPort of etcd, on 127.0.0.1. Zero: the data directory's earlier one, else a free one.
	Port, EtcdPort int
	// Beside is a running cluster whose etcd and credentials this one shares: it is another API server of the same cluster. The
	// other one must be closed later. Nil: it has an etcd of its own.
	Beside *Cluster
	// EventTTL is how long Event objects live. Zero: one hour.
	EventTTL time.Duration
	// LogLevel is klog's verbosity in Logs.
	LogLevel int
	// ExtraArgs are further kube-apiserver flags, such as "--watch-cache=false".
	ExtraArgs []string
	// Binary is the program's path. Empty: Build is asked for it.
	Binary string
}

// Cluster is a running or stopped API server with its etcd. Methods may be called from several goroutines; those that
// start, stop or signal the process wait for one another.
type Cluster struct {
	binary  string
	opts    Options
	tempDir bool
	config  *rest.Config
	etcdURL string

	mu        sync.Mutex
	proc      *process // nil while down
	readyLine string
}

// Start is Launch for one test: it fails t where that fails, and closes the cluster when t and its subtests are done.
func Start(t testing.TB, opts Options) *Cluster {
	t.Helper()
	c, err := Launch(t.Context(), opts)
	if err != nil {
		t.Fatalf("start cluster: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close cluster: %v", err)
		}
	})
	return c
}

// Launch starts a cluster and returns when it is ready: /readyz is ok and the system namespaces exist. ctx bounds the
// start (and the compilation, where one is needed), not the cluster's life: the caller ends it with Close. On Linux the
// cluster also dies with the calling process. A start that fails leaves no process and, in its error, the log's end.
func Launch(ctx context.Context, opts Options) (_ *Cluster, err error) {
	c := &Cluster{opts: opts, binary: opts.Binary}
	if c.binary == "" {
		if c.binary, err = Build(ctx); err != nil {
			return nil, err
		}
	}
	if opts.DataDir == "" {
		c.tempDir = true
		c.opts.DataDir, err = os.MkdirTemp("", "kubebridge-cluster-")
	} else {
		c.opts.DataDir, err = filepath.Abs(opts.DataDir)
		err = errors.Join(err, os.MkdirAll(c.opts.DataDir, 0o700))
	}
	if err == nil && opts.Beside != nil {
		err = os.CopyFS(filepath.Join(c.opts.DataDir, "pki"), os.DirFS(filepath.Join(opts.Beside.DataDir(), "pki")))
	}
	if err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if err = c.Restart(ctx); err != nil {
		return nil, err
	}
	c.etcdURL = field(c.ReadyLine(), "etcd")
	c.config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read admin kubeconfig: %w", err)
	}
	c.config.QPS = -1
	return c, nil
}

// start runs the program and waits for its ready line. The caller holds mu, and no process runs.
func (c *Cluster) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()
	args := []string{
		"--data-dir=" + c.opts.DataDir,
		fmt.Sprintf("--port=%d", c.opts.Port),
		fmt.Sprintf("--etcd-port=%d", c.opts.EtcdPort),
		fmt.Sprintf("--log-level=%d", c.opts.LogLevel),
	}
	if c.opts.Beside != nil {
		args = append(args, "--etcd-url="+c.opts.Beside.EtcdURL())
	}
	if c.opts.EventTTL != 0 {
		args = append(args, "--event-ttl="+c.opts.EventTTL.String())
	}
	for _, a := range c.opts.ExtraArgs {
		args = append(args, "--apiserver-arg="+a)
	}
	proc, err := startProcess(c.binary, args, c.Logs())
	if err != nil {
		return err
	}
	select {
	case line := <-proc.ready:
		c.proc, c.readyLine = proc, line
		return nil
	case <-proc.done:
		err = proc.err
	case <-ctx.Done():
		err = context.Cause(ctx)
		proc.signal(syscall.SIGKILL)
		<-proc.done
	}
	return fmt.Errorf("start cluster program: %w; the end of its log:\n%s", err, tail(c.Logs()))
}

// ReadyLine is what the program said when it was last ready: "ready server=URL etcd=URL kubeconfig=PATH".
func (c *Cluster) ReadyLine() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.readyLine
}

// DataDir is the directory of everything the cluster keeps.
func (c *Cluster) DataDir() string { return c.opts.DataDir }

// Logs is the path of the program's log: kube-apiserver, warnings of etcd, and stderr. It grows over restarts.
func (c *Cluster) Logs() string { return filepath.Join(c.opts.DataDir, "cluster.log") }

// Kubeconfig is the path of the admin's kubeconfig (group system:masters).
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.opts.DataDir, "kubeconfig") }

// RESTConfig is a new copy of the admin's client configuration, without client-side rate limit. It stays right over
// restarts.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }

// Server is the API server's URL.
func (c *Cluster) Server() string { return c.config.Host }

// EtcdURL is the URL of etcd's client port: gRPC and the JSON gateway, without TLS.
func (c *Cluster) EtcdURL() string { return c.etcdURL }

// Stop ends the process as an operator would (SIGTERM) and returns when it is gone; the data stay, and Restart continues
// with them. A paused process is resumed first. One that is down already is no error; one that does not end in 75 seconds,
// or ends with an error, is.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stop()
}

func (c *Cluster) stop() error {
	if c.proc == nil {
		return nil
	}
	proc := c.proc
	c.proc = nil
	proc.signal(syscall.SIGTERM)
	proc.signal(syscall.SIGCONT)
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	select {
	case <-proc.done:
	case <-timeout.C:
		proc.signal(syscall.SIGKILL)
		<-proc.done
		return fmt.Errorf("cluster did not stop in %s and was killed, see %s", stopTimeout, c.Logs())
	}
	if proc.err != nil {
		return fmt.Errorf("stop cluster: %w; the end of its log:\n%s", proc.err, tail(c.Logs()))
	}
	return nil
}

// Kill ends API server and etcd at once (SIGKILL), as a crash would, and returns when they are gone. Restart continues
// with the data.
func (c *Cluster) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proc != nil {
		c.proc.signal(syscall.SIGKILL)
		<-c.proc.done
		c.proc = nil
	}
}

// Restart stops the cluster if it runs and starts it on the same data, ports and credentials. ctx bounds the start.
func (c *Cluster) Restart(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.stop(); err != nil {
		return err
	}
	return c.start(ctx)
}

// Upgrade is Restart with another program, such as one that BuildRelease has compiled with a later release.
func (c *Cluster) Upgrade(ctx context.Context, binary string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.stop(); err != nil {
		return err
	}
	c.binary = binary
	return c.start(ctx)
}

// Pause freezes the process (SIGSTOP): connections stay open and nobody answers. The kernel freezes it at once; what it had
// already written may still arrive. It is an error if the cluster is down.
func (c *Cluster) Pause() error { return c.running(syscall.SIGSTOP) }

// Resume ends a Pause. It is an error if the cluster is down.
func (c *Cluster) Resume() error { return c.running(syscall.SIGCONT) }

func (c *Cluster) running(sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proc == nil {
		return fmt.Errorf("send %s: the cluster is down", sig)
	}
	return c.proc.signal(sig)
}

// Close stops the cluster and, where Launch made a temporary data directory, removes it. Nothing may be called after it.
func (c *Cluster) Close() error {
	err := c.Stop()
	if c.tempDir {
		err = errors.Join(err, os.RemoveAll(c.opts.DataDir))
	}
	return err
}

// field is the value of key in a ready line, "" if it has none.
func field(line, key string) string {
	for _, f := range strings.Fields(line) {
		if v, ok := strings.CutPrefix(f, key+"="); ok {
			return v
		}
	}
	return ""
}

// tail is the last few kilobytes of a file, or why it cannot be read.
func tail(path string) string {
	const limit = 4 << 10
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-limit):])
}
