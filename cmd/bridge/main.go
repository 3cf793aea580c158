// Command bridge streams the changes of Kubernetes objects to Kafka or NATS,
// without gaps.
//
// This package parses flags, connects parts and prints: a file per verb, such as run.go and serve.go. A reader who follows a change from
// the API server to the bus meets the packages in this order:
//
//	cmd/bridge                run.go: the configuration becomes bridge.Options; kind.go: opens a sink and its checkpoint
//	internal/bus/NAME         what differs from bus to bus: configuration, checkpoint, reader, permissions
//	internal/config           what is in the file
//	internal/bridge           one loop for each sink, reloads, metrics
//	internal/core/plan        which collections are wanted
//	pkg/source                lists and watches; proves what is gone
//	internal/core/feed        signals become inputs
//	internal/core/loop        one goroutine takes inputs in turn
//	internal/core/reconcile   decides: start here to understand what is published
//	internal/core/encode      makes records, with pkg/shape and pkg/event
//	internal/core/delivery    makes them durable, with internal/core/durable, pkg/sink and pkg/checkpoint
//
// Attribution, the disk buffer and the past (state, history, serve) are add-ons: see docs/architecture.md.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"k8s.io/klog/v2"
)

func main() {
	hangUps := make(chan os.Signal, 1)
	signal.Notify(hangUps, syscall.SIGHUP) // before anything else: unhandled, it ends the program
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(execute(ctx, os.Args[1:], streams{
		program: os.Args[0], out: os.Stdout, err: os.Stderr, in: os.Stdin, hangUps: hangUps, setLibraryLog: func(l *zap.Logger) { klog.SetLogger(zapr.NewLogger(l)) },
	}))
}
