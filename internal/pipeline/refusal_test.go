package pipeline

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

const deadTopic = "dead"

func template(t rapidOrT, text string) *shape.Template {
	parsed, err := shape.ParseTemplate(text, shape.TopicNames)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return parsed
}

// newPolicyLane is a lane with a topic for events, one for dead letters, and a
// policy.
func newPolicyLane(t rapidOrT, s sink.Sink, store checkpoint.Store, policy Oversize) *Lane {
	lane := newTestLane(s, store)
	lane.shape.Oversize, lane.shape.Topic, lane.shape.DeadLetters = policy, template(t, "{resource}"), template(t, deadTopic)
	return lane
}

// split divides what is on the bus into events and dead letters.
func split(records []event.Record) (told, dead []event.Record) {
	for _, r := range records {
		if r.Route == deadTopic {
			dead = append(dead, r)
		} else {
			told = append(told, r)
		}
	}
	return told, dead
}

// tooLarge decides which versions of objects do not fit the topic; half of them fit
// the dead letters.
func tooLarge(rv string) bool {
	n, _ := strconv.Atoi(rv)
	return n%3 == 0
}

func limitOf(r *event.Record) int {
	ev := r.Event
	n, _ := strconv.Atoi(ev.ResourceVersion)
	switch cut := ev.Object == nil || ev.Truncated != nil; {
	case ev.Type.OfCollection(), cut, !tooLarge(ev.ResourceVersion), r.Route == deadTopic && n%2 == 0:
		return 1 << 20
	default:
		return len(r.Value) - 1
	}
}

// TestNothingButWhatDoesNotFitIsMissing: with dead letters, and a bridge that is
// killed again and again, consumers of the events proper must hold every object
// whose present version fits, no object that is gone, and, where delivery is
// exactly once, never hear of a change or an end of an object that was not
// announced to them. What does not fit must be among the dead letters; no
// deletion may be there.
func TestNothingButWhatDoesNotFitIsMissing(t *testing.T) {
	for _, kind := range []string{"plain", "log", "transactional"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			checkInBubble(t, func(t *rapid.T) {
				c, b := newCluster(), &bus{limit: limitOf}
				store, err := file.OpenMem(identity)
				if err != nil {
					t.Fatalf("open: %v", err)
				}
				defer func() {
					if err := store.Close(); err != nil {
						t.Fatalf("close: %v", err)
					}
				}()
				lives := rapid.IntRange(1, 4).Draw(t, "lives")
				for i := range lives {
					for range rapid.IntRange(0, 16).Draw(t, "changes") {
						mutate(t, c)
					}
					switch rapid.IntRange(0, 2).Draw(t, "history") {
					case 0:
						c.compact()
					case 1:
						c.otherReplica()
					}
					b.crashed, b.crashAfter = make(chan struct{}), 0
					if i < lives-1 {
						b.crashAfter = rapid.IntRange(1, 4).Draw(t, "crash after")
					}
					live := rapid.IntRange(0, 12).Draw(t, "live changes")
					drawPaces(t, c, b)
					var s sink.Sink = b
					switch kind {
					case "log":
						s = logBus{b}
					case "transactional":
						s = atomicBus{b, store}
					}
					runLife(t, c, newPolicyLane(t, s, store, ToDeadLetters), b.crashed, func() bool {
						if live > 0 {
							live--
							mutate(t, c)
							return false
						}
						b.mu.Lock()
						same := c.sameButDead(t, b.records)
						b.mu.Unlock()
						// What a crash left in doubt is settled by the end of the next list. The
						// bus may have everything before that: then the lane stops in the list.
						return same && (i < lives-1 || leftIntents(t, store) == 0)
					})
				}
				told, dead := split(b.records)
				// At least once, a crash may leave open which event announced an object:
				// one version then comes under two ids.
				if v := consume(t, told); v.older || !v.inOrder && kind != "plain" {
					t.Fatalf("an object went back in time:\n%s", dump(told))
				}
				for _, r := range dead {
					if r.Event.Type == event.Deleted || r.Event.Type.OfCollection() || !tooLarge(r.Event.ResourceVersion) {
						t.Fatalf("%s is a dead letter", r.ID)
					}
				}
				if kind != "plain" || lives == 1 {
					wantAnnounced(t, told)
				}
				if left := leftIntents(t, store); left > 0 {
					t.Fatalf("%d intents were left behind:\n%s", left, dump(b.records))
				}
			})
		})
	}
}

// sameButDead reports whether consumers hold what the cluster does, but for the
// versions that do not fit, which are among the dead letters.
func (c *cluster) sameButDead(t rapidOrT, records []event.Record) bool {
	told, dead := split(records)
	v := consume(t, told)
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid, name := range v.alive {
		if c.alive[name].uid != uid {
			return false
		}
	}
	for name, ch := range c.alive {
		rv := strconv.Itoa(ch.rv)
		if !tooLarge(rv) {
			if v.alive[ch.uid] != name || v.last[ch.uid] != ch.rv {
				return false
			}
			continue
		}
		found := false
		for _, r := range dead {
			found = found || r.Event.UID == ch.uid && r.Event.ResourceVersion == rv
		}
		if !found {
			return false
		}
	}
	return v.synced
}

// wantAnnounced wants every object to be announced before it is changed or ends,
// once, and that its end has the id that follows from its announcement.
func wantAnnounced(t rapidOrT, told []event.Record) {
	entry := map[string]string{}
	for _, r := range told {
		ev := r.Event
		at, known := entry[ev.UID]
		switch ev.Type {
		case event.Added:
			if known {
				t.Fatalf("%s: it was announced already:\n%s", r.ID, dump(told))
			}
			entry[ev.UID] = event.Revision(ev.ResourceVersion, ev.Again)
		case event.Modified:
			if !known {
				t.Fatalf("%s: it was not announced:\n%s", r.ID, dump(told))
			}
		case event.Deleted:
			if !known || r.ID != ev.UID+":"+at+":deleted" {
				t.Fatalf("%s: it was announced at %q:\n%s", r.ID, at, dump(told))
			}
			delete(entry, ev.UID)
		}
	}
}

// waiting is a bus that holds each write until it is released, so that a test knows
// what stands in one batch and what in the next. Once it is free it holds none.
type waiting struct {
	bus
	begun, release, free chan struct{}
	answer               func(*event.Batch) error // nil: it takes everything
}

func (w *waiting) Write(ctx context.Context, b *event.Batch) ([]byte, error) {
	select {
	case w.begun <- struct{}{}:
		select {
		case <-w.release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case <-w.free:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if w.answer != nil {
		if err := w.answer(b); err != nil {
			return nil, err
		}
	}
	return w.bus.Write(ctx, b)
}

// TestEventsBehindADeadLetter: they were enqueued, in its batch or in the next
// one, as if the object had been announced.
func TestEventsBehindADeadLetter(t *testing.T) {
	large := strings.Repeat("x", 3000)
	at := func(kind source.SignalKind, uid, rv, data string) source.Signal {
		return source.Signal{Kind: kind, Object: objectAt("n", "a", uid, rv, data), Resume: rv}
	}
	const first, synced = "configmaps:1:0:gap", "configmaps:1:10:synced"
	for name, c := range map[string]struct {
		behind []source.Signal
		want   []string
	}{
		"a change announces it": {
			[]source.Signal{at(source.Modified, "u", "12", ""), at(source.Modified, "u", "13", ""), at(source.Deleted, "u", "14", "")},
			[]string{"dead u:11:added", "u:12:added", "u:13:modified", "u:12:deleted"},
		},
		"the change is too large, too": {
			[]source.Signal{at(source.Modified, "u", "12", large), at(source.Modified, "u", "13", ""), at(source.Modified, "u", "14", large), at(source.Deleted, "u", "15", large)},
			[]string{"dead u:11:added", "dead u:12:added", "u:13:added", "dead u:14:modified", "u:13:deleted"},
		},
		"its end is nothing": {
			[]source.Signal{at(source.Modified, "u", "12", large), at(source.Deleted, "u", "13", ""), at(source.Added, "u2", "14", "")},
			[]string{"dead u:11:added", "dead u:12:added", "u2:14:added"},
		},
	} {
		for _, next := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, next batch %t", name, next), func(t *testing.T) {
				w := &waiting{begun: make(chan struct{}), release: make(chan struct{}), free: make(chan struct{})}
				w.limit = func(r *event.Record) int {
					if r.Route == deadTopic {
						return 1 << 20
					}
					return 2000
				}
				s := &script{t: t, store: openMem(t), bus: &w.bus, sink: w, started: map[string]*collectionScript{}, done: make(chan error, 1), policy: ToDeadLetters}
				s.run()
				s.set(wantConfigMaps, nil)
				in := s.collection("configmaps", nil)
				in.says(source.Signal{Kind: source.ListBegun, Reason: source.ReasonSnapshot})
				<-w.begun // the gap; what follows is another batch
				in.says(source.Signal{Kind: source.ListEnded, RV: "10", Resume: "10"}, at(source.Added, "u", "11", large))
				if next {
					s.handled()
					w.release <- struct{}{}
					<-w.begun
				}
				in.says(c.behind...)
				s.handled()
				close(w.free)
				w.release <- struct{}{}
				s.finish()
				var got []string
				for _, r := range w.records {
					id := r.ID
					if r.Route == deadTopic {
						id = "dead " + id
					}
					got = append(got, id)
				}
				if diff := cmp.Diff(append([]string{first, synced}, c.want...), got); diff != "" {
					t.Errorf("on the bus (-want +got):\n%s", diff)
				}
				if n := testutil.ToFloat64(s.lane.metrics.dead.WithLabelValues("s", event.Oversize)); int(n) != strings.Count(strings.Join(c.want, " "), "dead ") {
					t.Errorf("%v dead letters were counted", n)
				}
			})
		}
	}
}

// TestDeadLetterSaysWhy: who operates dead letters must find the reason in them,
// and one line in the log, without the body.
func TestDeadLetterSaysWhy(t *testing.T) {
	b := &bus{limit: func(r *event.Record) int {
		if r.Event.ResourceVersion == "1" && r.Event.Type == event.Added && (r.Route != deadTopic || r.Event.Truncated == nil) {
			return 2000
		}
		return 1 << 20
	}}
	c, store := newCluster(), openMem(t)
	c.do(source.Added, "large")
	lane := newPolicyLane(t, b, store, ToDeadLetters)
	core, logs := observer.New(zap.WarnLevel)
	lane.log = zap.New(core)
	runLife(t, c, lane, nil, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		_, dead := split(b.records)
		return len(dead) > 0
	})
	_, dead := split(b.records)
	got, err := event.Parse(dead[0].Value)
	if err != nil {
		t.Fatal(err)
	}
	d := got.DeadLetter
	if d == nil || d.Reason != event.Oversize || d.Route != "configmaps" || d.Limit != 2000 || d.Size <= 2000 || got.Truncated == nil {
		t.Errorf("the dead letter says %+v, truncated %+v", d, got.Truncated)
	}
	lines := logs.FilterMessage("event goes to the dead letters").All()
	if len(lines) != 1 {
		t.Fatalf("%d lines in the log", len(lines))
	}
	if text := fmt.Sprint(lines[0].ContextMap()); !strings.Contains(text, "n/large") || strings.Contains(text, "xxx") {
		t.Errorf("the log says %s", text)
	}
	if v, err := store.Get(checkpoint.EntryKey("configmaps", "n", "large")); err != nil || v == nil {
		t.Errorf("the object was not seen: %v", err)
	} else if e, err := checkpoint.DecodeEntry(v); err != nil || e.Told || e.Entry != "" {
		t.Errorf("the inventory has %+v, %v", e, err)
	}
}

// Who reads that an event was truncated wants to know of which object.
func TestLogNamesTheTruncatedObject(t *testing.T) {
	b := &bus{limit: func(r *event.Record) int {
		if r.Event.Type == event.Added && r.Event.Truncated == nil {
			return 100
		}
		return 1 << 20
	}}
	c := newCluster()
	c.do(source.Added, "large")
	lane := newPolicyLane(t, b, openMem(t), Truncate)
	core, logs := observer.New(zap.WarnLevel)
	lane.log = zap.New(core)
	runLife(t, c, lane, nil, func() bool { return logs.FilterMessageSnippet("event truncated").Len() > 0 })
	if fields := logs.FilterMessageSnippet("event truncated").All()[0].ContextMap(); fields["object"] != "n/large" || fields["resource"] != "configmaps" {
		t.Errorf("the log says %v", fields)
	}
}

// TestUnredactedGoesToTheDeadLetters: without its body, and never to where its
// consumers are; where there are no dead letters, its event has no body.
func TestUnredactedGoesToTheDeadLetters(t *testing.T) {
	secrets := Wanted{Target: source.Target{
		Collection: event.Collection{Resource: "secrets"},
		Resource:   source.Resource{Version: "v1", Name: "secrets", Kind: "Secret", Namespaced: true},
	}}
	secret := func(rv, data string) *source.Object {
		o, err := source.ParseObject(fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"n","uid":"u","resourceVersion":%q},"data":%s}`, rv, data))
		if err != nil {
			t.Fatal(err)
		}
		return &o
	}
	for policy, want := range map[Oversize][]string{
		ToDeadLetters: {"u:5:added dead", "u:6:added", "u:7:modified dead", "u:6:deleted withheld"},
		Truncate:      {"u:5:added withheld", "u:6:modified", "u:7:modified withheld", "u:5:deleted withheld"},
	} {
		s := &script{t: t, store: openMem(t), bus: &bus{}, started: map[string]*collectionScript{}, done: make(chan error, 1), policy: policy}
		s.run()
		s.set([]Wanted{secrets}, nil)
		in := s.collection("secrets", nil)
		in.lists("", source.ReasonSnapshot, "5", secret("5", `"hunter2"`))
		in.says(source.Signal{Kind: source.Modified, Object: secret("6", `{"k":"aHVudGVyMg=="}`)},
			source.Signal{Kind: source.Modified, Object: secret("7", `["hunter2"]`)},
			source.Signal{Kind: source.Deleted, Object: secret("8", `"hunter2"`)})
		s.handled()
		s.finish()
		var got []string
		for _, r := range s.bus.records {
			if strings.Contains(string(r.Value), "hunter2") || strings.Contains(string(r.Value), "aHVudGVyMg") {
				t.Errorf("%s: %s left unredacted", policy, r.ID)
			}
			switch ev := r.Event; {
			case ev.Type.OfCollection():
			case ev.DeadLetter != nil && r.Route == deadTopic && ev.DeadLetter.Reason == event.Unredacted && ev.Object == nil:
				got = append(got, r.ID+" dead")
			case ev.Object == nil:
				got = append(got, r.ID+" withheld")
			default:
				got = append(got, r.ID)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", policy, diff)
		}
	}
}

// TestFailHoldsTheLane: nothing passes what does not fit, the status says what to
// do, and it goes on by itself when the bus takes more.
func TestFailHoldsTheLane(t *testing.T) {
	for _, policy := range []Oversize{Hold, Truncate} { // the bus does not even take what is left
		limit := make(chan int, 1)
		limit <- 600
		b := &bus{limit: func(r *event.Record) int {
			n := <-limit
			limit <- n
			if r.Event.Type.OfCollection() || r.Event.Name != "large" {
				return 1 << 20
			}
			return n
		}}
		c, store := newCluster(), openMem(t)
		c.do(source.Added, "before")
		c.do(source.Added, "large")
		c.do(source.Added, "after")
		lane := newPolicyLane(t, b, store, policy)
		runLife(t, c, lane, nil, func() bool {
			b.mu.Lock()
			v := consume(t, b.records)
			b.mu.Unlock()
			if len(v.alive) == 3 {
				return true
			}
			st := lane.Status()
			if st.Failing == "" {
				return false
			}
			for _, part := range []string{"n/large", "added", "takes 600", "oversize"} {
				if !strings.Contains(st.Failing, part) {
					t.Errorf("%s: the status says %q, not %q", policy, st.Failing, part)
				}
			}
			if st.Ready || len(v.alive) > 1 {
				t.Errorf("%s: ready %t, and the bus holds %v", policy, st.Ready, v.alive)
			}
			<-limit
			limit <- 1 << 20
			return false
		})
	}
}

// TestQuietMovesAreNotRepeatedLate: what has a store catch up beside a log must not
// bring back what a later record of the batch moved on from.
func TestQuietMovesAreNotRepeatedLate(t *testing.T) {
	b := newBatch(1)
	kv := func(key, value string) event.KV { return event.KV{Key: []byte(key), Value: []byte(value)} }
	b.move(origin{nil, quiet}, kv("a", "1"), kv("b", "1"))
	b.move(origin{nil, 0}, kv("a", "2"))
	b.move(origin{nil, quiet}, kv("b", "2"))
	if diff := cmp.Diff([]event.KV{kv("b", "2")}, b.unrecorded()); diff != "" {
		t.Error(diff)
	}
}
