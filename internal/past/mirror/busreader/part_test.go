package busreader

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap/zaptest"

	"github.com/kubebridge/kubebridge/internal/past/mirror"
	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// topics is a bus of topics with one partition each, which are written in transactions.
type topics struct {
	names  []string
	all    map[string][]sink.Message
	hidden map[string]bool  // they were deleted, or may not be described
	open   map[string]int64 // records of open transactions, behind the end of each topic
	parts  []sink.Part
}

func (b *topics) Parts() []sink.Part { return b.parts }

func (b *topics) At(context.Context, time.Time) ([]int64, error) {
	return make([]int64, len(b.parts)), nil
}

func (b *topics) Refresh(context.Context) error {
	b.parts = nil
	for _, name := range b.names {
		if end := int64(len(b.all[name])); !b.hidden[name] {
			b.parts = append(b.parts, sink.Part{Name: name + "/0", Log: name, ID: name, End: end, Written: end + b.open[name], Ordered: true})
		}
	}
	return nil
}

func (b *topics) Read(_ context.Context, ranges []sink.Range, _ bool, fn func(*sink.Message) error) error {
	for i, r := range ranges {
		for n := r.From; n < r.To; n++ {
			m := b.all[b.parts[i].Log][n]
			m.Part, m.Offset = i, n
			if err := fn(&m); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *topics) Close() {}

func (b *topics) put(topic string, e event.Event) {
	s := stream{}
	s.put(e)
	b.all[topic] = append(b.all[topic], s.all...)
}

// synced writes to a topic that the collection pods is complete up to a version.
func (b *topics) synced(topic string, nth uint64, version int) {
	rv := strconv.Itoa(version)
	b.put(topic, event.Event{
		Type: event.Synced, Origin: event.Watch, ResourceVersion: rv, Nth: nth, Report: &event.Report{Reason: event.ReasonPeriodic, To: rv},
	})
}

// copyOf returns an empty copy.
func copyOf(t *testing.T) *mirror.Mirror {
	t.Helper()
	db, err := store.Open("/data", store.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	m, err := mirror.Open(db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = m.Close(), db.Close() })
	return m
}

// TestReadUntil: times are known up to shortly before everything was read. Messages that are held back by a transaction were not read.
func TestReadUntil(t *testing.T) {
	m, began := copyOf(t), time.Now()
	b := &topics{names: []string{"a"}, all: map[string][]sink.Message{}, open: map[string]int64{"a": 1}}
	b.put("a", event.Event{Type: event.Gap, Origin: event.Snapshot, Report: &event.Report{Reason: event.ReasonReset, Reset: true}})
	b.synced("a", 1, 50)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	n := 0
	progress := func(unread int64) { // each time that everything is read
		if unread > 0 {
			return
		}
		n++
		until := m.Until()
		switch {
		case n < 4 && !until.IsZero():
			t.Errorf("while a transaction is open, times up to %s are known", until)
			cancel()
		case n == 3:
			b.open["a"] = 0
			b.synced("a", 2, 60)
		case !until.IsZero():
			if until.Before(began.Add(-publishing)) || until.After(time.Now().Add(-publishing)) {
				t.Errorf("times are known up to %s, want %v before %s or later", until, publishing, began)
			}
			cancel()
		}
	}
	err := Run(ctx, Options{
		Mirror: m, Cluster: "prod", Log: zaptest.NewLogger(t), Progress: progress,
		Open: func(ctx context.Context) (sink.Reader, error) { return b, b.Refresh(ctx) },
	})
	if m.Until().IsZero() || err != nil {
		t.Errorf("no time is known (%v)", err)
	}
}

// begin puts a first list, which is complete at version 50, on topics.
func (b *topics) begin(names ...string) {
	for _, topic := range names {
		b.put(topic, event.Event{Type: event.Gap, Origin: event.Snapshot, Report: &event.Report{Reason: event.ReasonReset, Reset: true}})
		b.put(topic, event.Event{Type: event.Synced, Origin: event.Snapshot, ResourceVersion: "50", Nth: 1, Report: &event.Report{Reason: event.ReasonReset, To: "50"}})
	}
}

// latest returns the version of pods that is served.
func latest(t *testing.T, m *mirror.Mirror) uint64 {
	at, err := m.Resource(pods).Latest()
	if err != nil {
		t.Error(err)
	}
	return at.Version
}

// TestHiddenPart: what was read of one topic proves nothing about a topic that was deleted, or may not be described any more.
func TestHiddenPart(t *testing.T) {
	m := copyOf(t)
	b := &topics{names: []string{"a", "b"}, all: map[string][]sink.Message{}, hidden: map[string]bool{}}
	b.begin(b.names...)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	served := func() uint64 { return latest(t, m) }
	n := 0
	progress := func(unread int64) { // each time that everything is read
		if unread > 0 {
			return
		}
		switch n++; {
		case n == 1:
			b.synced("a", 2, 100)
		case n == 2: // the mark of version 100 waits for the ends of the topics
			b.hidden["b"] = true
		case n == 3:
			b.synced("a", 3, 110)
		case n == 5:
			if got := served(); got != 50 {
				t.Errorf("without the topic b, version %d is served, want 50", got)
			}
		case n == 9:
			b.hidden["b"] = false
		case n > 9 && served() == 110: // no message has followed
			b.synced("a", 4, 120)
		case n > 9 && served() == 120:
			cancel()
		}
	}
	err := Run(ctx, Options{
		Mirror: m, Cluster: "prod", Log: zaptest.NewLogger(t), Progress: progress,
		Open: func(ctx context.Context) (sink.Reader, error) { return b, b.Refresh(ctx) },
	})
	if got := served(); got != 120 || err != nil {
		t.Errorf("with the topic b again, version %d is served (%v), want 120", got, err)
	}
}

// TestHeldBackPart: a transaction that stays open on one topic does not hold back what is served of the others. It holds back the times that are known:
// what it has written may be of any resource.
func TestHeldBackPart(t *testing.T) {
	m := copyOf(t)
	b := &topics{names: []string{"a", "b", "c"}, all: map[string][]sink.Message{}, open: map[string]int64{"a": 1}}
	b.begin("b", "c")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	served := func() uint64 { return latest(t, m) }
	n := 0
	progress := func(unread int64) { // each time that everything is read
		if unread > 0 {
			return
		}
		switch n++; {
		case n == 1:
			b.synced("b", 2, 100)
		case b.open["a"] == 0 && !m.Until().IsZero():
			cancel()
		case served() == 100 && b.open["a"] > 0:
			if until := m.Until(); !until.IsZero() {
				t.Errorf("while a transaction is open, times up to %s are known", until)
			}
			b.open["a"] = 0
		}
	}
	err := Run(ctx, Options{
		Mirror: m, Cluster: "prod", Log: zaptest.NewLogger(t), Progress: progress, heldBack: time.Millisecond,
		Open: func(ctx context.Context) (sink.Reader, error) { return b, b.Refresh(ctx) },
	})
	if got := served(); got != 100 || m.Until().IsZero() || err != nil {
		t.Errorf("version %d is served, and times up to %s are known (%v)", got, m.Until(), err)
	}
}
