package history_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kubebridge/kubebridge/internal/history"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bus is a log in memory, of one topic. What real ones do is tested where their readers
// are; this one can hold what no bridge would write.
type bus struct {
	parts [][]message
	from  []int64 // what was before is removed by retention
	now   time.Time
	rv    int
	epoch uint64 // 0: the first
	read  int
	uids  map[string]string // of names that were used again
}

type message struct {
	headers []sink.Header
	value   []byte
	time    time.Time
}

var start = time.Date(2026, 3, 14, 9, 0, 0, 0, time.UTC)

func newBus(parts int) *bus {
	return &bus{parts: make([][]message, parts), from: make([]int64, parts), now: start, rv: 100, uids: map[string]string{}}
}

func (b *bus) Parts() (out []sink.Part) {
	for i := range b.parts {
		out = append(out, sink.Part{Name: fmt.Sprintf("t/%d", i), Log: "t", First: b.from[i], End: int64(len(b.parts[i]))})
	}
	return out
}

func (b *bus) At(_ context.Context, t time.Time) (out []int64, _ error) {
	for i := range b.parts {
		at := slices.IndexFunc(b.parts[i], func(m message) bool { return !m.time.Before(t) })
		if at < 0 {
			at = len(b.parts[i])
		}
		out = append(out, max(int64(at), b.from[i]))
	}
	return out, nil
}

func (b *bus) Read(_ context.Context, ranges []sink.Range, _ bool, fn func(*sink.Message) error) error {
	for i, r := range ranges {
		for at := r.From; at < r.To; at++ {
			b.read++
			m := b.parts[i][at]
			err := fn(&sink.Message{Part: i, Offset: at, Headers: m.headers, Value: m.value})
			if errors.Is(err, sink.ErrEnough) {
				break
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bus) Close() {}

// tick passes a second, and returns the time before it ends.
func (b *bus) tick() time.Time {
	b.now = b.now.Add(time.Second)
	return b.now.Add(-time.Millisecond)
}

var encoder = event.Encoder{Cluster: "prod", ClusterUID: "c1"}

func encode(e *event.Event) message {
	attributes := encoder.Attributes(e)
	m := message{value: event.Structured.Append(nil, attributes, e), time: e.Time}
	m.headers = append(m.headers, sink.Header{Name: "content-type", Value: []byte("application/cloudevents+json; charset=UTF-8")})
	for _, a := range attributes {
		m.headers = append(m.headers, sink.Header{Name: "ce_" + a.Name, Value: []byte(a.Value)})
	}
	return m
}

var pods = &event.Collection{Resource: "pods"}

// of says something of a collection in every part.
func (b *bus) of(c *event.Collection, typ event.Type, run string, r event.Report) {
	b.now = b.now.Add(time.Second)
	e := &event.Event{Type: typ, Origin: event.Snapshot, Time: b.now, Collection: c, ResourceVersion: strconv.Itoa(b.rv), Run: run, Report: &r, Epoch: cmp.Or(b.epoch, 1)}
	for i := range b.parts {
		b.parts[i] = append(b.parts[i], encode(e))
	}
}

// tell tells of an object, whose part its name decides.
func (b *bus) tell(typ event.Type, origin event.Origin, name string, rv int, run string) *event.Event {
	b.now = b.now.Add(time.Second)
	e := &event.Event{
		Type: typ, Origin: origin, Time: b.now, Collection: pods, APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: name,
		UID: cmp.Or(b.uids[name], "uid-"+name), ResourceVersion: strconv.Itoa(rv), Entry: "1", Run: run, Epoch: cmp.Or(b.epoch, 1),
	}
	e.Object = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"shop","uid":%q,"resourceVersion":"%d"},"spec":{"n":%d}}`,
		name, e.UID, rv, rv)
	b.put(e)
	return e
}

func (b *bus) put(e *event.Event) {
	part := int(e.Name[0]) % len(b.parts)
	b.parts[part] = append(b.parts[part], encode(e))
}

// snapshot is a first list of names.
func (b *bus) snapshot(names ...string) {
	b.of(pods, event.Gap, "", event.Report{Reason: "snapshot"})
	for _, n := range names {
		b.rv++
		b.tell(event.Added, event.Snapshot, n, b.rv, "")
	}
	b.of(pods, event.Synced, "", event.Report{Reason: "snapshot", Counts: &event.Counts{Listed: len(names), Added: len(names)}})
}

func (b *bus) watch(typ event.Type, name string) *event.Event {
	b.rv++
	return b.tell(typ, event.Watch, name, b.rv, "")
}

// at rebuilds the pods of a time.
func (b *bus) at(t *testing.T, at time.Time) *history.State {
	t.Helper()
	s, err := history.Rebuild(t.Context(), history.Query{Reader: b, Cluster: "prod", At: history.Point{Time: at}, Resources: []string{"pods"}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// names are those of the state's objects, with what their bodies hold.
func names(s *history.State) (out []string) {
	for i := range s.Objects {
		out = append(out, s.Objects[i].Received.Name+":"+s.Objects[i].ResourceVersion)
	}
	return out
}
