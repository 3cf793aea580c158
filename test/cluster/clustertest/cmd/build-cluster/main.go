// Program build-cluster prints the path of the compiled cluster program, compiling it first if need be; with the argument
// known it exits with 1 instead. It is for shell scripts and for warming the cache: everything but the path goes to stderr.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	find := clustertest.Build
	if len(os.Args) > 1 && os.Args[1] == "known" {
		find = clustertest.Built
	}
	path, err := find(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "build-cluster:", err)
		os.Exit(1)
	}
	if path == "" {
		stop()
		os.Exit(1)
	}
	fmt.Println(path)
}
