// Bench measures the bridge as a whole process. The bridge reads from an API server
// that replays captured objects, and writes to a bus that counts what was
// acknowledged. In the same run, bench measures other programs for comparison: see
// package peer, and ../docs/performance.md.
//
//	bench [flags]                                    runs benchmarks
//	bench feed|kafka|nats|consume|raw|dynamic|read ...    runs one process of a benchmark; bench starts these itself
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/kubebridge/kubebridge/bench/internal/run"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	args := os.Args[1:]
	role := ""
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		role, args = args[0], args[1:]
	}
	err := run.Main(ctx, role, args)
	if err != nil && !(role != "" && errors.Is(ctx.Err(), context.Canceled)) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}
