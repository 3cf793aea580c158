// Package kafka_test tests the Kafka sink with real Kafka: the suite that every sink must pass, and all faults of brokers that
// can be provoked.
package kafka_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
	"github.com/kubebridge/kubebridge/test/paralleltest"
)

// shared is the Kafka of all tests without special requirements. Each test has topics of its own.
var shared *kafkatest.Cluster

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	paralleltest.Raise(6) // a broker takes some 400 MiB
	var err error
	if shared, err = kafkatest.Launch(context.Background(), kafkatest.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if code != 0 {
		fmt.Fprintln(os.Stderr, shared.Logs())
	}
	if err := shared.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
