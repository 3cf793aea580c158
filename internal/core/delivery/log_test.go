package delivery_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/internal/core/delivery"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
)

// streams is a NATS server with JetStream, and a client of it.
func streams(t *testing.T) (url string, js jetstream.JetStream) {
	t.Helper()
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true, DisableJetStreamBanner: true,
	})
	must(t, err)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server is not ready")
	}
	nc, err := client.Connect(srv.ClientURL())
	must(t, err)
	t.Cleanup(nc.Close)
	js, err = jetstream.New(nc)
	must(t, err)
	return srv.ClientURL(), js
}

const subject = "k8s.test.core.pods.shop.web"

// A stream that has records of a checkpoint's sink proves that the checkpoint is lost. What the stream has must end: it does not have all that the
// checkpoint had, for example the birth, and consumers ignore a collection that goes on with a higher one.
func TestLostCheckpoint(t *testing.T) {
	for name, kept := range map[string]bool{"directory": false, "bucket": true} {
		t.Run(name, func(t *testing.T) {
			url, js := streams(t)
			local := memory(t)
			start := func() (*delivery.Delivery, checkpoint.Store) {
				t.Helper()
				s, err := nats.New(nats.Options{Config: nats.Config{URL: url}, Identity: identity})
				must(t, err)
				if !kept {
					return delivery.New(delivery.Options{Sink: s, Store: local}), local
				}
				store := nats.NewStore(nats.StoreOptions{Sink: s.(*nats.Sink)})
				t.Cleanup(func() { store.Close() })
				return delivery.New(delivery.Options{Sink: s, Store: store}), store
			}
			stop := func(d *delivery.Delivery, store checkpoint.Store) {
				t.Helper()
				d.Finish(t.Context())
				must(t, d.Close())
				if kept {
					must(t, store.(*nats.Store).Close())
				}
			}
			d, store := start()
			must(t, d.Open(t.Context(), false))
			stop(d, store)
			d, store = start() // the stream has terms, but no record
			must(t, d.Open(t.Context(), false))
			must(t, d.Deliver(t.Context(), batch(1, subject)))
			stop(d, store)

			local = memory(t)
			if kept {
				must(t, js.DeleteKeyValue(t.Context(), nats.BucketName(identity)))
			}
			for range 2 { // a kill before the reset is committed does not hide the loss
				d, store = start()
				err := d.Open(t.Context(), false)
				if asked := get(t, store, string(checkpoint.ResetKey())); asked != string(checkpoint.ResetRequested()) && !errors.Is(err, sink.ErrReset) {
					t.Fatalf("Open: %v, and the store has %q as request for a reset", err, asked)
				}
				if got := get(t, store, "o/1/0"); got != "published" {
					t.Errorf("what the stream has is not in the store, so it cannot end: %q", got)
				}
				must(t, d.Close())
				if kept {
					must(t, store.(*nats.Store).Close())
				}
			}
			d, store = start()
			if err := d.Open(t.Context(), true); err != nil && !errors.Is(err, sink.ErrReset) {
				t.Fatal(err)
			}
			must(t, d.Reset(t.Context(), []event.KV{{Key: []byte("o/1/0")}, {Key: []byte("o/1/1")}, {Key: checkpoint.ResetKey()}}))
			stop(d, store)
			d, store = start()
			must(t, d.Open(t.Context(), false))
			if got := get(t, store, "o/1/0"); got != "" {
				t.Errorf("after the reset the store has %q", got)
			}
			stop(d, store)
		})
	}
}

// A stream that lost only what the checkpoint had seen, and the records that begin terms, has lost nothing.
func TestStreamThatForgetsInAQuietTime(t *testing.T) {
	url, js := streams(t)
	store := memory(t)
	during := func(do func(d *delivery.Delivery)) {
		t.Helper()
		s, err := nats.New(nats.Options{Config: nats.Config{URL: url}, Identity: identity})
		must(t, err)
		d := delivery.New(delivery.Options{Sink: s, Store: store})
		if err := d.Open(t.Context(), false); err != nil {
			t.Fatalf("Open: %v", err)
		}
		do(d)
		must(t, d.Close())
	}
	during(func(d *delivery.Delivery) { must(t, d.Deliver(t.Context(), batch(1, subject))) })
	stream, err := js.Stream(t.Context(), "K8S_test")
	must(t, err)
	config := stream.CachedInfo().Config
	config.Duplicates = 200 * time.Millisecond // it may not be longer than MaxAge
	forgetAfter := func(age time.Duration) {
		t.Helper()
		config.MaxAge = age
		_, err = js.UpdateStream(t.Context(), config)
		must(t, err)
	}
	for range 3 {
		forgetAfter(30 * time.Second) // a limit that explains what was forgotten; without one, it counts as purged
		during(func(*delivery.Delivery) {})
		forgetAfter(200 * time.Millisecond)
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			info, err := stream.Info(t.Context())
			must(t, err)
			if info.State.Msgs == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the stream keeps its messages")
			}
		}
	}
}
