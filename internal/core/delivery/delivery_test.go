package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kubebridge/kubebridge/internal/core/delivery"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	filesink "github.com/kubebridge/kubebridge/pkg/sink/file"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
)

var identity = event.Identity{Bridge: "bridge", Cluster: "test", ClusterUID: "uid-1", Sink: "live"}

// bus is a bus, with a function that makes what a starting program needs to write to it.
type bus struct {
	route string
	// start returns the sink and the store of a starting program. The content of the store survives the program.
	start func(t *testing.T) (sink.Sink, checkpoint.Store)
	lines func(t *testing.T) string // returns the content of the bus; only for the mode Intents
}

// buses has one bus for each mode.
var buses = map[delivery.Mode]func(t *testing.T) bus{
	delivery.Log: func(t *testing.T) bus {
		url, _ := streams(t)
		store := memory(t)
		return bus{subject, func(t *testing.T) (sink.Sink, checkpoint.Store) {
			s, err := nats.New(nats.Options{Config: nats.Config{URL: url}, Identity: identity})
			if err != nil {
				t.Fatal(err)
			}
			return s, store
		}, nil}
	},
	delivery.Transaction: func(t *testing.T) bus {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cluster.Close)
		brokers := cluster.ListenAddrs()
		return bus{"k8s.test", func(t *testing.T) (sink.Sink, checkpoint.Store) {
			config := kafka.Config{Brokers: brokers, Delivery: "exactly-once", Create: kafka.Create{Partitions: 2}}
			store, err := kafka.NewStore(kafka.StoreOptions{Options: kafka.Options{Config: config, Identity: identity}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { store.Close() })
			return kafka.NewTransactional(store), store
		}, nil}
	},
	delivery.Intents: func(t *testing.T) bus {
		path, store := filepath.Join(t.TempDir(), "events"), memory(t)
		return bus{"", func(t *testing.T) (sink.Sink, checkpoint.Store) {
			s, err := filesink.New(filesink.Options{Config: filesink.Config{Path: path}})
			if err != nil {
				t.Fatal(err)
			}
			return s, store
		}, func(t *testing.T) string {
			b, err := os.ReadFile(path)
			must(t, err)
			return string(b)
		}}
	},
}

func memory(t *testing.T) *file.Store {
	t.Helper()
	store, err := file.OpenMem(identity)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// killed is a store whose program is killed at a certain commit.
type killed struct {
	checkpoint.Store
	left int
}

var errKilled = errors.New("killed")

func (k *killed) Commit(ctx context.Context, changes []event.KV) error {
	if k.left--; k.left < 0 {
		return errKilled
	}
	return k.Store.Commit(ctx, changes)
}

// batch returns a batch of two records, with one change each.
func batch(seq uint64, route string) *delivery.Batch {
	b := &delivery.Batch{Seq: seq, Before: []event.KV{
		{Key: fmt.Appendf(nil, "i/%d", seq), Value: []byte("in doubt")}, {Key: fmt.Appendf(nil, "n/%d", seq), Value: []byte("noted")},
	}}
	for i := range 2 {
		kv := event.KV{Key: fmt.Appendf(nil, "o/%d/%d", seq, i), Value: []byte("published")}
		e := &event.Event{
			Type: event.Added, Collection: &event.Collection{Resource: "pods"}, Time: time.Now(), Name: "web", UID: fmt.Sprint(seq, i), ResourceVersion: "7",
			Object: []byte(`{}`),
		}
		attributes := event.Encoder{Cluster: "test"}.Attributes(e)
		b.Records = append(b.Records, event.Record{
			ID: e.ID(), Route: route, Key: "web", Value: event.Structured.Append(nil, attributes, e), Attributes: attributes, State: []event.KV{kv}, Event: e,
		})
		b.Changes = append(b.Changes, kv)
	}
	b.Changes = append(b.Changes, event.KV{Key: fmt.Appendf(nil, "i/%d", seq)})
	return b
}

// get returns a value of the store as text, "" for none.
func get(t *testing.T, store checkpoint.Store, key string) string {
	t.Helper()
	value, err := store.Get([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return string(value)
}

// After a program was killed at any commit, the next one finds the state that its mode promises.
func TestKilled(t *testing.T) {
	for mode, start := range buses {
		for at := range 4 {
			t.Run(fmt.Sprintf("%s at commit %d", mode, at), func(t *testing.T) {
				bus := start(t)
				s, store := bus.start(t)
				d := delivery.New(delivery.Options{Sink: s, Store: store})
				if d.Needs() != mode.Needs() {
					t.Fatalf("the delivery needs %+v", d.Needs())
				}
				must(t, d.Open(t.Context(), false))
				must(t, d.Deliver(t.Context(), batch(1, bus.route)))
				must(t, d.Close())

				s, store = bus.start(t)
				left := at + 1 // Open commits that the program runs
				if mode == delivery.Log {
					left++ // and the mark
				}
				d = delivery.New(delivery.Options{Sink: s, Store: loading{&killed{store, left}, store}})
				must(t, d.Open(t.Context(), false))
				err := d.Deliver(t.Context(), batch(2, bus.route))
				if err == nil {
					err = d.Deliver(t.Context(), batch(3, bus.route))
				}
				if err != nil && !errors.Is(err, errKilled) {
					t.Fatal(err)
				}
				must(t, d.Close())

				s, store = bus.start(t)
				d = delivery.New(delivery.Options{Sink: s, Store: store})
				must(t, d.Open(t.Context(), false))
				on := map[int]bool{1: true, 2: true, 3: at > 0}
				if mode == delivery.Log { // the changes before the records are a commit of their own
					on = map[int]bool{1: true, 2: at > 0, 3: at > 2}
				}
				for seq, written := range on {
					if bus.lines != nil {
						written = strings.Contains(bus.lines(t), fmt.Sprintf(`"uid":"%d `, seq))
					}
					for i := range 2 {
						committed := get(t, store, fmt.Sprintf("o/%d/%d", seq, i)) != ""
						doubt := get(t, store, fmt.Sprintf("i/%d", seq)) != ""
						if written && !committed && !doubt {
							t.Errorf("batch %d is on the bus, and the store does not know", seq)
						}
						if mode == delivery.Transaction && doubt {
							t.Errorf("batch %d is in doubt", seq)
						}
						if mode != delivery.Transaction && written && get(t, store, fmt.Sprintf("n/%d", seq)) == "" {
							t.Errorf("batch %d is on the bus, and the store does not have what had to be there before", seq)
						}
					}
				}
				must(t, d.Close())
			})
		}
	}
}

// Changes without records, and those of a reset, are still in the store after a restart.
func TestCommit(t *testing.T) {
	for mode, start := range buses {
		t.Run(mode.String(), func(t *testing.T) {
			bus := start(t)
			s, store := bus.start(t)
			d := delivery.New(delivery.Options{Sink: s, Store: store})
			must(t, d.Open(t.Context(), false))
			must(t, d.Deliver(t.Context(), batch(1, bus.route)))
			must(t, d.Commit(t.Context(), 0, []event.KV{{Key: []byte("c/pods"), Value: []byte("alone")}}))
			must(t, d.Reset(t.Context(), []event.KV{{Key: []byte("o/1/0")}, {Key: []byte("o/1/1")}}))
			must(t, d.Close())

			s, store = bus.start(t)
			d = delivery.New(delivery.Options{Sink: s, Store: store})
			must(t, d.Open(t.Context(), false))
			if got := get(t, store, "c/pods"); got != "alone" {
				t.Errorf("the commit without records is %q", got)
			}
			if got := get(t, store, "o/1/0"); got != "" {
				t.Errorf("after a reset the bus was read back: %q", got)
			}
			must(t, d.Close())
		})
	}
}

// If a batch ends with an error, the records that the log has of it are committed before the rest.
func TestSettle(t *testing.T) {
	bus := buses[delivery.Log](t)
	s, store := bus.start(t)
	d := delivery.New(delivery.Options{Sink: s, Store: store})
	must(t, d.Open(t.Context(), false))
	b := batch(1, bus.route)
	b.Records[1].Value = make([]byte, 2<<20) // more than the server accepts
	var rejected *sink.RecordError
	if err := d.Deliver(t.Context(), b); !errors.As(err, &rejected) || rejected.Index != 1 {
		t.Fatalf("got %v, want an error about record 1", err)
	}
	must(t, d.Settle(t.Context(), b.Records[:rejected.Index]))
	must(t, d.Deliver(t.Context(), batch(2, bus.route)))
	must(t, d.Close())

	s, store = bus.start(t)
	d = delivery.New(delivery.Options{Sink: s, Store: store})
	must(t, d.Open(t.Context(), false))
	for key, want := range map[string]string{"o/1/0": "published", "o/1/1": "", "o/2/1": "published"} {
		if got := get(t, store, key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	must(t, d.Close())
}

// A topic is written to at least once, then exactly once, then created again with another number of partitions, and then written to at least once again:
// the mark of the first time does not count any more.
func TestMarkOfAnotherMode(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	must(t, err)
	t.Cleanup(cluster.Close)
	run := func(seq uint64, exactly bool) {
		t.Helper()
		o := kafka.Options{Identity: identity, Config: kafka.Config{Brokers: cluster.ListenAddrs(), Delivery: "at-least-once", Create: kafka.Create{Partitions: 2}}}
		if exactly {
			o.Config.Delivery = "exactly-once"
		}
		store, err := kafka.NewStore(kafka.StoreOptions{Options: o, StandAlone: !exactly})
		must(t, err)
		var s sink.Sink = kafka.NewTransactional(store)
		if !exactly {
			s, err = kafka.New(o)
			must(t, err)
		}
		d := delivery.New(delivery.Options{Sink: s, Store: store})
		must(t, d.Open(t.Context(), false))
		must(t, d.Deliver(t.Context(), batch(seq, "k8s.test")))
		if mark := get(t, store, string(checkpoint.MarkKey())); (mark == "") != exactly {
			t.Errorf("batch %d: the mark is %q", seq, mark)
		}
		d.Finish(t.Context())
		must(t, d.Close())
		must(t, store.Close())
	}
	run(1, false)
	run(2, true)
	must(t, cluster.DeleteTopic("k8s.test"))
	must(t, cluster.CreateTopic("k8s.test", 3, nil))
	run(3, false)
}

// After Finish, a store that is committed later than its sink has all changes, also if the server ends with the sink.
func TestFinish(t *testing.T) {
	const key = "b/pods/shop/web" // no message contains this key
	config := nats.Config{Embedded: &nats.Embedded{Dir: t.TempDir(), Listen: "127.0.0.1:0"}}
	start := func() (*delivery.Delivery, *nats.Store) {
		t.Helper()
		s, err := nats.New(nats.Options{Config: config, Identity: identity})
		must(t, err)
		store := nats.NewStore(nats.StoreOptions{Sink: s.(*nats.Sink), Delay: time.Hour})
		d := delivery.New(delivery.Options{Sink: s, Store: store})
		must(t, d.Open(t.Context(), false))
		return d, store
	}
	d, store := start()
	b := batch(1, subject)
	b.Changes = append(b.Changes, event.KV{Key: []byte(key), Value: []byte("a body")})
	must(t, d.Deliver(t.Context(), b))
	d.Finish(t.Context())
	must(t, d.Close())
	must(t, store.Close())

	d, store = start()
	if got := get(t, store, key); got != "a body" {
		t.Errorf("%s is %q", key, got)
	}
	must(t, d.Close())
	must(t, store.Close())
}

// loading forwards the optional methods of a store that are not part of [checkpoint.Store].
type loading struct {
	checkpoint.Store
	inner checkpoint.Store
}

func (l loading) Load(ctx context.Context) error {
	if loader, ok := l.inner.(checkpoint.Loader); ok {
		return loader.Load(ctx)
	}
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
