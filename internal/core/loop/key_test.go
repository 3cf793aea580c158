package loop_test

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/core/durable"
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

// topicBus is a bus whose transactions have the changes of the checkpoint, like a topic of Kafka. The store that goes with it is a copy of topic.
type topicBus struct {
	*bus
	topic *mapStore
}

// Commit implements [sink.Transactional].
func (b topicBus) Commit(ctx context.Context, _ uint64, changes []event.KV) error {
	return b.topic.Commit(ctx, changes)
}

// Write implements [sink.Sink].
func (b topicBus) Write(ctx context.Context, batch *event.Batch) ([]byte, error) {
	b.mu.Lock()
	lost := b.loses > 0
	b.mu.Unlock()
	mark, err := b.bus.Write(ctx, batch)
	switch {
	case lost:
		b.topic.mu.Lock()
		clear(b.topic.values)
		b.topic.mu.Unlock()
	case err == nil:
		err = b.topic.Commit(ctx, batch.Commit.Changes)
	}
	return mark, err
}

// A bus that loses the checkpoint together with the records has all of it again after the reset, also what is written only once: the next
// start would otherwise have another key of digests, and publish every object as modified, or number the histories of a storage from the beginning.
func TestBusLosesTheCheckpoint(t *testing.T) {
	c := newCluster()
	c.write("a", false)
	content := func(s *mapStore) map[string]string {
		all := map[string]string{}
		err := s.Scan(nil, func(key, value []byte) error {
			if k := string(key); k != string(checkpoint.MarkKey()) {
				all[k] = string(value)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	first := map[string][]byte{"s/core": []byte("3"), "r/request": []byte("{}"), "!running": []byte("now")}
	topic, store := &mapStore{values: maps.Clone(first)}, &mapStore{values: first}
	b := topicBus{&bus{}, topic}
	p := start(t, c, b, store, "pods")
	defer p.kill()
	wait(t, c, b.bus, "pods")
	b.mu.Lock()
	b.loses = 1
	b.mu.Unlock()
	c.write("b", false)
	for lost := false; !lost; time.Sleep(time.Millisecond) {
		b.mu.Lock()
		lost = b.loses == 0
		b.mu.Unlock()
	}
	wait(t, c, b.bus, "pods")
	p.stop()
	if err := <-p.done; err != nil {
		t.Fatal(err)
	}
	if got, want := content(topic), content(store); !maps.Equal(got, want) {
		t.Errorf("after the reset the bus has %q\nwant %q", got, want)
	}
	key := p.made.key
	again := start(t, c, topicBus{&bus{}, topic}, topic, "pods")
	defer again.kill()
	again.stop()
	if err := <-again.done; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.made.key, key) {
		t.Error("the next start has another key")
	}
}
