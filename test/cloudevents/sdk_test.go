// Package cloudevents_test reads what the sinks write with the CloudEvents SDK for Go,
// through its own bindings for Kafka and NATS.
package cloudevents_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/protocol/kafka_sarama/v2"
	"github.com/cloudevents/sdk-go/protocol/nats_jetstream/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	sdk "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
)

var (
	identity = event.Identity{Bridge: "bridge", Cluster: "prod", ClusterUID: "uid", Sink: "s"}
	formats  = []event.Format{event.Structured, event.Binary, event.Plain}
)

const subject = "k8s.prod.rbac_authorization_k8s_io.clusterroles._.x"

// events are a change of an object whose name needs escaping in headers, its deletion without a body, a dead
// letter, and what is published about the collection.
func events() []*event.Event {
	const run, incarnation = "1773480413000", 1773480410000
	roles := &event.Collection{Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Entry: "audited"}
	plan := &event.Plan{Number: 7, Digest: event.PlanDigest(map[string]uint64{roles.ID(): 7}), Edit: 7, Birth: 3}
	at := time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC)
	object := func(e event.Event) *event.Event {
		e.Origin, e.Time, e.Collection, e.Run, e.Incarnation, e.Epoch = event.Watch, at, roles, run, incarnation, 2
		e.APIVersion, e.Kind, e.Name, e.UID = "rbac.authorization.k8s.io/v1", "ClusterRole", `système:"x" 100%`, "u-1"
		return &e
	}
	collection := func(e event.Event) *event.Event {
		e.Origin, e.Time, e.Collection, e.Run, e.Incarnation, e.Plan = event.Reconcile, at, roles, run, incarnation, plan
		return &e
	}
	body := []byte(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"x","uid":"u-1"}}`)
	return []*event.Event{
		collection(event.Event{Type: event.Gap, ResourceVersion: "7", Report: &event.Report{Reason: "expired", From: "7"}}),
		object(event.Event{Type: event.Modified, ResourceVersion: "8", Object: body}),
		object(event.Event{Type: event.Modified, ResourceVersion: "9", Object: body, DeadLetter: &event.DeadLetter{Reason: event.Oversize, Route: "k8s", Size: 9, Limit: 8}}),
		object(event.Event{Type: event.Deleted, ResourceVersion: "8", DeletionVersion: "10", Reason: "left"}),
		collection(event.Event{Type: event.Synced, Nth: 1, ResourceVersion: "10", Report: &event.Report{Reason: "expired", To: "10", Since: &at, Counts: &event.Counts{Deleted: 1}}}),
		collection(event.Event{Type: event.Closed, Report: &event.Report{Reason: "removed"}}),
	}
}

func batch(f event.Format, route string) *event.Batch {
	encoder := event.Encoder{Cluster: identity.Cluster, ClusterUID: identity.ClusterUID, Format: f}
	b := &event.Batch{Seq: 1}
	for _, e := range events() {
		r := event.Record{ID: e.ID(), Route: route, Event: e, Format: f, Attributes: encoder.Attributes(e)}
		if r.Broadcast = e.Type.OfCollection(); !r.Broadcast {
			r.Key = "k"
		}
		r.Value = f.Append(nil, r.Attributes, e)
		b.Records = append(b.Records, r)
	}
	return b
}

func write(t *testing.T, s sink.Sink, err error, b *event.Batch) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// check compares what the SDK makes of a message with the record that was written.
// decode undoes what a binding leaves to its user.
func check(t *testing.T, m binding.Message, want *event.Record, decode func(string) string) {
	t.Helper()
	encoding := binding.EncodingBinary
	if want.Format == event.Structured {
		encoding = binding.EncodingStructured
	}
	if got := m.ReadEncoding(); got != encoding {
		t.Fatalf("%s: the SDK takes it as %s, want %s", want.ID, got, encoding)
	}
	e, err := binding.ToEvent(t.Context(), m)
	if err == nil {
		err = e.Validate()
	}
	if err != nil {
		t.Fatalf("%s: %v", want.ID, err)
	}
	attributes := map[string]string{}
	for _, a := range want.Attributes {
		attributes[a.Name] = a.Value
	}
	if diff := cmp.Diff(attributes, seen(e, decode)); diff != "" {
		t.Errorf("%s: attributes (-written +SDK):\n%s", want.ID, diff)
	}
	data := want.Value
	if want.Format == event.Structured {
		data = event.Binary.Append(nil, nil, want.Event)
	}
	if got := e.Data(); string(got) != string(data) {
		t.Errorf("%s: data is %s, want %s", want.ID, got, data)
	}
}

func seen(e *sdk.Event, decode func(string) string) map[string]string {
	got := map[string]string{
		"specversion": e.SpecVersion(), "id": decode(e.ID()), "source": decode(e.Source()), "type": e.Type(),
		"time": e.Time().Format(event.TimeFormat), "datacontenttype": e.DataContentType(),
	}
	for name, value := range map[string]string{"subject": decode(e.Subject()), "dataschema": e.DataSchema()} {
		if value != "" {
			got[name] = value
		}
	}
	for name, value := range e.Extensions() {
		got[name] = decode(fmt.Sprint(value))
	}
	return got
}

func TestKafka(t *testing.T) {
	for _, f := range formats {
		t.Run(f.String(), func(t *testing.T) {
			topic := "k8s"
			broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(broker.Close)
			b := batch(f, topic)
			s, err := kafka.New(kafka.Options{Config: kafka.Config{Brokers: broker.ListenAddrs(), Delivery: "at-least-once"}, Identity: identity})
			write(t, s, err, b)
			client, err := kgo.NewClient(kgo.SeedBrokers(broker.ListenAddrs()...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			var got []*kgo.Record
			for len(got) < len(b.Records) {
				fetches := client.PollFetches(ctx)
				if err := fetches.Err0(); err != nil {
					t.Fatal(err)
				}
				got = append(got, fetches.Records()...)
			}
			for i, r := range got {
				headers, contentType := map[string][]byte{}, ""
				for _, h := range r.Headers {
					headers[h.Key] = h.Value
					if h.Key == "content-type" {
						contentType = string(h.Value)
					}
				}
				if _, there := headers["ce_datacontenttype"]; there && f != event.Structured {
					t.Error("ce_datacontenttype stands beside content-type, which is the same")
				}
				check(t, kafka_sarama.NewMessage(r.Value, contentType, headers), &b.Records[i], func(s string) string { return s })
			}
		})
	}
}

// The SDK takes every message with ce-specversion as binary, and does not undo the
// escapes of its headers.
func TestNATS(t *testing.T) {
	for _, f := range formats {
		t.Run(f.String(), func(t *testing.T) {
			srv, err := server.NewServer(&server.Options{
				Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			srv.Start()
			t.Cleanup(func() {
				srv.Shutdown()
				srv.WaitForShutdown()
			})
			if !srv.ReadyForConnections(30 * time.Second) {
				t.Fatal("the server is not ready")
			}
			b := batch(f, subject)
			s, err := nats.New(nats.Options{Config: nats.Config{URL: srv.ClientURL()}, Identity: identity})
			write(t, s, err, b)
			client, err := natsgo.Connect(srv.ClientURL())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			js, err := client.JetStream()
			if err != nil {
				t.Fatal(err)
			}
			sub, err := js.SubscribeSync(subject, natsgo.OrderedConsumer())
			if err != nil {
				t.Fatal(err)
			}
			for i := range b.Records {
				m, err := sub.NextMsg(30 * time.Second)
				if err != nil {
					t.Fatal(err)
				}
				if f == event.Structured {
					if got := m.Header.Get("Content-Type"); got != f.ContentType() {
						t.Errorf("content type is %q", got)
					}
					m.Header = nil
				}
				unescaped := func(s string) string {
					if f == event.Structured {
						return s
					}
					plain, err := url.PathUnescape(s)
					if err != nil {
						t.Error(err)
					}
					return plain
				}
				for name, values := range m.Header {
					if strings.ContainsFunc(values[0], func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '"' }) && strings.HasPrefix(name, "ce-") {
						t.Errorf("header %s is not escaped: %q", name, values[0])
					}
				}
				check(t, nats_jetstream.NewMessage(m), &b.Records[i], unescaped)
			}
		})
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
