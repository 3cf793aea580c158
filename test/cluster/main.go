// Program cluster is a Kubernetes control plane for tests: the real kube-apiserver and a real etcd in one process, on
// loopback ports, with everything they need (certificates, keys, kubeconfig) in one directory. There is no kubelet, no
// scheduler and no controller manager: the API server validates and stores objects, applies RBAC and serves watches, but nothing acts on the
// objects.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// startTimeout bounds the start of etcd, and then that of the API server. Both together usually take ten seconds, but machines that run tests
// may be slow while they compile.
const startTimeout = 3 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	// A second signal terminates the process at once, in case the stop hangs.
	context.AfterFunc(ctx, stop)

	opts, err := parseOptions(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err == nil {
		err = run(ctx, opts, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// run starts etcd and the API server, writes the ready line to out when both serve, and blocks until ctx is cancelled or one of them ends. It
// stops the API server before etcd. It returns nil if ctx was cancelled.
func run(ctx context.Context, opts options, out io.Writer) error {
	dir, err := openDataDir(opts.dataDir)
	if err != nil {
		return err
	}
	defer dir.close()
	ports, listener, err := dir.claimPorts(opts)
	if err != nil {
		return err
	}
	defer listener.Close()
	pki, err := dir.ensurePKI()
	if err != nil {
		return err
	}
	server := fmt.Sprintf("https://127.0.0.1:%d", ports.Server)
	if err := pki.writeKubeconfig(server); err != nil {
		return err
	}
	log, err := os.OpenFile(dir.path("cluster.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer log.Close()

	etcdURL, etcdFailed := opts.etcdURL, make(<-chan error)
	if etcdURL == "" {
		etcd, err := startEtcd(ctx, dir.path("etcd"), log.Name(), ports)
		if err != nil {
			return err
		}
		defer etcd.Close()
		etcdURL, etcdFailed = ports.etcdURL(), etcd.Err()
	}

	serving, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	served := make(chan struct{})
	go func() {
		defer close(served)
		err := serveAPI(serving, opts, apiServerArgs(opts, ports, pki), listener, log)
		if err == nil {
			err = errors.New("kube-apiserver stopped on its own")
		}
		// This has no effect if ctx was cancelled, because the first cause stays.
		cancel(err)
	}()
	go func() {
		select {
		case err := <-etcdFailed:
			cancel(fmt.Errorf("etcd: %w", err))
		case <-serving.Done():
		}
	}()

	if err := waitReady(serving, pki.kubeconfig); err != nil {
		cancel(err)
	} else {
		fmt.Fprintf(out, "ready server=%s etcd=%s kubeconfig=%s\n", server, etcdURL, pki.kubeconfig)
	}
	<-serving.Done()
	<-served
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(serving)
}
