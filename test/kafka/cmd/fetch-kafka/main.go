// Program fetch-kafka prints the directory of Kafka's jars. It fetches them first if they are missing. It is for shell scripts and for
// filling the cache: only the directory goes to stdout.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	dir, err := kafkatest.Jars(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "fetch-kafka:", err)
		os.Exit(1)
	}
	fmt.Println(dir)
}
