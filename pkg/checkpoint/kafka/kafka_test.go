package kafka

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/kubebridge/kubebridge/pkg/checkpoint/checkpointtest"
	"github.com/kubebridge/kubebridge/pkg/event"
)

var lane = event.Identity{Bridge: "kubebridge", Cluster: "prod", ClusterUID: "5b8f1c34-7a2e-4c8a-9f39-0e1f8f2f4a11", Sink: "audit"}

// openPlace opens a stand-alone store at "address topic".
func openPlace(place string) (checkpointtest.Store, error) {
	address, topic, _ := strings.Cut(place, " ")
	s, err := New(Options{Client: []kgo.Opt{kgo.SeedBrokers(address)}, Topic: topic, Identity: lane, StandAlone: true})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.Load(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func TestMain(m *testing.M) {
	checkpointtest.Main(m, openPlace, brokerGoroutines()...)
}

// brokerGoroutines are the broker's own, which come and go with connections.
func brokerGoroutines() []goleak.Option {
	var o []goleak.Option
	for _, f := range []string{"(*clientConn).read", "(*clientConn).read.func3", "(*clientConn).write", "(*clientConn).write.func1", "(*Cluster).run", "(*broker).listen"} {
		o = append(o, goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake."+f))
	}
	return o
}

func startBus(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestSuite(t *testing.T) {
	b := startBus(t)
	n := 0
	checkpointtest.Run(t, checkpointtest.Config{
		Open: openPlace,
		Place: func(*testing.T) string {
			n++
			return fmt.Sprintf("%s checkpoint-%d", b.ListenAddrs()[0], n)
		},
	})
}
