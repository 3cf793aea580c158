// Command demo-changes keeps a cluster busy in small, readable steps, so that there is something to watch: it creates, updates
// and deletes a few pods, config maps, a deployment and custom objects in the namespace "demo", until it is stopped. It
// takes over what an earlier run has left behind.
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

	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "path of a kubeconfig file")
	every := flag.Duration("every", 3*time.Second, "time between two changes")
	verbose := flag.Bool("v", false, "print a line for each change to standard error")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out := io.Discard
	if *verbose {
		out = os.Stderr
	}
	if err := run(ctx, *kubeconfig, *every, out); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "demo-changes:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig string, every time.Duration, out io.Writer) error {
	client, err := kube.Connect(kubeconfig, namespace)
	if err != nil {
		return err
	}
	d := demo{client: client, out: out}
	if err := d.prepare(ctx); err != nil {
		return err
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for round := int(time.Now().Unix() % 10_000); ; round++ { // not as in the last run: the same again would be no change
		for _, s := range steps(round) {
			if err := d.do(ctx, s); err != nil {
				return err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil
			}
		}
	}
}
