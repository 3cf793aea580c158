// Program build-cluster prints the path of the compiled cluster program, compiling it first if need be. It is for shell
// scripts and for warming the cache: everything but the path goes to stderr.
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
	path, err := clustertest.Build(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "build-cluster:", err)
		os.Exit(1)
	}
	fmt.Println(path)
}
