package kafka

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// If the permission for one topic is revoked in the middle of a batch, the other topics get every record once. The topic gets
// its records when the permission is granted again.
func TestRouteRefused(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	b.topic(t, "closed", 4, 0)
	b.topic(t, "open", 4, 0)
	s := openSink(t, b.config())
	closed, open := number("closed"), number("open")
	mix := func() *event.Batch { // alternate the topics, so that every index changes
		x, y := closed.batch(200, 2000), open.batch(200, 2000)
		for i := range x.Records {
			y.Records = slices.Insert(y.Records, 2*i, x.Records[i])
		}
		return y
	}
	if errs := writeAll(t, s, mix()); errs != nil {
		t.Fatal(errs)
	}
	fault := b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "closed", Partitions: []int32{1, 2}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	batch := mix()
	_, err := s.Write(t.Context(), batch)
	e := wantRouteError(t, err, "closed", "WRITE")
	for range 2 { // the pipeline may also retry without a change
		_, err = s.Write(t.Context(), batch)
		if again := wantRouteError(t, err, "closed"); again.Index != e.Index {
			t.Errorf("the route is refused from record %d on, and then %d", e.Index, again.Index)
		}
	}
	var later []event.Record // records that the pipeline takes out, and adds to a later batch
	batch.Records, later = split(batch.Records, e)
	if errs := writeAll(t, s, batch); errs != nil {
		t.Errorf("Write without the refused route: %v", errs)
	}
	open.check(t, b.consume(t, "open"), 0)
	fault.Remove()
	if errs := writeAll(t, s, &event.Batch{Seq: batch.Seq + 1, Records: later}); errs != nil {
		t.Errorf("Write after the right is back: %v", errs)
	}
	closed.check(t, b.consume(t, "closed"), len(later))
	open.check(t, b.consume(t, "open"), 0)
}

// A tenant chooses the group and the name of a resource. If the resulting topic name is one that Kafka rejects, the other
// topics continue.
func TestTopicNameTooLong(t *testing.T) {
	t.Parallel()
	long := "k8s.prod." + strings.Repeat("g", 241)
	for delivery, open := range map[string]func(*testing.T, *bus) sink.Sink{
		"at-least-once": func(t *testing.T, b *bus) sink.Sink { return openSink(t, b.config()) },
		"exactly-once":  func(t *testing.T, b *bus) sink.Sink { return openExact(t, b.config()) },
	} {
		t.Run(delivery, func(t *testing.T) {
			b := startBus(t)
			s := open(t, b)
			batch := number("t").batch(3, 10)
			batch.Records = append(batch.Records, record(long, "k", "1", 0))
			_, err := s.Write(t.Context(), batch)
			if e := wantRouteError(t, err, long, "249", "topic template"); e.Index != 3 {
				t.Errorf("it is refused from record %d on", e.Index)
			}
			batch.Records = batch.Records[:3]
			if _, err := s.Write(t.Context(), batch); err != nil {
				t.Errorf("the others: %v", err)
			}
			if n := len(b.consumeCommitted(t, "t")); n != 3 {
				t.Errorf("the other topic has %d records", n)
			}
		})
	}
}

// split does what a pipeline does after a refusal.
func split(records []event.Record, e *sink.RouteError) (stay, leave []event.Record) {
	for i, r := range records {
		if i >= e.Index && r.Route == e.Route {
			leave = append(leave, r)
		} else {
			stay = append(stay, r)
		}
	}
	return stay, leave
}

func wantRouteError(t *testing.T, err error, route string, parts ...string) *sink.RouteError {
	t.Helper()
	var e *sink.RouteError
	if !errors.As(err, &e) || e.Route != route {
		t.Fatalf("error %v, want a RouteError of %q", err, route)
	}
	wantError(t, err, parts...)
	if strings.Count(err.Error(), `"`+route+`"`) != 1 {
		t.Errorf("%v: want the topic %q named once", err, route)
	}
	return e
}

// The number of partitions is remembered across restarts of the sink, because keys must not move while no bridge runs.
func TestPartitionCountOutlivesSink(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	b.topic(t, "pods", 3, 0)
	s := openSink(t, b.config())
	one := func(seq uint64, topic string) *event.Batch {
		return &event.Batch{Seq: seq, Records: []event.Record{record(topic, "k", fmt.Sprint(seq), 0)}}
	}
	write := func(s *Sink, batch *event.Batch) []byte {
		t.Helper()
		mark, err := s.Write(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		return mark
	}
	first := write(s, one(1, "pods"))
	if want := `{"partitions":{"pods":3}}`; string(first) != want {
		t.Errorf("the mark is %s, want %s", first, want)
	}
	if again := write(s, one(1, "pods")); string(again) != string(first) { // the commit of the first batch failed
		t.Errorf("the mark of the same batch is then %s", again)
	}
	if mark := write(s, one(2, "pods")); mark != nil {
		t.Errorf("a mark that says nothing new: %s", mark)
	}
	mark := write(s, one(3, "nodes"))
	if want := `{"partitions":{"nodes":4,"pods":3}}`; string(mark) != want {
		t.Errorf("the mark is %s, want %s", mark, want)
	}

	next := newSink(t, b.config())
	defer next.Close()
	if err := next.Open(t.Context(), mark); err != nil {
		t.Fatal(err)
	}
	if again := write(next, one(1, "pods")); again != nil {
		t.Errorf("a mark that says nothing new: %s", again)
	}
	if err := b.DeleteTopic("nodes"); err != nil {
		t.Fatal(err)
	}
	b.topic(t, "nodes", 6, 0)
	err := newSink(t, b.config()).Open(t.Context(), mark)
	if !errors.As(err, new(*sink.RefusedError)) || !strings.Contains(err.Error(), `topic "nodes": it has 6 partitions and had 4`) || !strings.Contains(err.Error(), "checkpoint reset") {
		t.Errorf("Open: %v, want a RefusedError", err)
	}
	err = newSink(t, b.config()).Open(t.Context(), []byte("1 17 4 -")) // the state of another kind of sink
	if !errors.As(err, new(*sink.RefusedError)) || !strings.Contains(err.Error(), "another name") {
		t.Errorf("Open with another's mark: %v, want a RefusedError", err)
	}
}
