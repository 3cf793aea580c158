package nats

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// The stream keeps the subjects of an earlier configuration, so the last events of these collections reach their consumers. A subject that
// the stream does not have is the problem of one collection, not of all.
func TestSubjectsOfAnEarlierConfiguration(t *testing.T) {
	t.Parallel()
	const before, after = "k8s.{cluster}.{group}.{resource}.{namespace}.{name}", "events.{cluster}.{group}.{resource}.{namespace}.{name}"
	const newSubject = "events.test.core.pods.default.web"
	both := func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "events.test.>") }
	for _, delivery := range []string{exactlyOnce, atLeastOnce} {
		t.Run(delivery, func(t *testing.T) {
			b := startBus(t, nil)
			open := func(template string, mark []byte) sink.Sink {
				t.Helper()
				s := newAny(t, testIdentity, Config{URL: b.url(), Delivery: delivery, Subject: template})
				mustOpen(t, s, mark)
				return s
			}
			s := open(before, nil)
			mark := mustWrite(t, s, records(1, 1))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if delivery == atLeastOnce { // an operator owns the stream
				reconfigure(t, b.client(t), streamName, both)
			}
			s = open(after, mark)
			next := records(2, 3)
			next.Records[1].Route, next.Records[2].Route = newSubject, newSubject
			mustWrite(t, s, next)

			reconfigure(t, b.client(t), streamName, func(c *jetstream.StreamConfig) {
				c.Subjects = slices.DeleteFunc(c.Subjects, func(s string) bool { return s == "k8s.test.>" })
			})
			mustWrite(t, s, &event.Batch{Seq: 3}) // nothing was lost
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(after, mark)
			last := records(4, 3)
			last.Records[0].Route, last.Records[2].Route = newSubject, newSubject
			_, err := s.Write(t.Context(), last)
			var refused *sink.RouteError
			if !errors.As(err, &refused) || refused.Index != 1 || refused.Route != subject || !refused.Missing {
				t.Fatalf("Write: %v, want a RouteError about record 1, whose subject is missing", err)
			}
			last.Records = slices.Delete(last.Records, 1, 2)
			if delivery == exactlyOnce { // see sink.Log
				last.Seq, last.Records = 5, last.Records[1:]
			}
			mustWrite(t, s, last)
			if got, want := all(t, b), `"1/0" "2/0" "2/1" "2/2" "4/0" "4/2"`; got != want {
				t.Errorf("the stream holds %s, want %s", got, want)
			}
		})
	}
}

// all returns the records in the stream on all subjects.
func all(t *testing.T, b *bus) string {
	t.Helper()
	stream, err := b.client(t).Stream(t.Context(), streamName)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		m, err := stream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(m.Subject, termRoot) {
			values = append(values, string(m.Data))
		}
	}
	return strings.Join(values, " ")
}
