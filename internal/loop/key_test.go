package loop_test

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/durable"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// watched calls before for each batch, before the batch is written.
type watched struct {
	sink.Sink
	before func(b *event.Batch)
}

func (w watched) Write(ctx context.Context, b *event.Batch) ([]byte, error) {
	w.before(b)
	return w.Sink.Write(ctx, b)
}

// noRecords has the methods of a transactional sink that this file does not need.
type noRecords struct{}

// Commit implements [sink.Transactional].
func (noRecords) Commit(context.Context, uint64, []event.KV) error { return nil }

// The key of the digests is durable before the bus has the first events, or together with them. The next start, and
// another replica, have the same key, also after a reset. Without the checkpoint there is a new key.
func TestKeyOfDigests(t *testing.T) {
	for mode, of := range map[string]func(w watched, b *bus) sink.Sink{
		"intents": func(w watched, _ *bus) sink.Sink { return w },
		"log": func(w watched, b *bus) sink.Sink {
			return struct {
				watched
				sink.Log
			}{w, logBus{b}}
		},
		"transaction": func(w watched, _ *bus) sink.Sink {
			return struct {
				watched
				sink.Transactional
			}{w, noRecords{}}
		},
	} {
		t.Run(mode, func(t *testing.T) {
			c := newCluster()
			c.write("a", false)
			run := func(store *file.Store) []byte {
				t.Helper()
				b := &bus{}
				w := watched{b, func(batch *event.Batch) {
					stored, err := durable.LoadKey(store)
					committed := mode == "transaction" && slices.ContainsFunc(batch.Commit.Changes, func(kv event.KV) bool { return string(kv.Key) == "n/digests" })
					if err != nil || stored == nil && !committed {
						t.Errorf("a crash would leave digests without their key: %v", err)
					}
				}}
				p := start(t, c, of(w, b), store, "pods")
				defer p.kill()
				c.write("a", false)
				for written := false; !written; time.Sleep(time.Millisecond) {
					b.mu.Lock()
					written = slices.ContainsFunc(b.lines, func(n line) bool { return n.Key != "" })
					b.mu.Unlock()
				}
				p.stop()
				if err := <-p.done; err != nil {
					t.Fatal(err)
				}
				return p.made.key
			}
			store := memory(t)
			key := run(store)
			if len(key) != 32 || bytes.Equal(key, make([]byte, 32)) {
				t.Fatalf("the key is %x", key)
			}
			if again := run(store); !bytes.Equal(key, again) {
				t.Error("the next start has another key")
			}
			if err := store.Commit(t.Context(), []event.KV{{Key: checkpoint.ResetKey(), Value: checkpoint.ResetRequested()}}); err != nil {
				t.Fatal(err)
			}
			if again := run(store); !bytes.Equal(key, again) {
				t.Error("after a reset there is another key")
			}
			if other := run(memory(t)); bytes.Equal(key, other) {
				t.Error("two checkpoints have one key")
			}
		})
	}
}
