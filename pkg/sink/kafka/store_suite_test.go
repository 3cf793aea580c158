package kafka

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/checkpoint/checkpointtest"
)

// openPlace opens a stand-alone store at "address topic". Each topic has a bridge of its own, because a bridge fences its predecessor.
func openPlace(place string) (checkpointtest.Store, error) {
	address, topic, _ := strings.Cut(place, " ")
	id := identity
	id.Bridge = topic
	s, err := NewStore(StoreOptions{Options: Options{Config: Config{Brokers: []string{address}}, Identity: id}, Topic: topic, StandAlone: true})
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

func TestStoreSuite(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	var n atomic.Int32
	checkpointtest.Run(t, checkpointtest.Config{
		Open: openPlace,
		Place: func(*testing.T) string {
			return fmt.Sprintf("%s checkpoint-%d", b.ListenAddrs()[0], n.Add(1))
		},
	})
}
