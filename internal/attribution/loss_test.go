package attribution

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/attribute"
	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/inbox"
	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// losses is a bus that keeps the losses that were published.
type losses struct {
	nowhere
	mu  sync.Mutex
	all []event.Loss
	ids []string // of the requests of the events
}

func (l *losses) Write(_ context.Context, b *event.Batch) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range b.Records {
		if r.Event != nil && r.Event.Loss != nil && r.Broadcast && r.Key == "" {
			l.all, l.ids = append(l.all, *r.Event.Loss), append(l.ids, r.Event.RequestID)
		}
	}
	return nil, nil
}

func (l *losses) details() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.all {
		all = append(all, one.Detail)
	}
	return all
}

// Consumers see that records may be missing: where the file was cut off, and where the inbox has lost some. Each is published once, also if the
// sink starts again.
func TestLossesArePublished(t *testing.T) {
	a := newInputs(t, []byte(auditLine+auditLine))
	a.spec.Join = patient
	store, err := file.OpenMem(identity)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	bus := &losses{}
	run := func(do func(wants func(n int, parts ...string))) {
		t.Helper()
		r := newRig(t, bus, store, a.spec, configMaps)
		defer r.stop()
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for _, f := range []func() error{func() error { return r.Follow(ctx, a, r.loop) }, func() error { return a.follow(ctx) }} {
			group.Go(func() {
				if err := f(); err != nil {
					t.Error(err)
				}
			})
		}
		defer group.Wait()
		defer stop()
		r.snapshot("10")
		do(func(n int, parts ...string) {
			t.Helper()
			for deadline := time.After(endsHang); len(bus.details()) < n || a.Status().Records == 0; {
				select {
				case <-time.After(time.Millisecond):
				case <-deadline:
					t.Fatalf("published are %q", bus.details())
				}
			}
			all := bus.details()
			if len(all) != n {
				t.Errorf("published are %q, want %d", all, n)
			}
			for _, part := range parts {
				if !strings.Contains(all[n-1], part) {
					t.Errorf("the last detail is %q, want %q", all[n-1], part)
				}
			}
		})
	}
	run(func(wants func(n int, parts ...string)) {
		wants(0)
		if err := os.WriteFile(a.spec.File.Path, []byte(auditLine), 0o600); err != nil { // in place
			t.Fatal(err)
		}
		wants(1, "audit log")
	})
	run(func(wants func(n int, parts ...string)) {
		wants(1)
		if err := a.Append([]audit.Record{{ID: "x", Lost: newLoss(time.Time{}, "one more")}}); err != nil {
			t.Fatal(err)
		}
		wants(2, "one more")
	})
	if l := bus.all[0]; l.Since == "" || l.Until <= l.Since {
		t.Errorf("the loss is %+v", l)
	}
}

// If the content of audit.path is lost, a sink reads the new records from the first one on, and says once that some are missing. The position that it
// stores then is one in the new inbox.
func TestLostInbox(t *testing.T) {
	store, err := file.OpenMem(identity)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	bus := &losses{}
	run := func(a *Inputs, want int, then func(r *rig)) (at storedPosition) {
		t.Helper()
		a.spec.Join = join.Options{Complete: true, Settle: time.Hour, Keep: time.Hour, MaxOpen: time.Nanosecond, MaxChanges: 1000, MaxRequests: 1000}
		r := newRig(t, bus, store, a.spec, configMaps)
		end := r.followsAudit(a)
		r.snapshot("10")
		position := 10
		for deadline := time.After(endsHang); len(bus.details()) != want || at.Number != a.inbox.Last(); {
			position++ // the position is stored with other changes
			r.reads(watched("x", strconv.Itoa(position), strconv.Itoa(position-1)))
			select {
			case <-time.After(lookEvery):
			case <-deadline:
				t.Fatalf("published are %q, and the position is %+v, want %d, and %d", bus.details(), at, want, a.inbox.Last())
			}
			text, err := store.Get([]byte("n/audit"))
			if err != nil {
				t.Fatal(err)
			}
			if text != nil {
				if err := json.Unmarshal(text, &at); err != nil {
					t.Fatal(err)
				}
			}
		}
		then(r)
		end()
		r.stop()
		return at
	}
	records := func(n int) (list []audit.Record) {
		for i := range n {
			list = append(list, audit.Record{ID: strconv.Itoa(i), Verb: "create", Resource: "secrets", Stage: audit.Complete, Code: 409}) // it has changed nothing
		}
		return list
	}
	before, after := newInputs(t, nil), newInputs(t, nil) // both have no identity: only the records are lost
	if err := before.Append(records(50)); err != nil {
		t.Fatal(err)
	}
	run(before, 0, func(*rig) {})
	if err := after.Append(records(3)); err != nil {
		t.Fatal(err)
	}
	at := run(after, 1, func(r *rig) { // complete records are trusted again
		request := audit.Record{
			ID: "new", Stage: audit.Received, Level: audit.Metadata, Verb: "create", Resource: "configmaps", Namespace: "a", Name: "new",
			Received: time.Now(), Reached: time.Now(), Actor: audit.Actor{User: audit.User{Name: "alice"}},
		}
		answered := request
		answered.Stage, answered.Code, answered.Reached = audit.Complete, 201, time.Now()
		after.hasRead(fromFile, time.Now())
		after.mu.Lock()
		after.floors[attribute.Resource{Resource: join.Resource{Resource: "configmaps"}}] = floor{after.caught[fromFile], "5000"}
		after.mu.Unlock()
		if err := after.Append([]audit.Record{request}); err != nil {
			t.Fatal(err)
		}
		r.reads(watched("new", "6000", "5999"))
		if err := after.Append([]audit.Record{answered}); err != nil {
			t.Fatal(err)
		}
		r.shows("the user of a change behind the loss", func(s shown) bool {
			after.hasRead(fromFile, time.Now())
			return s.Exact == 1
		})
	})
	if err := after.inbox.Trim(at.Position); err != nil {
		t.Errorf("the position is not one in the inbox: %v", err)
	}

	again := newInputs(t, nil)
	if err := again.Append(records(3)); err != nil {
		t.Fatal(err)
	}
	run(again, 2, func(*rig) {})
	another := newInputs(t, nil) // with another identity
	another.id = "another"
	if err := another.Append(records(3)); err != nil {
		t.Fatal(err)
	}
	run(another, 3, func(*rig) {})
	for i, id := range bus.ids {
		if slices.Contains(bus.ids[:i], id) {
			t.Errorf("the losses %q have the ids %q: consumers drop the second one of an id", bus.details(), bus.ids)
		}
	}
}

// A gap that is read again has the same id, and another one has another id.
func TestLossID(t *testing.T) {
	id := func(box string, at inbox.Position, from, to uint64) string {
		r := recordReader{inputs: &Inputs{id: box}, at: at}
		return r.loss(&inbox.GapError{From: from, To: to, Err: errors.New("damaged")}).ID
	}
	at := inbox.Position{Session: "s", Number: 4}
	all := []string{id("a", at, 5, 9), id("b", at, 5, 9), id("a", inbox.Position{Session: "t", Number: 4}, 5, 9), id("a", at, 5, 8)}
	for i, one := range all {
		if slices.Contains(all[:i], one) {
			t.Errorf("two gaps have the id %q", one)
		}
	}
	if id("a", at, 5, 9) != all[0] {
		t.Error("a gap that is read again has another id")
	}
}

// Where records are declared complete, an event that does not parse is a loss: it may have been about a request that changed something.
func TestUnparsableIsLost(t *testing.T) {
	for _, complete := range []bool{false, true} {
		a := newInputs(t, []byte("this is no audit event\n"))
		a.spec.Join.Complete = complete
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.follow(ctx) }()
		for deadline := time.After(endsHang); a.Status().Unparsable == 0; {
			select {
			case <-time.After(time.Millisecond):
			case <-deadline:
				t.Fatalf("the line was not read: %+v", a.Status())
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		all := a.readable(t)
		if lost := len(all) == 1 && all[0].Lost != nil && strings.Contains(all[0].Lost.Detail, "does not parse"); lost != complete {
			t.Errorf("complete %v: the inbox has %+v", complete, all)
		}
	}
}

// Records that the webhook has refused may be lost, and those that were sent while it did not listen for long.
func TestWebhookLosses(t *testing.T) {
	a := newInputs(t, nil)
	records := []audit.Record{{ID: "1", Verb: "create", Resource: "pods", Stage: audit.Complete}}
	var found []string
	var since time.Time // of the last loss
	reader := a.inbox.Reader(inbox.Position{})
	defer reader.Close()
	wants := func(parts ...string) {
		t.Helper()
		found = nil
		for {
			item, err := reader.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if l := item.Record.Lost; l != nil {
				found, since = append(found, l.Detail), l.Since
			}
		}
		if len(found) != len(parts) {
			t.Fatalf("losses are %q, want %q", found, parts)
		}
		for i, part := range parts {
			if !strings.Contains(found[i], part) {
				t.Errorf("losses are %q, want %q", found, parts)
			}
		}
	}
	appends := func(s *webhookStore) {
		t.Helper()
		if err := s.Append(records); err != nil {
			t.Fatal(err)
		}
	}
	s := newWebhookStore(a) // the first start
	appends(s)
	wants()
	received := time.Now().Add(-20 * time.Second)
	s.Refused(firstTime([]audit.Record{{Received: time.Now()}, {Received: received}, {}}), inbox.ErrFull)
	s.Refused(time.Now(), errors.New("another"))
	appends(s)
	appends(s)
	wants("inbox is full")
	if !since.Equal(received) || a.Status().Gaps != 1 || a.Status().LastError == nil {
		t.Errorf("the loss is since %v, want %v, when the first request came; the status has %+v", since, received, a.Status())
	}
	early := received.Add(-time.Hour)
	for range 3 { // within a minute
		s.Refused(early, errors.New("too much is being received"))
		appends(s)
	}
	wants()
	s.declared = time.Now().Add(-declareEvery)
	s.Refused(time.Now(), errors.New("another"))
	appends(s)
	wants("too much")
	if !since.Equal(early) {
		t.Errorf("the loss is since %v, want %v: it covers the whole minute", since, early)
	}
	s.Refused(time.Time{}, errors.New("too large"))
	s.declare(true) // the webhook ends
	wants("too large")
	if ago := time.Since(since); ago < buffers {
		t.Errorf("the loss is since %v ago, want at least %v: the API server had collected the records", ago, buffers)
	}
	for ago, losses := range map[time.Duration][]string{time.Second: nil, time.Hour: {"did not listen"}} {
		text, err := time.Now().Add(-ago).MarshalText()
		if err = errors.Join(err, os.WriteFile(a.timePath(), text, 0o600)); err != nil {
			t.Fatal(err)
		}
		appends(newWebhookStore(a))
		wants(losses...)
		if ago > time.Minute && time.Since(since) < ago+buffers {
			t.Errorf("the loss is since %v", since)
		}
	}
	a.spec.Join.Complete = true
	appends(newWebhookStore(a))
	wants()
}
