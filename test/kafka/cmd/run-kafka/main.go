// Program run-kafka runs one broker, with its data in a temporary directory, until it is stopped. It prints the broker's address when
// the broker is ready. bench/ uses it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "run-kafka:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	c, err := kafkatest.Launch(ctx, kafkatest.Options{})
	if err != nil {
		return err
	}
	if len(c.Brokers()) == 0 {
		return fmt.Errorf("%s names a Kafka that runs: use it, or unset it", kafkatest.Env)
	}
	fmt.Println(c.Broker(1).Addr())
	err = c.Broker(1).Wait(ctx)
	if ctx.Err() != nil {
		err = nil
	}
	return errors.Join(err, c.Close())
}
