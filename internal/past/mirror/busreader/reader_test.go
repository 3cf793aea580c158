package busreader

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap/zaptest"

	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/internal/past/mirror"
	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// stream is a bus with one part. Its first message has the offset 1.
type stream struct {
	mu     sync.Mutex
	id     string
	first  int64
	all    []sink.Message
	latest bool
	secret int // how many refreshes do not show latest
	stale  int // how many refreshes show the end that was before the last message
	empty  int // how many reads find no message
	early  int // how many reads begin one message too early, as on a replica that lags
	down   int // how many connections fail after the first read
	reads  []sink.Range
	broken int     // how many connections fail in the middle
	behind []int64 // what the reader has reported
	drops  int     // how often it has dropped the copy
	atEnd  func()  // is called when everything was read; may be nil
	remove bool    // everything but the last message is removed before it is read

	part sink.Part // of the reader
}

func (s *stream) Parts() []sink.Part { return []sink.Part{s.part} }

func (s *stream) At(context.Context, time.Time) ([]int64, error) { return []int64{s.part.End}, nil }

func (s *stream) Refresh(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.part = sink.Part{Name: "K8S", Log: "K8S", ID: s.id, First: s.first, End: int64(len(s.all)) + 1, Latest: s.latest}
	if s.secret > 0 {
		s.secret--
		s.part.Latest, s.part.LatestErr = false, errors.New("not allowed")
	}
	if s.stale > 0 {
		s.stale--
		s.part.End--
	}
	return nil
}

func (s *stream) Read(_ context.Context, ranges []sink.Range, _ bool, fn func(*sink.Message) error) error {
	s.mu.Lock()
	s.reads = append(s.reads, ranges[0])
	if s.remove {
		s.remove, s.first = false, int64(len(s.all))
		if ranges[0].Continued {
			s.mu.Unlock()
			return errors.New("messages were removed before they were read")
		}
		ranges[0].From = s.first
	}
	end := int64(len(s.all))
	list := s.all[min(ranges[0].From-1, end):min(max(ranges[0].From, ranges[0].To)-1, end)]
	switch {
	case s.empty > 0:
		s.empty--
		list = nil
	case s.early > 0:
		s.early--
		list = s.all[ranges[0].From-2 : end]
	}
	broken := s.broken > 0
	if broken {
		s.broken--
	}
	s.mu.Unlock()
	for i := range list {
		if broken && i == len(list)/2 {
			return errors.New("the connection is gone")
		}
		m := list[i]
		if err := fn(&m); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) Close() {}

func (s *stream) note(behind int64) {
	s.behind = append(s.behind, behind)
	if behind == 0 && s.atEnd != nil {
		s.atEnd()
	}
}

func (s *stream) open(ctx context.Context) (sink.Reader, error) {
	if s.down > 0 && len(s.reads) > 0 {
		s.down--
		return nil, errors.New("no server answers")
	}
	return s, s.Refresh(ctx)
}

var pods = store.Resource{Cluster: "prod", Name: "pods"}

// put adds an event of the collection pods.
func (s *stream) put(e event.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	col := event.ParseCollection("pods")
	e.Collection, e.Time, e.Epoch, e.Run, e.Incarnation = &col, time.Unix(int64(len(s.all)), 0), 1, "100", 100
	if e.Type.OfCollection() {
		e.Plan = &event.Plan{Number: 1, Edit: 1, Birth: 1, Digest: event.PlanDigest(map[string]uint64{"pods": 1})}
	}
	encoder := event.Encoder{Cluster: "prod", ClusterUID: "c", Format: event.Structured}
	m := sink.Message{Offset: int64(len(s.all)) + 1, Value: event.Structured.Append(nil, encoder.Attributes(&e), &e)}
	s.all = append(s.all, m)
}

func (s *stream) pod(t event.Type, name string, version int) {
	rv := strconv.Itoa(version)
	s.put(event.Event{
		Type: t, Origin: event.Watch, APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: name, UID: name, ResourceVersion: rv,
		Object: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"shop","uid":%q,"resourceVersion":%q}}`, name, name, rv),
	})
}

func (s *stream) snapshot() {
	s.put(event.Event{Type: event.Gap, Origin: event.Snapshot, Report: &event.Report{Reason: event.ReasonReset, Reset: true}})
	for i := range 5 {
		s.pod(event.Present, fmt.Sprint("p", i), 10+i)
	}
	s.put(event.Event{Type: event.Synced, Origin: event.Snapshot, ResourceVersion: "20", Nth: 1, Report: &event.Report{Reason: event.ReasonReset, To: "20"}})
}

// run reads a stream until a resource is served at a version, or until an error.
func run(t *testing.T, fsys vfs.FS, s *stream, version uint64) (served int, failed error) {
	t.Helper()
	db, err := store.Open("/data", store.Options{FS: fsys})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	m, err := mirror.Open(db)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Options{
			Open: s.open, Mirror: m, Cluster: "prod", Retain: time.Hour, Progress: s.note, Dropped: func() { s.drops++ }, Log: zaptest.NewLogger(t),
			lostAfter: time.Millisecond,
		})
	}()
	for {
		committed := m.Commits()
		if r := m.Resource(pods); r != nil && version != 0 {
			if at, err := r.Latest(); err == nil && at.Version == version {
				n := 0
				_ = db.List(store.View{Resource: pods, At: at}, "", store.Name{}, func(*store.Object) bool { n++; return true })
				cancel()
				return n, <-done
			}
		}
		if r := m.Resource(pods); r != nil && version == 0 {
			if _, err := r.Latest(); err != nil {
				cancel()
				<-done
				return 0, err
			}
		}
		select {
		case <-committed:
		case err := <-done:
			return 0, err
		}
	}
}

// TestResume: a restarted reader continues behind what was committed, also if a connection ended in the middle.
func TestResume(t *testing.T) {
	s, fsys := &stream{id: "1", first: 1, broken: 1}, vfs.NewMem()
	s.snapshot()
	s.put(event.Event{Type: event.Synced, Origin: event.Watch, ResourceVersion: "21", Nth: 2, Report: &event.Report{Reason: event.ReasonPeriodic, To: "21"}})
	if n, err := run(t, fsys, s, 21); n != 5 || err != nil {
		t.Errorf("%d objects (%v)", n, err)
	}
	if len(s.reads) != 2 || s.reads[1].From != 4 {
		t.Errorf("it read %v, want from 4, the last message before the broken connection", s.reads)
	}
	if want := []int64{8, 4, 0}; len(s.behind) < 3 || !slices.Equal(s.behind[:3], want) {
		t.Errorf("it reports that %v messages are not read, want %v", s.behind, want)
	}
	s.pod(event.Added, "new", 30)
	s.reads = nil
	if n, err := run(t, fsys, s, 30); n != 6 || err != nil {
		t.Errorf("%d objects (%v)", n, err)
	}
	if len(s.reads) == 0 || s.reads[0].From != 8 {
		t.Errorf("it read %v, want from 8, the last message", s.reads)
	}
}

// TestForgedMessages: somebody who may write to the bus makes no resource unready for good. Numbers and times far in the future are ignored, and so is a
// resourceVersion that is not a number in a collection whose lists have numbers.
func TestForgedMessages(t *testing.T) {
	s := &stream{id: "1", first: 1}
	s.snapshot()
	first, synced := s.all[0].Value, s.all[len(s.all)-1].Value
	for name, value := range map[string]string{
		"run": "9999999999999999", "incarnation": "9999999999999999", "birth": "9999999999999999", "plan": "9999999999999999", "edit": "9999999999999999",
		"time": "9999-12-31T23:59:59.000000Z",
	} {
		for _, event := range [][]byte{first, synced} {
			forged := regexp.MustCompile(`"`+name+`":"[^"]*"`).ReplaceAll(event, []byte(`"`+name+`":"`+value+`"`))
			if name == "incarnation" { // it has the run of a gap that begins an incarnation
				forged = regexp.MustCompile(`"run":"[^"]*"`).ReplaceAll(forged, []byte(`"run":"`+value+`"`))
			}
			s.all = append(s.all, sink.Message{Offset: int64(len(s.all)) + 1, Value: forged})
		}
	}
	s.put(event.Event{
		Type: event.Modified, Origin: event.Watch, APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "p0", UID: "p0", ResourceVersion: "ten",
		Object: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p0","namespace":"shop","uid":"p0","resourceVersion":"ten"}}`),
	})
	s.put(event.Event{Type: event.Synced, Origin: event.Watch, ResourceVersion: "ten", Nth: 2, Report: &event.Report{Reason: event.ReasonPeriodic, To: "ten"}})
	s.pod(event.Modified, "p1", 30)
	if n, err := run(t, vfs.NewMem(), s, 30); n != 5 || err != nil {
		t.Errorf("%d objects (%v)", n, err)
	}
}

// TestFailedApply: a message that could be applied only in part is not committed, because after a restart the rest would be taken as a repetition.
func TestFailedApply(t *testing.T) {
	s, fsys := &stream{id: "1", first: 1}, vfs.NewMem()
	s.snapshot()
	if n, err := run(t, fsys, s, 20); n != 5 || err != nil {
		t.Fatalf("%d objects (%v)", n, err)
	}
	sound := damage(t, fsys, nil)
	s.pod(event.Added, "new", 25)
	s.pod(event.Modified, "p0", 30)
	if _, err := run(t, fsys, s, 30); !errors.As(err, new(*mirrorError)) {
		t.Fatalf("a damaged version of the object: %v", err)
	}
	damage(t, fsys, sound)
	if n, err := run(t, fsys, s, 30); n != 6 || err != nil {
		t.Fatalf("%d objects (%v)", n, err)
	}
	db, err := store.Open("/data", store.Options{FS: fsys})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	o, err := db.Get(store.View{Resource: pods, At: store.Position{Era: 9}}, store.Name{Namespace: "shop", Name: "p0"})
	if err != nil || o == nil || o.ResourceVersion != 30 {
		t.Errorf("after the repair p0 is %+v (%v), want resourceVersion 30", o, err)
	}
}

// damage replaces the values of the versions of all objects by none, or by others, and returns what they were.
func damage(t *testing.T, fsys vfs.FS, with map[string][]byte) (sound map[string][]byte) {
	t.Helper()
	db, err := pebble.Open("/data", &pebble.Options{FS: fsys, FormatMajorVersion: pebble.FormatTableFormatV6})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte("v"), UpperBound: []byte("w")})
	if err != nil {
		t.Fatal(err)
	}
	sound = map[string][]byte{}
	for ok := it.First(); ok; ok = it.Next() {
		sound[string(it.Key())] = slices.Clone(it.Value())
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		t.Fatal(err)
	}
	for key := range sound {
		if err := db.Set([]byte(key), with[key], pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	return sound
}

// TestLostMessages: where the bus has lost messages, or is another one, what was read does not count any more, because changes are missing.
func TestLostMessages(t *testing.T) {
	for name, lose := range map[string]func(s *stream){
		"removed":                   func(s *stream) { s.pod(event.Added, "x", 31); s.pod(event.Added, "y", 32); s.first = int64(len(s.all)) },
		"removed after the look-up": func(s *stream) { s.pod(event.Added, "x", 31); s.pod(event.Added, "y", 32); s.remove = true },
		"created again":             func(s *stream) { s.id = "2" },
		"cut off":                   func(s *stream) { s.all = s.all[:3] },
		"cut off and written again": func(s *stream) {
			s.all = slices.Clone(s.all[:4])
			for i := range 6 {
				s.pod(event.Modified, "p0", 40+i)
			}
		},
		"cut off and written to the same end": func(s *stream) {
			s.all = slices.Clone(s.all[:4])
			for i := range 3 {
				s.pod(event.Modified, "p0", 40+i)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, fsys := &stream{id: "1", first: 1}, vfs.NewMem()
			s.snapshot()
			if n, err := run(t, fsys, s, 20); n != 5 || err != nil {
				t.Fatalf("%d objects (%v)", n, err)
			}
			lose(s)
			s.all = append([]sink.Message(nil), s.all...)
			if name == "created again" {
				s.all = s.all[:1]
			}
			if _, err := run(t, fsys, s, 0); !errors.Is(err, mirror.ErrIncomplete) {
				t.Errorf("it serves the old state (%v)", err)
			}
			if s.drops != 1 {
				t.Errorf("it says %d times that the copy was dropped", s.drops)
			}
		})
	}
}

// TestStaleEnd: a server that has no leader may show an end that is older than what was read, and a new leader may lack messages for a moment. That is no
// loss, and what follows is read.
func TestStaleEnd(t *testing.T) {
	s, fsys := &stream{id: "1", first: 1}, vfs.NewMem()
	s.snapshot()
	if n, err := run(t, fsys, s, 20); n != 5 || err != nil {
		t.Fatalf("%d objects (%v)", n, err)
	}
	s.stale, s.empty, s.early = 3, 1, 1
	s.atEnd = func() {
		if s.stale == 0 {
			s.atEnd = nil
			s.pod(event.Added, "new", 25)
		}
	}
	if n, err := run(t, fsys, s, 25); n != 6 || err != nil {
		t.Errorf("%d objects (%v)", n, err)
	}
	if s.drops != 0 || s.atEnd != nil {
		t.Errorf("the copy was dropped %d times", s.drops)
	}
}

// TestStaleEndAfterOutage: messages are missing before an outage and again after it. Nobody has looked in between, so the time for which they may be missing
// begins again.
func TestStaleEndAfterOutage(t *testing.T) {
	s, fsys := &stream{id: "1", first: 1}, vfs.NewMem()
	s.snapshot()
	if n, err := run(t, fsys, s, 20); n != 5 || err != nil {
		t.Fatalf("%d objects (%v)", n, err)
	}
	s.pod(event.Added, "new", 25)
	s.reads, s.empty, s.down = nil, 2, 1
	if n, err := run(t, fsys, s, 25); n != 6 || err != nil {
		t.Errorf("%d objects (%v)", n, err)
	}
	if s.drops != 0 || s.empty != 0 || s.down != 0 {
		t.Errorf("the copy was dropped %d times", s.drops)
	}
}

// TestRefused: a stream that keeps only the last message of each subject, and two clusters of one name, end the program.
func TestRefused(t *testing.T) {
	s := &stream{id: "1", first: 1, latest: true}
	s.snapshot()
	if _, err := run(t, vfs.NewMem(), s, 20); !errors.Is(err, ErrLatest) {
		t.Errorf("a stream with a limit per subject: %v", err)
	}
	s = &stream{id: "1", first: 1, latest: true, secret: 1}
	s.snapshot()
	if _, err := run(t, vfs.NewMem(), s, 20); !errors.Is(err, ErrLatest) || len(s.reads) != 0 {
		t.Errorf("a stream that does not show its limit at first: %v, after %v was read", err, s.reads)
	}
	s = &stream{id: "1", first: 1}
	s.snapshot()
	foreign := s.all[1]
	foreign.Offset, foreign.Foreign = 8, true // written by nobody who is trusted
	s.all = append(s.all, foreign)
	col := event.ParseCollection("pods")
	e := event.Event{Type: event.Gap, Collection: &col, Run: "100", Incarnation: 100, Time: time.Unix(9, 0), Origin: event.Watch, Report: &event.Report{Reason: "expired"}, Plan: &event.Plan{Number: 1, Edit: 1, Birth: 1, Digest: "x"}}
	encoder := event.Encoder{Cluster: "prod", ClusterUID: "another", Format: event.Structured}
	s.all = append(s.all, sink.Message{Offset: 9, Value: event.Structured.Append(nil, encoder.Attributes(&e), &e)})
	fsys := vfs.NewMem()
	for range 2 { // also behind a restart, which reads the second cluster's events only
		if _, err := run(t, fsys, s, 1000); !errors.Is(err, history.ErrClusters) {
			t.Errorf("two clusters: %v", err)
		}
	}
}
