package buffer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/internal/base/spool"
	"github.com/kubebridge/kubebridge/internal/core/feed"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// lease is a Lease with the ConfigMap beside it.
type lease struct {
	*testing.T
	holder  string
	content []byte
	version int // of content; 0: there is none
	writes  int
	fails   error // of reads and writes
}

// list returns the list in the ConfigMap.
func (l *lease) list() List {
	l.Helper()
	list, err := DecodeList(l.content)
	if err != nil {
		l.Fatal(err)
	}
	return list
}

// exchanging is a replica with an exchange.
type exchanging struct {
	*Exchange
	lease *lease
	name  string
	seen  int       // the version that was read or written last
	now   time.Time // moves with each step
}

func (e *exchanging) Read(context.Context) ([]byte, error) {
	if e.lease.fails != nil {
		return nil, e.lease.fails
	}
	e.seen = e.lease.version
	return e.lease.content, nil
}

func (e *exchanging) Write(_ context.Context, content []byte) error {
	switch {
	case e.lease.fails != nil:
		return e.lease.fails
	case e.lease.holder != e.name:
		return ErrNotLeader
	case e.seen != e.lease.version:
		return ErrChanged
	}
	e.lease.version++
	e.lease.writes++
	e.lease.content, e.seen = content, e.lease.version
	return nil
}

// replica starts a replica with a disk  Its API server does not answer.
func (l *lease) replica(name string) *exchanging {
	l.Helper()
	files, err := spool.Open(l.TempDir(), spool.Options{})
	if err != nil {
		l.Fatal(err)
	}
	client, err := source.NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		l.Fatal(err)
	}
	log := zaptest.NewLogger(l)
	e := &exchanging{lease: l, name: name, now: time.Now()}
	e.Exchange = NewExchange(ExchangeOptions{
		Buffer: New(Options{
			Cluster: "a", Spool: files, Client: client, Slots: func() source.Slots { return feed.NewLists(1).Slots() }, Sinks: []string{"audit"}, Log: log,
		}),
		Note: e, Limit: 1 << 20, Election: func() (string, string) { return name, l.holder }, Tried: func(string, error) {}, Log: log,
	})
	ctx, stop := context.WithCancel(l.Context())
	e.Buffer.Load(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.Buffer.Run(ctx)
	}()
	l.Cleanup(func() {
		stop()
		<-done
		client.Close()
		_ = files.Close()
	})
	return e
}

// wait makes one step after some time.
func (e *exchanging) wait(d time.Duration) {
	e.now = e.now.Add(d)
	e.step(e.lease.Context(), e.now)
}

// lead makes a replica the leader.
func (e *exchanging) lead() {
	e.lease.holder = e.name
	e.Lead(e.lease.Context())
}

var pods = source.Target{Collection: event.Collection{Resource: "pods"}, Resource: source.Resource{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true}}

// begin begins a recording of pods in a namespace.
func (e *exchanging) begin(namespace, at string) *Use {
	e.lease.Helper()
	use, err := e.Buffer.Begin("audit", podsIn(namespace), Position{Committed: at, Epoch: 1, Read: at})
	if err != nil {
		e.lease.Fatal(err)
	}
	return use
}

func podsIn(namespace string) source.Target {
	t := pods
	t.Collection.Namespace = namespace
	return t
}

// records returns what is recorded and needed, such as "shop at 10".
func (e *exchanging) records() string { return shortly(e.Buffer.List()) }

func shortly(list []Listed) string {
	var out []string
	for _, l := range list {
		out = append(out, fmt.Sprintf("%s at %s", l.Target.Collection.Namespace, l.At.Committed))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// A leader whose sinks are in step writes nothing. Otherwise it writes when recordings begin and end, and sometimes when positions move.
func TestLeaderLists(t *testing.T) {
	l := &lease{T: t}
	a, b := l.replica("a"), l.replica("b")
	a.lead()
	b.wait(exchangeEvery)
	for range 100 {
		a.wait(exchangeEvery)
	}
	if l.writes > 0 {
		t.Fatalf("%d writes in step", l.writes)
	}
	use := a.begin("shop", "10")
	a.wait(exchangeEvery)
	b.wait(exchangeEvery)
	want(t, "the list", shortly(l.list().Recordings), "shop at 10")
	want(t, "a standby", b.records(), "shop at 10")
	for n := range 60 { // two minutes
		use.Committed(fmt.Sprint(11+n), 1)
		a.wait(exchangeEvery)
	}
	if l.writes < 15 || l.writes > 25 {
		t.Errorf("%d writes, want one for the first list, and one each six seconds", l.writes)
	}
	b.wait(exchangeEvery)
	want(t, "a standby", b.records(), shortly(l.list().Recordings))
	before := l.writes
	a.begin("bank", "70")
	a.wait(exchangeEvery)
	b.wait(exchangeEvery)
	want(t, "a standby", b.records(), "bank at 70, shop at 70")
	if err := use.Close(); err != nil {
		t.Fatal(err)
	}
	a.wait(exchangeEvery)
	b.wait(exchangeEvery)
	want(t, "a standby", b.records(), "bank at 70")
	if l.writes != before+2 {
		t.Errorf("%d writes, want 2", l.writes-before)
	}
}

// A standby that takes over goes on with what is listed, so that a second standby does not forget it; a former leader's list counts for a while.
func TestListIsInherited(t *testing.T) {
	l := &lease{T: t}
	a, c := l.replica("a"), l.replica("c")
	a.lead()
	a.begin("shop", "10")
	a.wait(exchangeEvery)
	c.wait(exchangeEvery)
	b := l.replica("b") // it has just started
	b.lead()
	want(t, "the new leader", b.records(), "shop at 10")
	c.wait(heirWithin / 2) // the list is still that of a
	want(t, "another standby", c.records(), "shop at 10")
	b.wait(exchangeEvery)
	want(t, "the holder of the list", l.list().Holder, "b")
	a.Stand()
	for range 100 {
		b.wait(heirWithin)
		a.wait(heirWithin)
		c.wait(heirWithin)
	}
	want(t, "another standby", c.records(), "shop at 10")
	want(t, "the former leader", a.records(), "shop at 10")
	use, err := b.Buffer.Find("audit", podsIn("shop"), Position{Committed: "12", Epoch: 1, Read: "12"})
	if err != nil {
		t.Fatal(err)
	}
	if use == nil {
		t.Fatal("the sink finds nothing")
	}
	b.wait(positionsEvery)
	c.wait(exchangeEvery)
	want(t, "another standby", c.records(), "shop at 12")

	l.holder = "a replica of another version, which lists nothing"
	c.wait(exchangeEvery)
	c.wait(heirWithin / 2)
	want(t, "a standby of a leader that lists nothing", c.records(), "shop at 12")
	c.wait(heirWithin)
	want(t, "a standby of a leader that lists nothing, later", c.records(), "")
}

// A former leader that does not know of its successor does not replace the successor's list.
func TestFormerLeaderDoesNotList(t *testing.T) {
	l := &lease{T: t}
	a, b := l.replica("a"), l.replica("b")
	a.lead()
	a.begin("shop", "10")
	a.wait(exchangeEvery)
	b.lead()
	b.begin("bank", "20")
	b.wait(exchangeEvery)
	a.begin("late", "30")
	a.wait(exchangeEvery) // it has lost the Lease
	l.holder = "a"        // it has read the Lease before
	a.wait(exchangeEvery)
	l.holder = "b"
	want(t, "the list", shortly(l.list().Recordings), "bank at 20, shop at 10")
}

// A list that a restore of etcd has brought back, or that cannot be read, is replaced by the leader. A standby keeps what it has until then.
func TestListIsDamaged(t *testing.T) {
	l := &lease{T: t}
	a, b := l.replica("a"), l.replica("b")
	a.lead()
	a.begin("shop", "10")
	a.wait(exchangeEvery)
	old := l.content
	a.begin("bank", "20")
	a.wait(exchangeEvery)
	b.wait(exchangeEvery)
	for name, content := range map[string][]byte{"older": old, "damaged": {1, 2, 3}, "deleted": nil} {
		l.content = content
		l.version++
		if content != nil { // the standby is faster than the leader
			b.wait(exchangeEvery)
		}
		want(t, name+": a standby", b.records(), "bank at 20, shop at 10")
		for range 3 {
			a.wait(rereadEvery)
		}
		want(t, name+": the list", shortly(l.list().Recordings), "bank at 20, shop at 10")
		b.wait(exchangeEvery)
		want(t, name+": a standby", b.records(), "bank at 20, shop at 10")
	}
}

// While the API server does not answer, a standby keeps what it has, and the status says why it learns nothing.
func TestListCannotBeRead(t *testing.T) {
	l := &lease{T: t}
	a, b := l.replica("a"), l.replica("b")
	a.lead()
	a.begin("shop", "10")
	a.wait(exchangeEvery)
	b.wait(exchangeEvery)
	l.fails = errors.New("the API server is on fire")
	a.begin("bank", "20")
	for range 3 {
		b.wait(2 * heirWithin)
		a.wait(exchangeEvery)
	}
	want(t, "a standby", b.records(), "shop at 10")
	for _, e := range []*exchanging{a, b} {
		if _, problem := e.Status(); problem != l.fails.Error() {
			t.Errorf("the problem of %s: %q", e.name, problem)
		}
	}
	b.Lead(t.Context())
	want(t, "a standby that takes over", b.records(), "shop at 10")
	b.Stand()
	l.fails = nil
	a.wait(exchangeEvery)
	b.wait(exchangeEvery)
	want(t, "a standby", b.records(), "bank at 20, shop at 10")
	if _, problem := b.Status(); problem != "" {
		t.Errorf("the problem is still %q", problem)
	}
}

// A leader that could not write its list, because the API server was away together with the bus, keeps what it has recorded when it loses the
// Lease: there is no list that could say that nobody needs it. It goes on with it when it leads again. A leader that lists nothing may be in step: after five minutes
// of it the recording is not needed.
func TestRecordedBeforeTheFirstList(t *testing.T) {
	l := &lease{T: t}
	a := l.replica("a")
	a.lead()
	l.fails = errors.New("the API server is on fire")
	use := a.begin("shop", "10")
	a.wait(exchangeEvery)
	if err := use.Suspend(); err != nil {
		t.Fatal(err)
	}
	a.Stand()
	l.fails = nil
	for _, holder := range []string{"", "a", "b"} {
		l.holder = holder
		a.wait(exchangeEvery)
		a.wait(heirWithin / 2)
		want(t, "a standby while the Lease is held by "+strconv.Quote(holder), a.records(), "shop at 10")
	}
	a.wait(heirWithin)
	want(t, "a standby of a leader that lists nothing", a.records(), "")
	a.lead()
	want(t, "the leader", a.records(), "shop at 10")
}

// What the leader has encrypted is not on the disk of a standby in clear.
func TestListOfASealedBuffer(t *testing.T) {
	l := &lease{T: t}
	a, b := l.replica("a"), l.replica("b")
	a.Buffer.Sealed = true
	a.lead()
	a.begin("shop", "10")
	a.wait(exchangeEvery)
	b.wait(exchangeEvery)
	want(t, "a standby without a key", b.records(), "")
	if _, problem := b.Status(); !strings.Contains(problem, "no key") {
		t.Errorf("the problem is %q", problem)
	}
	b.lead()
	want(t, "a new leader without a key", b.records(), "")
}

// The recordings for which the list has no room are counted.
func TestListIsFull(t *testing.T) {
	l := &lease{T: t}
	a := l.replica("a")
	a.Limit = 500
	a.lead()
	for n := range 50 {
		a.begin(fmt.Sprintf("namespace-%x", n*7919*7907), fmt.Sprint(n*104729))
	}
	a.wait(exchangeEvery)
	unlisted, _ := a.Status()
	if n := len(l.list().Recordings); n == 0 || unlisted != 50-n {
		t.Errorf("%d are listed, and %d count as not listed", n, unlisted)
	}
	for range 10 {
		a.wait(exchangeEvery)
	}
	if l.writes != 1 {
		t.Errorf("%d writes", l.writes)
	}
	a.wait(rereadEvery)
	a.wait(exchangeEvery)
	if l.writes != 1 {
		t.Error("the list is written again, although it could not be longer")
	}
}
