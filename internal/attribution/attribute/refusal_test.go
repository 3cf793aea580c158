package attribute

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/pkg/event"
)

const pods = "pods"

// refused returns the record of a refused request.
func refused(user string) *audit.Record {
	return &audit.Record{
		ID: "chosen by the client", Stage: audit.Complete, Level: audit.Metadata, Verb: "get", Version: "v1", Resource: "pods", Namespace: "shop", Name: "web",
		Code: 403, Decision: "forbid", Message: "no", Received: noon, Reached: noon, Actor: audit.Actor{User: audit.User{Name: user}},
	}
}

// eventOf returns the event of a change's verdict, or of a refusal, as the encoder completes it.
func eventOf(a interface {
	Complete(number uint64, e *event.Event) event.KV
}, number uint64,
) (e event.Event, done event.KV) {
	e.Collection = &event.Collection{Resource: pods}
	return e, a.Complete(number, &e)
}

// world is an Attribution with its store, and with what the bus has: the store's changes are committed with it.
type world struct {
	t *testing.T
	*Attribution
	store store
	sent  []string // users
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, store: store{}}
	w.start()
	return w
}

// start continues from the store, as after a crash.
func (w *world) start() {
	w.t.Helper()
	w.Attribution = newAttribution()
	if err := w.load(w.store, noon); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) commit(changes ...event.KV) {
	w.t.Helper()
	w.Sealed()
	if err := w.store.Commit(w.t.Context(), changes); err != nil {
		w.t.Fatal(err)
	}
	w.Committed(nil)
}

// pass puts all refusals that are ready into a batch.
func (w *world) pass() (ids []uint64, users []string, done []event.KV) {
	w.t.Helper()
	for _, r := range w.Refusals() {
		e, change := eventOf(w, r.ID)
		if e.Denial == nil {
			w.t.Fatalf("refusal %d has no event", r.ID)
		}
		w.Pass(r)
		ids, users, done = append(ids, r.ID), append(users, e.Denial.Request.User.Name), append(done, change)
	}
	return ids, users, done
}

// publish publishes all that is ready, with changes.
func (w *world) publish(changes ...event.KV) {
	w.t.Helper()
	ids, users, done := w.pass()
	w.sent = append(w.sent, users...)
	w.commit(append(changes, done...)...)
	for _, id := range ids {
		w.explained(id)
	}
}

func (w *world) wants(users string) {
	w.t.Helper()
	if got := strings.Join(w.sent, " "); got != users {
		w.t.Errorf("published are the refusals of %q, want %q", got, users)
	}
}

// A refused request is published once, in order, also after a crash behind the commit of the reader's position, and if it is read twice.
func TestRefusals(t *testing.T) {
	w := newWorld(t)
	first := w.Refuse(1, refused("alice"), pods)
	if again := w.Refuse(2, refused("alice"), pods); again != nil {
		t.Errorf("the same request again: %v", again)
	}
	w.publish(append(first, w.Refuse(3, refused("bob"), pods)...)...)
	w.wants("alice bob")
	if len(w.store) != 0 || len(w.Refusals()) != 0 {
		t.Errorf("the store has %v", w.store)
	}

	w.commit(w.Refuse(4, refused("carol"), pods)...)
	w.commit(w.Refuse(5, refused("dave"), pods)...)
	w.pass() // and the batch gets lost
	w.start()
	w.publish(w.Refuse(6, refused("erin"), pods)...)
	w.wants("alice bob carol dave erin")
	if n := w.Counts().Refusals; n.Published != 3 || n.Waiting != 0 { // since the start
		t.Errorf("counts %+v", n)
	}
}

// When a collection is suspended, refusals whose events were in its batches are published later, unless the bus has them.
func TestRefusalsOfASuspendedCollection(t *testing.T) {
	w := newWorld(t)
	w.commit(w.Refuse(1, refused("alice"), pods)...)
	_, _, done := w.pass()
	note := w.Refuse(2, refused("bob"), pods)
	w.pass() // both are in batches that get lost
	if err := w.Restore(w.store, pods, noon); err != nil {
		t.Fatal(err)
	}
	if list := w.Refusals(); len(list) != 2 {
		t.Errorf("%d refusals are ready, want those of alice, and of bob, whose note is not durable yet", len(list))
	}
	w.pass()
	w.commit(append(note, done...)...) // of a log, the store has a part of the batch
	if err := w.Restore(w.store, pods, noon); err != nil {
		t.Fatal(err)
	}
	w.publish()
	w.wants("bob")
	if n := w.Counts().Refusals; n.Published != 2 {
		t.Errorf("counts %+v", n)
	}
}

// Requests that cannot be published do not fill the memory, and those of other resources are not lost with them.
func TestManyRefusals(t *testing.T) {
	w := newWorld(t)
	for n := range uint64(maxRefusals + 1) {
		r := refused("alice")
		r.Received = noon.AddDate(0, 0, int(n)+1)
		w.Refuse(n+1, r, pods)
	}
	if change := w.Refuse(maxRefusals+2, refused("bob"), "secrets"); change == nil {
		t.Error("a refusal of another collection is lost")
	}
	if n := w.Counts().Refusals; n.Lost != 1 || n.Waiting != maxRefusals+1 {
		t.Errorf("counts %+v", n)
	}
	for _, r := range w.Refusals() {
		w.DropRefusal(r)
	}
	if n := w.Counts().Refusals; n.Dropped != maxRefusals+1 || n.Waiting != 0 {
		t.Errorf("counts %+v", n)
	}
}

// Long texts of clients do not fill the memory either.
func TestRefusalsAreBoundedByBytes(t *testing.T) {
	w := newWorld(t)
	for n := range uint64(1000) {
		r := refused("mallory")
		r.Received, r.Actor.User.Groups = noon.AddDate(0, 0, int(n)+1), []string{strings.Repeat("g", 64<<10)}
		w.Refuse(n+1, r, pods)
	}
	if n := w.Counts().Refusals; n.Waiting > maxRefusalBytes/(64<<10) || n.Waiting < 200 || uint64(n.Waiting)+n.Lost != 1000 {
		t.Errorf("counts %+v", n)
	}
	for _, r := range w.Refusals() {
		w.DropRefusal(r)
	}
	if len(w.refusals.bytes) != 0 {
		t.Errorf("without refusals, %v bytes are counted", w.refusals.bytes)
	}
}

// The event of a refusal is bounded, and smaller each time the bus rejects it.
func TestRejectedRefusal(t *testing.T) {
	w := newWorld(t)
	record := refused("mallory")
	record.Actor.User.Groups, record.URI = []string{strings.Repeat("g", 200<<10)}, strings.Repeat("u", 7<<10)
	w.Refuse(1, record, pods)
	var left []string
	for {
		r := w.Refusals()[0]
		if r.Final() {
			w.DropRefusal(r)
			break
		}
		e, _ := eventOf(w, r.ID)
		left = append(left, strings.Join(e.Denial.LeftOut, "+"))
		w.Pass(r)
		if object, _ := w.Reject(r.ID); object != "shop/web" {
			t.Errorf("rejected is %+v", object)
		}
		if err := w.Restore(w.store, pods, noon); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(left, ", "); got != "groups, groups, groups, groups+uri" {
		t.Errorf("left out are %q", got)
	}
	if n := w.Counts().Refusals; n.Rejected != 1 || n.Waiting != 0 {
		t.Errorf("counts %+v", n)
	}
}

// A client, also one without credentials, does not decide how much is written: its texts are short, and beyond a number of requests in a minute one event
// counts the rest, also after a crash. Other users, resources and minutes have events of their own.
func TestFloodOfRefusals(t *testing.T) {
	const flood, together = 5000, 100
	w := newWorld(t)
	long := strings.Repeat("x", 60<<10)
	refuse := func(n int, user, collection string, received time.Time) []event.KV {
		r := refused(user)
		r.ID, r.URI, r.Name, r.Subresource, r.Actor.UserAgent, r.Received = fmt.Sprint(n, long), "/"+long, long, long, long, received
		return w.Refuse(uint64(n), r, collection)
	}
	published := map[string]int{}
	requests, bytes := 0, 0
	publish := func(changes ...event.KV) {
		t.Helper()
		changes = append(changes, w.CountRefusals()...)
		for _, kv := range changes {
			bytes += len(kv.Value)
		}
		w.commit(changes...)
		for _, r := range w.Refusals() {
			e, _ := eventOf(w, r.ID)
			text, _ := json.Marshal(e.Denial)
			bytes += len(text)
			published[e.Denial.Request.User.Name]++
			requests += 1 + int(e.Denial.More)
		}
		w.publish()
	}
	for n := 0; n < flood; {
		var changes []event.KV
		for range together {
			changes = append(changes, refuse(n, "mallory", pods, noon)...)
			n++
		}
		publish(changes...)
	}
	publish(append(refuse(flood, "alice", pods, noon), refuse(flood+1, "mallory", "secrets", noon)...)...)
	if published["mallory"] != maxDeniedPerMinute+1 || published["alice"] != 1 {
		t.Errorf("within the minute, the numbers of events are %v", published)
	}
	w.start() // after a crash
	w.Ready(noon.Add(time.Minute))
	publish()
	if published["mallory"] != maxDeniedPerMinute+2 || requests != flood+2 {
		t.Errorf("%v events stand for %d requests, want %d", published, requests, flood+2)
	}
	for n := range 2 {
		publish(refuse(flood+2+n, "mallory", pods, noon.Add(time.Minute))...)
	}
	if published["mallory"] != maxDeniedPerMinute+4 || len(w.store) != 0 {
		t.Errorf("in the next minute, the numbers of events are %v; the store has %d refusals", published, len(w.store))
	}
	if most := (maxDeniedPerMinute + flood/together) * 10 << 10; bytes > most {
		t.Errorf("%d bytes are written, want at most %d", bytes, most)
	}
}
