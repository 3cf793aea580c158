package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// opened is a bus that remembers what it was opened with.
type opened struct {
	*bus
	marks []string
}

func (b *opened) Open(_ context.Context, mark []byte) error {
	b.marks = append(b.marks, string(mark))
	return nil
}

// openedLog is one that can be read back.
type openedLog struct {
	*opened
	logBus
}

func (b openedLog) Open(ctx context.Context, mark []byte) error { return b.opened.Open(ctx, mark) }
func (b openedLog) Close() error                                { return nil }
func (b openedLog) Write(ctx context.Context, batch *event.Batch) ([]byte, error) {
	return b.opened.Write(ctx, batch)
}

// remote is a store that has nothing before it is loaded.
type remote struct {
	checkpoint.Store
	loaded bool
}

func (r *remote) Load(context.Context) error { r.loaded = true; return nil }

func (r *remote) Get(key []byte) ([]byte, error) {
	if !r.loaded {
		return nil, nil
	}
	return r.Store.Get(key)
}

// A sink is held to what it said when it last ran, wherever that is kept, until an
// operator gives it up: else a topic that grew meanwhile would go unnoticed.
func TestSinkIsOpenedWithItsMark(t *testing.T) {
	for _, c := range []struct {
		remote, reset, log bool
		want               []string
	}{
		{want: []string{"mark"}},
		{remote: true, want: []string{"", "mark"}},
		{reset: true, want: []string{""}},
		{remote: true, reset: true, want: []string{""}},
		{remote: true, log: true, want: []string{""}}, // Tail has it
		{reset: true, log: true, want: []string{"mark"}},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			store := openMem(t)
			changes := []event.KV{{Key: checkpoint.MarkKey(), Value: []byte("mark")}}
			if c.reset {
				changes = append(changes, event.KV{Key: checkpoint.ResetKey(), Value: bytes.Clone(checkpoint.ResetRequested())})
			}
			if err := store.Commit(t.Context(), changes); err != nil {
				t.Fatal(err)
			}
			b := &opened{bus: &bus{}}
			l := newTestLane(b, store)
			if c.log {
				l.sink = openedLog{b, logBus{b.bus}}
			}
			if c.remote {
				l.store = &remote{Store: store}
			}
			if err := l.openSink(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(b.marks, c.want) {
				t.Errorf("opened with %q, want %q", b.marks, c.want)
			}
		})
	}
}
