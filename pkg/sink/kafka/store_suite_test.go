package kafka

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/checkpoint/checkpointtest"
)

// openPlace opens a stand-alone store at "address topic".
func openPlace(place string) (checkpointtest.Store, error) {
	address, topic, _ := strings.Cut(place, " ")
	s, err := NewStore(StoreOptions{Options: Options{Config: Config{Brokers: []string{address}}, Identity: identity}, Topic: topic, StandAlone: true})
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
