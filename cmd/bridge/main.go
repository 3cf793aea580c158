// Command bridge streams the changes of Kubernetes objects to Kafka or NATS,
// without gaps.
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
