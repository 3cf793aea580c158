package pipeline

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// script is a lane whose collections say what the test wants them to.
type script struct {
	t     *testing.T
	lane  *Lane
	store checkpoint.Store
	bus   *bus

	mu      sync.Mutex
	started map[string]*collectionScript
	listed  []*source.Object // what a survey finds, at surveyRV,
	hold    chan struct{}    // when that is closed, if it is there
	rv      string
	stop    context.CancelFunc
	kill    context.CancelFunc
	done    chan error
	log     bool      // the bus can be read back
	sink    sink.Sink // nil: bus
	policy  Oversize  // "": nothing is said of it
}

// collectionScript is one run of a collection.
type collectionScript struct {
	t    *testing.T
	ctx  context.Context
	h    *laneHandler
	from event.Position
	end  chan error
	last fates
}

// fates are what is found out about vanished objects.
type fates struct {
	alive  map[string]bool           // by uid
	bodies map[string]*source.Object // by uid
}

func (f fates) Alive(_ context.Context, _, _, uid string) (alive, known bool) {
	return f.alive[uid], true
}

func (f fates) Recall(_ context.Context, _ string, _ []source.Name, found func(*source.Object) error) error {
	for _, o := range f.bodies {
		if err := found(o); err != nil {
			return err
		}
	}
	return nil
}

func newScript(t *testing.T, store checkpoint.Store) *script {
	t.Helper()
	s := &script{t: t, store: store, bus: &bus{}, started: map[string]*collectionScript{}, done: make(chan error, 1)}
	s.run()
	return s
}

// run runs a lane over the script's store and bus.
func (s *script) run() {
	var on sink.Sink = s.bus
	switch {
	case s.log:
		on = logBus{s.bus}
	case s.sink != nil:
		on = s.sink
	}
	s.lane = newTestLane(on, s.store)
	if s.policy != "" {
		s.lane = newPolicyLane(s.t, on, s.store, s.policy)
	}
	s.lane.cluster = s
	hard, kill := context.WithCancel(s.t.Context())
	soft, stop := context.WithCancel(hard)
	s.stop, s.kill = stop, kill
	lane := s.lane
	go func() { s.done <- lane.Run(hard, soft) }()
}

// handled waits until the lane has handled what was said.
func (s *script) handled() {
	s.t.Helper()
	for deadline := time.Now().Add(endsHang); len(s.lane.in) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatal("the lane does not handle what it is told")
		}
	}
	if err := s.lane.do(s.t.Context(), func(context.Context) error { return nil }); err != nil {
		s.t.Fatal(err)
	}
}

// finish stops the lane in good order.
func (s *script) finish() {
	s.t.Helper()
	s.stop()
	if err := <-s.done; err != nil {
		s.t.Error(err)
	}
}

func (s *script) read(ctx context.Context, j job) error {
	c := &collectionScript{t: s.t, ctx: ctx, from: j.from, end: make(chan error)}
	c.h = &laneHandler{lane: s.lane, member: j.member, last: &c.last}
	s.mu.Lock()
	s.started[j.target.Collection.ID()] = c
	s.mu.Unlock()
	select {
	case err := <-c.end:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *script) survey(ctx context.Context, _ source.Target, h source.Handler) (string, error) {
	s.mu.Lock()
	listed, rv, hold := s.listed, s.rv, s.hold
	s.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	for _, o := range listed {
		if err := h.Handle(ctx, source.Signal{Kind: source.Listed, Object: o}); err != nil {
			return "", err
		}
	}
	return rv, nil
}

func (s *script) set(wanted []Wanted, fates map[string]Fate) {
	s.t.Helper()
	if err := s.lane.Set(s.t.Context(), wanted, fates, true); err != nil {
		s.t.Fatal(err)
	}
}

// collection waits for a collection's run, other than the one before.
func (s *script) collection(id string, before *collectionScript) *collectionScript {
	s.t.Helper()
	for deadline := time.Now().Add(endsHang); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		c := s.started[id]
		s.mu.Unlock()
		if c != nil && c != before {
			return c
		}
	}
	s.t.Fatalf("collection %s does not run", id)
	return nil
}

func (c *collectionScript) says(signals ...source.Signal) {
	c.t.Helper()
	for _, s := range signals {
		if err := c.h.Handle(c.ctx, s); err != nil {
			c.t.Fatalf("%+v: %v", s, err)
		}
	}
}

// lists says a whole list.
func (c *collectionScript) lists(from, reason, rv string, objects ...*source.Object) {
	c.t.Helper()
	c.says(source.Signal{Kind: source.ListBegun, RV: from, Reason: reason})
	for _, o := range objects {
		c.says(source.Signal{Kind: source.Listed, Object: o})
	}
	c.says(source.Signal{Kind: source.ListEnded, RV: rv, Resume: rv})
}

// told waits until the bus holds as many records as want, and compares: a line
// for each, "id" or "id reason", where RUN is what the first gap says.
func (s *script) told(want ...string) {
	s.t.Helper()
	var got []string
	for deadline := time.Now().Add(endsHang); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		s.bus.mu.Lock()
		got = nil
		for _, r := range s.bus.records {
			line := r.ID
			if r.Event.Type == event.Deleted && r.Event.Object != nil {
				line += " body"
			}
			if r.Event.Reason != "" {
				line += " " + r.Event.Reason
			}
			if r.Event.Report != nil {
				line += " " + r.Event.Report.Reason
			}
			got = append(got, line)
		}
		s.bus.mu.Unlock()
		if len(got) >= len(want) {
			break
		}
	}
	run := s.runOf("gap")
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], "RUN", run)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Fatalf("told (-want +got):\n%s", diff)
	}
}

// forgetTold begins the next comparison anew.
func (s *script) forgetTold() {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	s.bus.records = nil
}

func objectAt(namespace, name, uid, rv, data string) *source.Object {
	o, err := source.ParseObject(fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":%q},"data":{"x":%q}}`, name, namespace, uid, rv, data))
	if err != nil {
		panic(err)
	}
	return &o
}

func configMapsOf(c event.Collection) Wanted {
	c.Resource = "configmaps"
	return Wanted{Target: source.Target{Collection: c, Resource: configMaps.Resource}}
}

// TestNamespaceLeavesAndReturns: its objects leave the selection and come back at
// versions that were told already; the ids must differ, or consumers would take
// the return for a repetition (design rules 5 and 7).
func TestNamespaceLeavesAndReturns(t *testing.T) {
	s := newScript(t, openMem(t))
	defer s.finish()
	a := configMapsOf(event.Collection{Namespace: "a"})
	b := configMapsOf(event.Collection{Namespace: "b"})
	s.set([]Wanted{a, b}, nil)
	inA, inB := s.collection("configmaps?namespace=a", nil), s.collection("configmaps?namespace=b", nil)
	inA.lists("", source.ReasonSnapshot, "10", objectAt("a", "x", "u", "5", ""))
	s.told("configmaps?namespace=a:1:0:gap snapshot", "u:5:added", "configmaps?namespace=a:1:10:synced snapshot")
	s.forgetTold()
	s.set([]Wanted{b}, map[string]Fate{"configmaps?namespace=a": Unselected})
	inB.lists("", source.ReasonSnapshot, "11") // only then it is known that b does not have them
	s.told("configmaps?namespace=b:1:0:gap snapshot", "configmaps?namespace=b:1:11:synced snapshot",
		"u:5:deleted left", "configmaps?namespace=a:1:10:closed selection")
	for i := 2; i < 4; i++ {
		s.forgetTold()
		s.set([]Wanted{a, b}, nil)
		inA = s.collection("configmaps?namespace=a", inA)
		if inA.from != (event.Position{}) {
			t.Errorf("begins from %+v", inA.from)
		}
		inA.lists("", source.ReasonSnapshot, "12", objectAt("a", "x", "u", "5", ""))
		s.told(fmt.Sprintf("configmaps?namespace=a:1:0:gap:%d snapshot", i), fmt.Sprintf("u:5.%d:added", i),
			fmt.Sprintf("configmaps?namespace=a:1:12:synced:%d snapshot", i))
		s.forgetTold()
		s.set([]Wanted{b}, map[string]Fate{"configmaps?namespace=a": Unselected})
		s.told(fmt.Sprintf("u:5.%d:deleted left", i), fmt.Sprintf("configmaps?namespace=a:1:12:closed:%d selection", i))
	}
}

// TestNamespaceIsDeleted: what was not seen of its objects' ends is concluded
// from the namespace's, and it is a deletion.
func TestNamespaceIsDeleted(t *testing.T) {
	s := newScript(t, openMem(t))
	defer s.finish()
	s.set([]Wanted{configMapsOf(event.Collection{Namespace: "a"})}, nil)
	s.collection("configmaps?namespace=a", nil).lists("", source.ReasonSnapshot, "10", objectAt("a", "x", "u", "5", ""))
	s.told("configmaps?namespace=a:1:0:gap snapshot", "u:5:added", "configmaps?namespace=a:1:10:synced snapshot")
	s.forgetTold()
	s.set(nil, map[string]Fate{"configmaps?namespace=a": Vanished})
	s.told("u:5:deleted", "configmaps?namespace=a:1:10:closed gone")
}

// TestSelectorChanged: what both selections hold is not told again, what only the
// old one held has left (design rule 10); also when the bridge restarts between.
func TestSelectorChanged(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%t", restart), func(t *testing.T) {
			s := newScript(t, openMem(t))
			defer func() { s.finish() }()
			before, after := configMapsOf(event.Collection{LabelSelector: "a"}), configMapsOf(event.Collection{LabelSelector: "b"})
			s.set([]Wanted{before}, nil)
			s.collection("configmaps?labels=a", nil).lists("", source.ReasonSnapshot, "10",
				objectAt("n", "both", "u1", "5", ""), objectAt("n", "old", "u2", "6", ""))
			s.told("configmaps?labels=a:1:0:gap snapshot", "u1:5:added", "u2:6:added", "configmaps?labels=a:1:10:synced snapshot")
			if restart {
				s.finish()
				s.run()
			}
			s.forgetTold()
			s.set([]Wanted{after}, map[string]Fate{"configmaps?labels=a": Unselected})
			s.collection("configmaps?labels=b", nil).lists("", source.ReasonSnapshot, "11",
				objectAt("n", "both", "u1", "5", ""), objectAt("n", "new", "u3", "7", ""))
			s.told("configmaps?labels=b:1:0:gap snapshot", "u3:7:added", "configmaps?labels=b:1:11:synced snapshot",
				"u2:6:deleted left", "configmaps?labels=a:1:10:closed selection")
		})
	}
}

// TestObjectMovesBetweenCollections: two selections exclude each other, and their
// watches tell of the move in either order; the bus must end with the object alive.
func TestObjectMovesBetweenCollections(t *testing.T) {
	for _, leftFirst := range []bool{true, false} {
		t.Run(fmt.Sprintf("left first=%t", leftFirst), func(t *testing.T) {
			s := newScript(t, openMem(t))
			defer s.finish()
			s.set([]Wanted{configMapsOf(event.Collection{LabelSelector: "x=1"}), configMapsOf(event.Collection{LabelSelector: "x=2"})}, nil)
			one, two := s.collection("configmaps?labels=x=1", nil), s.collection("configmaps?labels=x=2", nil)
			one.lists("", source.ReasonSnapshot, "10", objectAt("n", "o", "u", "5", ""))
			s.told("configmaps?labels=x=1:1:0:gap snapshot", "u:5:added", "configmaps?labels=x=1:1:10:synced snapshot")
			two.lists("", source.ReasonSnapshot, "10") // must not take it for gone
			s.told("configmaps?labels=x=1:1:0:gap snapshot", "u:5:added", "configmaps?labels=x=1:1:10:synced snapshot",
				"configmaps?labels=x=2:1:0:gap snapshot", "configmaps?labels=x=2:1:10:synced snapshot")
			s.forgetTold()
			left := source.Signal{Kind: source.Deleted, Object: objectAt("n", "o", "u", "20", ""), Left: true, Resume: "10"}
			came := source.Signal{Kind: source.Added, Object: objectAt("n", "o", "u", "20", ""), Resume: "10"}
			if leftFirst {
				one.says(left)
				two.says(came)
				s.told("u:5:deleted body left", "u:20:added")
			} else {
				two.says(came)
				one.says(left)
				two.says(source.Signal{Kind: source.Modified, Object: objectAt("n", "o", "u", "21", ""), Resume: "20"})
				s.told("u:20:modified", "u:21:modified")
			}
		})
	}
}

// TestSameVersionOtherBody: a CRD gains a default, and objects have another body
// at the resourceVersion that was told (kubernetes-facts, "Resuming", 6).
func TestSameVersionOtherBody(t *testing.T) {
	s := newScript(t, openMem(t))
	defer s.finish()
	s.set([]Wanted{configMapsOf(event.Collection{})}, nil)
	c := s.collection("configmaps", nil)
	c.lists("", source.ReasonSnapshot, "10", objectAt("n", "o", "u", "5", "one"))
	c.lists("10", source.ReasonExpired, "11", objectAt("n", "o", "u", "5", "two"))
	c.lists("11", source.ReasonExpired, "12", objectAt("n", "o", "u", "5", "three"))
	c.says(source.Signal{Kind: source.Modified, Object: objectAt("n", "o", "u", "13", ""), Resume: "12"})
	s.told("configmaps:1:0:gap snapshot", "u:5:added", "configmaps:1:10:synced snapshot",
		"configmaps:1:10:gap expired", "u:5.2:modified", "configmaps:1:11:synced expired",
		"configmaps:1:11:gap expired", "u:5.3:modified", "configmaps:1:12:synced expired", "u:13:modified")
}

// TestTypes: what nobody wants is not sent, and what comes after it is told as if
// it had been.
func TestTypes(t *testing.T) {
	s := newScript(t, openMem(t))
	defer s.finish()
	w := configMapsOf(event.Collection{})
	w.Options.Types = []event.Type{event.Modified, event.Deleted}
	s.set([]Wanted{w}, nil)
	c := s.collection("configmaps", nil)
	c.lists("", source.ReasonSnapshot, "10", objectAt("n", "o", "u", "5", "one"))
	c.says(
		source.Signal{Kind: source.Modified, Object: objectAt("n", "o", "u", "11", ""), Resume: "10"},
		source.Signal{Kind: source.Added, Object: objectAt("n", "p", "v", "12", ""), Resume: "11"},
		source.Signal{Kind: source.Deleted, Object: objectAt("n", "p", "v", "13", ""), Resume: "12"},
	)
	s.told("configmaps:1:0:gap snapshot", "configmaps:1:10:synced snapshot", "u:11:modified", "v:12:deleted body")
}

// TestCrashAfterChangesWithoutARecord: what moves the inventory without a record is
// not on the bus. A log that is read back after a crash must not lead behind it: an
// object that counts as told would be forgotten, and its end with it.
func TestCrashAfterChangesWithoutARecord(t *testing.T) {
	s := &script{t: t, store: openMem(t), bus: &bus{}, started: map[string]*collectionScript{}, done: make(chan error, 1), log: true}
	s.run()
	w := configMapsOf(event.Collection{})
	w.Options.Types = []event.Type{event.Modified, event.Deleted}
	s.set([]Wanted{w}, nil)
	c := s.collection("configmaps", nil)
	c.lists("", source.ReasonSnapshot, "10", objectAt("n", "o", "u", "5", ""))
	s.settle()
	s.bus.mu.Lock()
	s.bus.crashed, s.bus.crashAfter = make(chan struct{}), 1
	crashed := s.bus.crashed
	s.bus.mu.Unlock()
	unseen := source.Signal{Kind: source.Added, Object: objectAt("n", "p", "v", "12", ""), Resume: "11"}
	seen := source.Signal{Kind: source.Modified, Object: objectAt("n", "o", "u", "13", ""), Resume: "12"}
	if err := s.lane.do(t.Context(), func(ctx context.Context) error { // in one batch
		for _, signal := range []source.Signal{unseen, seen} {
			if err := s.lane.observe(ctx, c.h.member, signal); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	<-crashed
	s.kill()
	<-s.done
	s.run()
	defer s.finish()
	s.set([]Wanted{w}, nil)
	c = s.collection("configmaps", c)
	for _, signal := range []source.Signal{unseen, seen} { // what the server has from there
		if compareRV(signal.Object.ResourceVersion, c.from.RV) > 0 {
			c.says(signal)
		}
	}
	s.forgetTold()
	c.says(source.Signal{Kind: source.Deleted, Object: objectAt("n", "p", "v", "14", ""), Resume: "13"})
	s.told("v:12:deleted body")
}

// TestSnapshotSkipped: what is there at first is not announced; its next state is
// its announcement, and its end is nobody's business before that (design rule 5).
func TestSnapshotSkipped(t *testing.T) {
	s := newScript(t, openMem(t))
	defer s.finish()
	w := configMapsOf(event.Collection{})
	w.Options.SkipSnapshot = true
	s.set([]Wanted{w}, nil)
	c := s.collection("configmaps", nil)
	one, two, three := objectAt("n", "1", "u1", "5", ""), objectAt("n", "2", "u2", "6", ""), objectAt("n", "3", "u3", "7", "")
	c.lists("", source.ReasonSnapshot, "10", one, two, three)
	c.says(
		source.Signal{Kind: source.Modified, Object: objectAt("n", "1", "u1", "11", ""), Resume: "10"},
		source.Signal{Kind: source.Deleted, Object: objectAt("n", "2", "u2", "12", ""), Resume: "11"},
	)
	c.lists("12", source.ReasonExpired, "20", objectAt("n", "1", "u1", "11", ""), three, objectAt("n", "4", "u4", "15", ""))
	c.lists("20", source.ReasonExpired, "30", objectAt("n", "1", "u1", "11", ""), objectAt("n", "4", "u4", "15", ""))
	s.told("configmaps:1:0:gap snapshot", "configmaps:1:10:synced snapshot", "u1:11:added",
		"configmaps:1:12:gap expired", "u4:15:added", "configmaps:1:20:synced expired",
		"configmaps:1:20:gap expired", "configmaps:1:30:synced expired")
}

// TestVanishedObjectsAreRecalled: after a gap the last bodies come from the
// server's past, where it still has one, and who only left the selection did not
// die.
func TestVanishedObjectsAreRecalled(t *testing.T) {
	s := newScript(t, openMem(t))
	defer s.finish()
	s.set([]Wanted{configMapsOf(event.Collection{LabelSelector: "x"})}, nil)
	c := s.collection("configmaps?labels=x", nil)
	dead, left, old := objectAt("n", "dead", "u1", "5", ""), objectAt("n", "left", "u2", "6", ""), objectAt("n", "same", "u3", "7", "")
	c.lists("", source.ReasonSnapshot, "10", dead, left, old, objectAt("n", "unknown", "u4", "8", ""))
	s.told("configmaps?labels=x:1:0:gap snapshot", "u1:5:added", "u2:6:added", "u3:7:added", "u4:8:added",
		"configmaps?labels=x:1:10:synced snapshot")
	s.forgetTold()
	c.last = fates{alive: map[string]bool{"u2": true}, bodies: map[string]*source.Object{"u1": dead}}
	c.lists("10", source.ReasonExpired, "20", objectAt("n", "same", "u5", "15", ""))
	s.told("configmaps?labels=x:1:10:gap expired", "u1:5:deleted body", "u2:6:deleted left",
		"u4:8:deleted", "u3:7:deleted", "u5:15:added", "configmaps?labels=x:1:20:synced expired")
}

// TestNameChangesHandsWithinAList: an object that a streamed list shows where another one
// was, and whose end it tells before its own, was the other one's end.
func TestNameChangesHandsWithinAList(t *testing.T) {
	old, young := objectAt("n", "o", "old", "5", ""), objectAt("n", "o", "young", "15", "")
	for _, x := range []struct {
		name    string
		perhaps bool // the bus was told of the young one, before a crash
		next    *source.Object
		want    []string
	}{
		{"and nobody is there", false, nil, []string{"old:5:deleted"}},
		{"and a third one is there", false, objectAt("n", "o", "third", "17", ""), []string{"old:5:deleted", "third:17:added"}},
		{"and it was perhaps told", true, nil, []string{"young:15:deleted body", "old:5:deleted"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := newScript(t, openMem(t))
			defer s.finish()
			s.set([]Wanted{configMapsOf(event.Collection{})}, nil)
			c := s.collection("configmaps", nil)
			c.lists("", source.ReasonSnapshot, "10", old)
			s.told("configmaps:1:0:gap snapshot", "old:5:added", "configmaps:1:10:synced snapshot")
			s.forgetTold()
			if err := s.lane.do(t.Context(), func(context.Context) error {
				if x.perhaps {
					s.lane.inv.perhaps[string(c.h.member.entryKey("n", "o"))] = map[string]intent{
						"young": {Entry: checkpoint.Entry{UID: "young", RV: "15", Entry: "15", Told: true, APIVersion: "v1", Kind: "ConfigMap"}},
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			c.says(source.Signal{Kind: source.ListBegun, RV: "10", Reason: source.ReasonExpired},
				source.Signal{Kind: source.Listed, Object: young},
				source.Signal{Kind: source.Deleted, Object: objectAt("n", "o", "young", "16", "")})
			if x.next != nil {
				c.says(source.Signal{Kind: source.Listed, Object: x.next})
			}
			c.says(source.Signal{Kind: source.ListEnded, RV: "20", Resume: "20"})
			s.told(append(append([]string{"configmaps:1:10:gap expired"}, x.want...), "configmaps:1:20:synced expired")...)
		})
	}
}

// TestAnotherHistory: an etcd restored from a backup begins an epoch, and every
// difference is told, with ids of its own (design rule 8).
func TestAnotherHistory(t *testing.T) {
	s := newScript(t, openMem(t))
	defer func() { s.finish() }()
	s.set([]Wanted{configMapsOf(event.Collection{})}, nil)
	c := s.collection("configmaps", nil)
	same := objectAt("n", "same", "u1", "5", "")
	c.lists("", source.ReasonSnapshot, "100", same, objectAt("n", "back", "u2", "90", "new"), objectAt("n", "undone", "u3", "95", ""))
	c.says(source.Signal{Kind: source.ListBegun, RV: "100", Reason: source.ReasonHistory, NewEpoch: true})
	s.told("configmaps:1:0:gap snapshot", "u1:5:added", "u2:90:added", "u3:95:added", "configmaps:1:100:synced snapshot",
		"configmaps:2:100:gap history")
	s.forgetTold()
	s.finish() // in the middle
	s.run()
	s.set([]Wanted{configMapsOf(event.Collection{})}, nil)
	c = s.collection("configmaps", c)
	if want := (event.Position{Epoch: 2, Void: true}); c.from != want {
		t.Fatalf("begins from %+v, want %+v", c.from, want)
	}
	c.lists("", source.ReasonInterrupted, "50", same, objectAt("n", "back", "u2", "40", "old"))
	c.says(source.Signal{Kind: source.Modified, Object: objectAt("n", "same", "u1", "51", ""), Resume: "50"})
	s.told("configmaps:2:0:gap:RUN interrupted", "e2:u2:40:modified", "e2:u3:95:deleted", "configmaps:2:50:synced:RUN interrupted", "e2:u1:51:modified")
}

// TestHistoryWasOvertaken: etcd was restored, and its counter had passed the
// position before anybody looked. The first object that went back tells. What was
// told before it, in the old epoch, consumers may have ignored: it is told again.
func TestHistoryWasOvertaken(t *testing.T) {
	s := newScript(t, openMem(t))
	defer s.finish()
	s.set([]Wanted{configMapsOf(event.Collection{})}, nil)
	c := s.collection("configmaps", nil)
	c.lists("", source.ReasonSnapshot, "100", objectAt("n", "1", "u1", "50", ""), objectAt("n", "2", "u2", "90", ""), objectAt("n", "3", "u3", "95", ""))
	s.told("configmaps:1:0:gap snapshot", "u1:50:added", "u2:90:added", "u3:95:added", "configmaps:1:100:synced snapshot")
	s.forgetTold()
	back := []*source.Object{objectAt("n", "1", "u1", "110", ""), objectAt("n", "2", "u2", "60", ""), objectAt("n", "4", "u4", "70", "")}
	s.listed, s.rv = back, "120"
	c.lists("100", source.ReasonExpired, "120", back...)
	s.awaitResync()
	run := s.runOf("synced")
	s.told("configmaps:1:100:gap expired", "u1:110:modified", "configmaps:2:100:gap history",
		"e2:u2:60:modified", "e2:u4:70:added", "e2:u3:95:deleted", "configmaps:2:120:gap:"+run+" resync",
		"e2:u1:110:present:"+run, "e2:u2:60:present:"+run, "e2:u4:70:present:"+run, "configmaps:2:120:synced:"+run+" resync")
}

// TestResourceIsGone: its objects are deleted with it, it stays gone over a
// restart, and what comes back is a snapshot.
func TestResourceIsGone(t *testing.T) {
	s := newScript(t, openMem(t))
	defer func() { s.finish() }()
	want := []Wanted{configMapsOf(event.Collection{})}
	unserved := []Wanted{want[0]}
	unserved[0].Target.Resource.Version = ""
	s.set(want, nil)
	c := s.collection("configmaps", nil)
	c.lists("", source.ReasonSnapshot, "10", objectAt("n", "o", "u", "5", ""))
	c.says(source.Signal{Kind: source.ListBegun, RV: "10", Reason: source.ReasonGone}, source.Signal{Kind: source.ListEnded})
	c.end <- source.ErrGone
	s.told("configmaps:1:0:gap snapshot", "u:5:added", "configmaps:1:10:synced snapshot",
		"configmaps:1:10:gap:gone gone", "u:5:deleted", "configmaps:1:10:synced:gone gone")
	<-s.lane.poke // somebody looks whether it is back
	s.forgetTold()
	s.set(unserved, nil)
	s.finish()
	s.run()
	s.set(unserved, nil)
	if got := s.lane.Status().Collections[0].State; got != source.Gone {
		t.Errorf("after a restart it is %s", got)
	}
	s.set(want, nil)
	c = s.collection("configmaps", c)
	if want := (event.Position{RV: "10", Void: true}); c.from != want {
		t.Errorf("begins from %+v, want %+v", c.from, want)
	}
	c.lists("10", source.ReasonInterrupted, "20", objectAt("n", "o", "v", "15", ""))
	s.told("configmaps:1:10:gap:RUN snapshot", "v:15:added", "configmaps:1:20:synced:RUN snapshot")
}

// TestOtherCluster ends the lane: nothing may be written of a cluster that the
// checkpoint does not belong to.
func TestOtherCluster(t *testing.T) {
	s := newScript(t, openMem(t))
	s.set([]Wanted{configMapsOf(event.Collection{})}, nil)
	c := s.collection("configmaps", nil)
	c.end <- source.ErrOtherCluster
	if err := <-s.done; !errors.Is(err, source.ErrOtherCluster) {
		t.Errorf("the lane ended with %v", err)
	}
}

// TestResync announces the present state again beside the watch: what the watch
// has told in the meantime is not told back (design rule 4).
func TestResync(t *testing.T) {
	s := newScript(t, openMem(t))
	defer func() { s.finish() }()
	want := []Wanted{configMapsOf(event.Collection{})}
	s.set(want, nil)
	c := s.collection("configmaps", nil)
	one, two, three := objectAt("n", "1", "u1", "5", ""), objectAt("n", "2", "u2", "6", ""), objectAt("n", "3", "u3", "7", "")
	c.lists("", source.ReasonSnapshot, "10", one, two, three)
	c.says(
		source.Signal{Kind: source.Modified, Object: objectAt("n", "2", "u2", "11", ""), Resume: "10"},
		source.Signal{Kind: source.Deleted, Object: objectAt("n", "3", "u3", "12", ""), Resume: "11"},
	)
	s.told("configmaps:1:0:gap snapshot", "u1:5:added", "u2:6:added", "u3:7:added", "configmaps:1:10:synced snapshot",
		"u2:11:modified", "u3:7:deleted body")
	s.forgetTold()
	s.listed, s.rv = []*source.Object{one, two, three}, "10" // the list is older than what the watch told
	s.watching(c)
	ids, err := s.lane.Resync(t.Context(), "configmaps")
	if err != nil || !slices.Equal(ids, []string{"configmaps"}) {
		t.Fatalf("got %v, %v", ids, err)
	}
	s.awaitResync()
	run := s.runOf("gap")
	s.told("configmaps:1:11:gap:"+run+" resync", "u1:5:present:"+run, "configmaps:1:11:synced:"+run+" resync")
}

// TestResyncAwaitsTheWatch: its end comes when the watch has told what the list was
// ahead with, and counts what the bus then holds.
func TestResyncAwaitsTheWatch(t *testing.T) {
	s := newScript(t, openMem(t))
	defer func() { s.finish() }()
	s.set([]Wanted{optioned(CollectionOptions{Filter: `object.data.x != "out"`})}, nil)
	c := s.collection("configmaps", nil)
	one, two, out := objectAt("n", "1", "u1", "5", ""), objectAt("n", "2", "u2", "6", ""), objectAt("n", "3", "u3", "7", "out")
	c.lists("", source.ReasonSnapshot, "10", one, two, out)
	s.told("configmaps:1:0:gap snapshot", "u1:5:added", "u2:6:added", "configmaps:1:10:synced snapshot")
	s.forgetTold()
	s.listed, s.rv = []*source.Object{one, objectAt("n", "2", "u2", "15", ""), out, objectAt("n", "4", "u4", "16", "")}, "20"
	s.watching(c)
	if _, err := s.lane.Resync(t.Context(), "configmaps"); err != nil {
		t.Fatal(err)
	}
	s.await("the first object", func(id string) bool { return strings.HasPrefix(id, "u1:5:present:") })
	c.says(
		source.Signal{Kind: source.Added, Object: objectAt("n", "6", "u6", "13", ""), Resume: "10"},
		source.Signal{Kind: source.Deleted, Object: objectAt("n", "1", "u1", "14", ""), Resume: "13"},
		source.Signal{Kind: source.Modified, Object: objectAt("n", "2", "u2", "15", ""), Resume: "14"},
		source.Signal{Kind: source.Added, Object: objectAt("n", "4", "u4", "16", ""), Resume: "15"},
	)
	s.awaitResync()
	run := s.runOf("gap")
	s.told("configmaps:1:10:gap:"+run+" resync", "u1:5:present:"+run,
		"u6:13:added", "u1:5:deleted body", "u2:15:modified", "u4:16:added", "configmaps:1:15:synced:"+run+" resync")
	want := event.Counts{Listed: 4, Present: 1, Modified: 2, Filtered: 1, Added: 1, Deleted: 1}
	if got := *s.bus.records[len(s.bus.records)-1].Event.Report.Counts; got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

// TestResyncTellsWhatIsIgnored: in a resync everything is told that is there, also what changed in it in a way that does not
// matter, whether the list or the watch is ahead, and once. A frame that comes again is not taken for what the list waits for.
func TestResyncTellsWhatIsIgnored(t *testing.T) {
	s := newScript(t, openMem(t))
	defer func() { s.finish() }()
	s.set([]Wanted{optioned(CollectionOptions{Ignore: []string{"data.x"}})}, nil)
	c := s.collection("configmaps", nil)
	at := func(n, rv, x string) *source.Object { return objectAt("n", n, "u"+n, rv, x) }
	c.lists("", source.ReasonSnapshot, "10", at("1", "5", ""), at("2", "6", ""), at("3", "7", ""), at("4", "8", ""))
	s.told("configmaps:1:0:gap snapshot", "u1:5:added", "u2:6:added", "u3:7:added", "u4:8:added", "configmaps:1:10:synced snapshot")
	s.forgetTold()
	s.rv = "20"
	s.listed = []*source.Object{at("1", "5", ""), at("2", "15", "late"), at("3", "7", ""), at("4", "14", "told")}
	s.hold = make(chan struct{})
	s.watching(c)
	if _, err := s.lane.Resync(t.Context(), "configmaps"); err != nil {
		t.Fatal(err)
	}
	s.await("the resync", func(id string) bool { return strings.Contains(id, ":gap:") })
	c.says(modified(at("3", "12", "early"), "10"), modified(at("3", "13", "again"), "12"), modified(at("4", "14", "told"), "13"))
	s.handled()
	close(s.hold)
	s.await("the first object", func(id string) bool { return strings.HasPrefix(id, "u1:5:present:") })
	c.says(modified(at("2", "6", ""), "13"), modified(at("2", "15", "late"), "14"), modified(at("1", "16", "later"), "15"), modified(at("2", "21", "later"), "20"))
	s.awaitResync()
	s.told("configmaps:1:10:gap:RUN resync", "u3:12:present:RUN", "u4:14:present:RUN", "u1:5:present:RUN", "u2:15:present:RUN", "configmaps:1:14:synced:RUN resync")
	if got, want := *s.bus.records[len(s.bus.records)-1].Event.Report.Counts, (event.Counts{Listed: 4, Present: 4}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

// watching makes a collection count as being in step with the server.
func (s *script) watching(c *collectionScript) {
	s.lane.stateChanged(c.h.member.id, c.h.member.resource, source.State{Phase: source.Watching, Since: time.Now()})
}

func (s *script) awaitResync() {
	s.t.Helper()
	s.await("a resync's end", func(id string) bool { return strings.Contains(id, ":synced:") })
}

func (s *script) await(what string, is func(id string) bool) {
	s.t.Helper()
	for deadline := time.Now().Add(endsHang); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		s.bus.mu.Lock()
		found := slices.ContainsFunc(s.bus.records, func(r event.Record) bool { return is(r.ID) })
		s.bus.mu.Unlock()
		if found {
			return
		}
	}
	s.t.Fatalf("%s does not come", what)
}

// runOf is the run of the first collection event of a type.
func (s *script) runOf(typ string) string {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	for _, r := range s.bus.records {
		if r.Event.Type.String() == typ {
			return r.Event.Run
		}
	}
	return ""
}

// TestResyncSurvivesARestart: one that was begun is brought to its end. What it had told
// by then is told again, and not under the same ids.
func TestResyncSurvivesARestart(t *testing.T) {
	s := newScript(t, openMem(t))
	defer func() { s.finish() }()
	want := []Wanted{configMapsOf(event.Collection{})}
	s.set(want, nil)
	c := s.collection("configmaps", nil)
	one := objectAt("n", "1", "u1", "5", "")
	c.lists("", source.ReasonSnapshot, "10", one)
	s.told("configmaps:1:0:gap snapshot", "u1:5:added", "configmaps:1:10:synced snapshot")
	for _, middle := range []bool{false, true} {
		if _, err := s.lane.Resync(t.Context(), "configmaps"); err != nil { // not watching: it waits
			t.Fatal(err)
		}
		if middle {
			s.listed, s.rv = []*source.Object{one, objectAt("n", "2", "u2", "15", "")}, "20" // the watch is late with the second
			s.watching(c)
			s.await("what is present", func(id string) bool { return strings.HasPrefix(id, "u1:5:present:") })
			s.handled()
		}
		s.finish()
		before := s.ids()
		s.forgetTold()
		s.listed, s.rv = []*source.Object{one}, "10"
		s.run()
		s.set(want, nil)
		c = s.collection("configmaps", c)
		s.watching(c)
		s.awaitResync()
		s.told("configmaps:1:10:gap:RUN resync", "u1:5:present:RUN", "configmaps:1:10:synced:RUN resync")
		for _, id := range s.ids() {
			if slices.Contains(before, id) {
				t.Errorf("%s comes twice", id)
			}
		}
		s.forgetTold()
	}
}

// TestResyncWaitsForAnEnd: what the list lacks exists until the watch has told its end.
func TestResyncWaitsForAnEnd(t *testing.T) {
	s := newScript(t, openMem(t))
	defer s.finish()
	s.set([]Wanted{configMapsOf(event.Collection{})}, nil)
	c := s.collection("configmaps", nil)
	one, two := objectAt("n", "1", "u1", "5", ""), objectAt("n", "2", "u2", "6", "")
	c.lists("", source.ReasonSnapshot, "10", one, two)
	s.told("configmaps:1:0:gap snapshot", "u1:5:added", "u2:6:added", "configmaps:1:10:synced snapshot")
	s.forgetTold()
	s.listed, s.rv = []*source.Object{one}, "20"
	s.watching(c)
	if _, err := s.lane.Resync(t.Context(), "configmaps"); err != nil {
		t.Fatal(err)
	}
	s.await("what is present", func(id string) bool { return strings.HasPrefix(id, "u1:5:present:") })
	s.surveyed(c)
	c.says(source.Signal{Kind: source.Deleted, Object: objectAt("n", "2", "u2", "15", ""), Resume: "10"})
	s.told("configmaps:1:10:gap:RUN resync", "u1:5:present:RUN", "u2:6:deleted body", "configmaps:1:10:synced:RUN resync")
}

// ids are those of what is told.
func (s *script) ids() (ids []string) {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	for _, r := range s.bus.records {
		ids = append(ids, r.ID)
	}
	return ids
}

// TestWatchedAgain: whoever keeps a copy drops it when a collection that was taken out of
// the configuration is back, since nobody tells what ended meanwhile. So everything is
// announced, also what has not changed, and not under the id that a bus or a consumer
// knows, and leaves out.
func TestWatchedAgain(t *testing.T) {
	s := newScript(t, openMem(t))
	defer func() { s.finish() }()
	want := []Wanted{configMapsOf(event.Collection{})}
	s.set(want, nil)
	c := s.collection("configmaps", nil)
	one, two := objectAt("n", "1", "u1", "5", ""), objectAt("n", "2", "u2", "6", "")
	c.lists("", source.ReasonSnapshot, "10", one, two)
	s.told("configmaps:1:0:gap snapshot", "u1:5:added", "u2:6:added", "configmaps:1:10:synced snapshot")
	for life, id := range []string{"u1:5.2", "u1:5.3"} {
		s.set(nil, map[string]Fate{"configmaps": Removed})
		s.await("the end", func(id string) bool {
			return id == []string{"configmaps:1:10:closed", "configmaps:1:20:closed:2"}[life]
		})
		s.forgetTold()
		if life > 0 {
			s.finish()
			s.run()
		}
		s.set(want, nil)
		c = s.collection("configmaps", c)
		c.lists("", source.ReasonSnapshot, "20", one)
		s.told("configmaps:1:0:gap:RUN snapshot", id+":added", "configmaps:1:20:synced:RUN snapshot")
	}
	c.says(source.Signal{Kind: source.Deleted, Object: objectAt("n", "1", "u1", "21", ""), Resume: "20"})
	s.await("the deletion", func(id string) bool { return id == "u1:5.3:deleted" })
}

// TestVerifyFindsDrift: what the watch never told is found, counted and repaired;
// what the watch is only late with is not drift.
func TestVerifyFindsDrift(t *testing.T) {
	s := newScript(t, openMem(t))
	defer s.finish()
	w := configMapsOf(event.Collection{})
	s.set([]Wanted{w}, nil)
	c := s.collection("configmaps", nil)
	one, two := objectAt("n", "1", "u1", "5", ""), objectAt("n", "2", "u2", "6", "")
	c.lists("", source.ReasonSnapshot, "10", one, two)
	s.told("configmaps:1:0:gap snapshot", "u1:5:added", "u2:6:added", "configmaps:1:10:synced snapshot")
	s.forgetTold()
	// The watch has missed the end of 1 and is late with a change of 2 and with 3.
	late, three := objectAt("n", "2", "u2", "15", ""), objectAt("n", "3", "u3", "16", "")
	s.listed, s.rv = []*source.Object{late, three}, "20"
	s.watching(c)
	w.Options.VerifyEvery = time.Millisecond
	s.set([]Wanted{w}, nil)
	s.surveyed(c)
	w.Options.VerifyEvery = 0
	s.set([]Wanted{w}, nil)
	c.says(
		source.Signal{Kind: source.Modified, Object: late, Resume: "10"},
		source.Signal{Kind: source.Added, Object: three, Resume: "15"},
		source.Signal{Kind: source.Progress, RV: "25", Resume: "16"},
		source.Signal{Kind: source.Progress, RV: "26", Resume: "25"},
	)
	again := s.collection("configmaps", c)
	if want := (event.Position{RV: "25", Void: true}); again.from != want {
		t.Errorf("repairs from %+v, want %+v", again.from, want)
	}
	again.lists("25", source.ReasonInterrupted, "30", late, three)
	s.told("u2:15:modified", "u3:16:added", "configmaps:1:25:gap:RUN drift", "u1:5:deleted", "configmaps:1:30:synced:RUN drift")
	if n := testutil.ToFloat64(s.lane.metrics.drift.WithLabelValues("s", "configmaps")); n != 1 {
		t.Errorf("drift of %v objects, want 1", n)
	}
}

// surveyed waits until a verification's list is through.
func (s *script) surveyed(c *collectionScript) {
	s.t.Helper()
	for deadline := time.Now().Add(endsHang); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		through := false
		if err := s.lane.do(s.t.Context(), func(context.Context) error {
			through = c.h.member.survey != nil && c.h.member.survey.rv != ""
			return nil
		}); err != nil {
			s.t.Fatal(err)
		}
		if through {
			return
		}
	}
	s.t.Fatal("no verification")
}

// TestSyncedIsRepeated: silence can be trusted when the bridge says that nothing
// happened.
func TestSyncedIsRepeated(t *testing.T) {
	s := newScript(t, openMem(t))
	defer s.finish()
	w := configMapsOf(event.Collection{})
	w.Options.SyncedEvery = time.Second
	s.set([]Wanted{w}, nil)
	c := s.collection("configmaps", nil)
	c.lists("", source.ReasonSnapshot, "10")
	s.watching(c)
	s.await("synced", func(id string) bool { return strings.HasPrefix(id, "configmaps:1:10:synced:") })
	s.bus.mu.Lock()
	last := s.bus.records[len(s.bus.records)-1].Event
	s.bus.mu.Unlock()
	if last.Report.Reason != "periodic" || last.Report.To != "10" {
		t.Errorf("it says %+v", last.Report)
	}
}

// TestHaltedCollectionFreesItsMemory: what a collection and its list remember goes
// when it is moved or closed, as do its goroutines, not when the next list begins.
func TestHaltedCollectionFreesItsMemory(t *testing.T) {
	s := newScript(t, openMem(t))
	defer s.finish()
	w := configMapsOf(event.Collection{})
	s.set([]Wanted{w}, nil)
	c := s.collection("configmaps", nil)
	listing := func(c *collectionScript) (list weak.Pointer[keySet], m weak.Pointer[member]) {
		c.says(source.Signal{Kind: source.ListBegun, Reason: source.ReasonSnapshot},
			source.Signal{Kind: source.Listed, Object: objectAt("n", "o", "u", "5", "")})
		s.settle()
		return weak.Make(c.h.member.list.seen), weak.Make(c.h.member)
	}
	list, _ := listing(c)
	moved := w
	moved.Target.Resource.Version = "v2"
	s.set([]Wanted{moved}, nil)
	c = s.collection("configmaps", c)
	if runtime.GC(); list.Value() != nil {
		t.Error("the list of a collection that was moved is kept")
	}
	list, m := listing(c)
	done := c.h.member.done
	s.set(nil, map[string]Fate{"configmaps": Unselected})
	<-done // its goroutine has ended
	s.settle()
	s.mu.Lock()
	s.started = nil
	s.mu.Unlock()
	s.forgetTold() // events refer to their collection
	if runtime.GC(); list.Value() != nil || m.Value() != nil {
		t.Error("a collection that was closed is kept")
	}
}

// settle waits until the lane has handled what it was told, and committed it.
func (s *script) settle() {
	s.t.Helper()
	for idle := false; !idle; time.Sleep(time.Millisecond) {
		if err := s.lane.do(s.t.Context(), func(context.Context) error {
			idle = len(s.lane.in) == 0 && !s.lane.writing && s.lane.idle()
			return nil
		}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// strict is a bus that refuses routes.
type strict struct {
	*bus
	refused map[string]bool
	takes   bool // what goes elsewhere, also behind what it refuses
}

func (b *strict) Write(ctx context.Context, batch *event.Batch) ([]byte, error) {
	b.mu.Lock()
	i := slices.IndexFunc(batch.Records, func(r event.Record) bool { return b.refused[r.Route] })
	b.mu.Unlock()
	if i < 0 {
		return b.bus.Write(ctx, batch)
	}
	if b.takes {
		behind := slices.DeleteFunc(slices.Clone(batch.Records[i:]), func(r event.Record) bool { return b.refused[r.Route] })
		if _, err := b.bus.Write(ctx, &event.Batch{Records: slices.Concat(batch.Records[:i], behind)}); err != nil {
			return nil, err
		}
	}
	return nil, &sink.RouteError{Index: i, Route: batch.Records[i].Route, Err: errors.New("the test says so")}
}

// heals has the bus take a route again, and the lane try at once what it suspended.
func (s *script) heals(b *strict, route string) {
	s.t.Helper()
	b.mu.Lock()
	b.refused[route] = false
	b.mu.Unlock()
	s.forgetTold()
	if err := s.lane.do(s.t.Context(), func(context.Context) error {
		return s.lane.resume(s.t.Context(), time.Now().Add(suspendMost))
	}); err != nil {
		s.t.Fatal(err)
	}
}

// TestOneBadRouteIsNotTheLane: a forbidden topic suspends the collections that use
// it; the others flow on, and nothing of the suspended one is lost or told out of
// order when the topic heals (design rule 11).
func TestOneBadRouteIsNotTheLane(t *testing.T) {
	store, b := openMem(t), &bus{}
	refuses := &strict{bus: b, refused: map[string]bool{}}
	s := &script{t: t, store: store, bus: b, started: map[string]*collectionScript{}, done: make(chan error, 1), sink: refuses}
	s.run()
	defer s.finish()
	topic, err := shape.ParseTemplate("{resource}", shape.TopicNames)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.lane.do(t.Context(), func(context.Context) error { s.lane.shape.Topic = topic; return nil }); err != nil {
		t.Fatal(err)
	}
	bad := configMapsOf(event.Collection{})
	good := Wanted{Target: source.Target{Collection: event.Collection{Resource: "pods"}, Resource: source.Resource{Version: "v1", Name: "pods", Kind: "Pod"}}}
	s.set([]Wanted{bad, good}, nil)
	c, g := s.collection("configmaps", nil), s.collection("pods", nil)
	c.lists("", source.ReasonSnapshot, "10", objectAt("n", "a", "u1", "5", ""))
	s.told("configmaps:1:0:gap snapshot", "u1:5:added", "configmaps:1:10:synced snapshot")
	s.settle()
	s.forgetTold()
	b.mu.Lock()
	refuses.refused["configmaps"] = true
	b.mu.Unlock()
	c.says(source.Signal{Kind: source.Added, Object: objectAt("n", "b", "u2", "11", ""), Resume: "10"})
	_ = c.h.Handle(c.ctx, source.Signal{Kind: source.Deleted, Object: objectAt("n", "a", "u1", "12", ""), Resume: "11"}) // unless it is suspended by now
	g.lists("", source.ReasonSnapshot, "13", objectAt("n", "p", "u3", "9", ""))
	s.told("pods:1:0:gap snapshot", "u3:9:added", "pods:1:13:synced snapshot")
	s.settle()
	if at, err := store.Get(checkpoint.PositionKey("configmaps")); err != nil || string(at) != "at 0 10" {
		t.Errorf("what was refused moved the position to %q, %v", at, err)
	}
	for _, status := range s.lane.Status().Collections {
		if waits := status.State == source.Waiting; waits != (status.Collection == "configmaps") {
			t.Errorf("%s is %s: %s", status.Collection, status.State, status.Error)
		}
	}
	s.heals(refuses, "configmaps")
	c = s.collection("configmaps", c)
	if want := (event.Position{RV: "10"}); c.from != want {
		t.Errorf("it begins again from %+v, want %+v", c.from, want)
	}
	c.says(source.Signal{Kind: source.Added, Object: objectAt("n", "b", "u2", "11", ""), Resume: "10"},
		source.Signal{Kind: source.Deleted, Object: objectAt("n", "a", "u1", "12", ""), Resume: "11"})
	s.told("u2:11:added", "u1:5:deleted body")
	s.settle()
	if n := leftIntents(t, store); n > 0 {
		t.Errorf("%d intents were left behind", n)
	}
}

// TestTakenBehindARefusal: a collection whose route for one namespace is refused is
// suspended with everything behind that, though the bus may have taken it. What goes
// meanwhile is told as deleted.
func TestTakenBehindARefusal(t *testing.T) {
	synctest.Test(t, takenBehindARefusal) // how fast the machine is does not decide what is in one batch
}

func takenBehindARefusal(t *testing.T) {
	store, b := openMem(t), &bus{}
	refuses := &strict{bus: b, refused: map[string]bool{"x.bad": true}, takes: true}
	s := &script{t: t, store: store, bus: b, started: map[string]*collectionScript{}, done: make(chan error, 1), sink: refuses}
	s.run()
	defer s.finish()
	subject, err := shape.ParseTemplate("x.{namespace}", shape.SubjectNames)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.lane.do(t.Context(), func(context.Context) error {
		s.lane.shape.Subject, s.lane.linger = subject, 50*time.Millisecond // all in one batch
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	s.set([]Wanted{configMapsOf(event.Collection{})}, nil)
	c := s.collection("configmaps", nil)
	c.lists("", source.ReasonSnapshot, "10", objectAt("bad", "a", "u1", "5", ""), objectAt("good", "b", "u2", "6", ""))
	s.await("the one behind", func(id string) bool { return id == "u2:6:added" })
	s.settle()
	if n := leftIntents(t, store); n != 1 {
		t.Errorf("%d objects were perhaps told, want the one in the good namespace", n)
	}
	s.heals(refuses, "x.bad")
	c = s.collection("configmaps", c)
	c.lists("", source.ReasonInterrupted, "20", objectAt("bad", "a", "u1", "5", ""))
	s.await("its end", func(id string) bool { return strings.HasPrefix(id, "u2:") && strings.Contains(id, ":deleted") })
	s.await("the other", func(id string) bool { return id == "u1:5:added" })
	s.settle()
	if n := leftIntents(t, store); n > 0 {
		t.Errorf("%d intents were left behind", n)
	}
}

// TestResetIsBrokenOff: each time that the bridge is killed before a reset's list has
// ended, the gap is told again, and not under the same id; only the first one has
// consumers drop what they have, and nothing else comes twice.
func TestResetIsBrokenOff(t *testing.T) {
	s := newScript(t, openMem(t))
	s.log = true
	defer func() { s.finish() }()
	want := []Wanted{configMapsOf(event.Collection{})}
	life := func(last *collectionScript) *collectionScript {
		s.set(want, nil)
		return s.collection("configmaps", last)
	}
	c := life(nil)
	one, two := objectAt("n", "1", "u1", "5", ""), objectAt("n", "2", "u2", "6", "")
	c.lists("", source.ReasonSnapshot, "10", one)
	s.told("configmaps:1:0:gap snapshot", "u1:5:added", "configmaps:1:10:synced snapshot")
	s.finish()
	s.forgetTold()
	if err := s.store.Commit(t.Context(), []event.KV{{Key: checkpoint.MarkKey()}, {Key: checkpoint.ResetKey(), Value: checkpoint.ResetRequested()}}); err != nil {
		t.Fatal(err)
	}
	s.run()
	c = life(c)
	c.says(source.Signal{Kind: source.ListBegun, Reason: source.ReasonSnapshot}, source.Signal{Kind: source.Listed, Object: one})
	s.told("configmaps:1:0:gap:RUN reset", "u1:5:present:RUN")
	reset := s.runOf("gap")
	for range 2 {
		s.finish()
		s.run()
		c = life(c)
		c.says(source.Signal{Kind: source.ListBegun, Reason: source.ReasonInterrupted})
		s.handled()
	}
	c.says(source.Signal{Kind: source.Listed, Object: one}, source.Signal{Kind: source.Listed, Object: two}, source.Signal{Kind: source.ListEnded, RV: "20", Resume: "20"})
	s.await("the end", func(id string) bool { return strings.Contains(id, ":synced") })
	ids, gaps := map[string]bool{}, 0
	for _, r := range s.bus.records {
		if ids[r.ID] {
			t.Errorf("%s comes twice", r.ID)
		}
		ids[r.ID] = true
		if r.Event.Type == event.Gap {
			if gaps++; r.Event.Report.Reset != (gaps == 1) {
				t.Errorf("gap %d has reset: %t", gaps, r.Event.Report.Reset)
			}
		}
	}
	if gaps != 3 || len(ids) != 6 || !ids["u2:6:present:"+reset] {
		t.Errorf("told %s", dump(s.bus.records))
	}
}
