package buffer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/zap/zaptest"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/internal/base/spool"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// replica is the buffer of one of several replicas. Its API server does not answer, so it has only the frames that a test records.
type replica struct {
	*testing.T
	*Buffer
	fs vfs.FS
	o  spool.Options
}

func newReplica(t *testing.T, fs vfs.FS, o spool.Options) *replica {
	t.Helper()
	return newReplicaIn(t, "a", fs, o)
}

// newReplicaIn is newReplica in a cluster with a UID.
func newReplicaIn(t *testing.T, cluster string, fs vfs.FS, o spool.Options) *replica {
	t.Helper()
	o.FS = fs
	s, err := spool.Open("buffer", o)
	if err != nil {
		t.Fatal(err)
	}
	client, err := source.NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	b := New(Options{
		Cluster: cluster, Spool: s, Client: client, Slots: func() source.Slots { return noSlots{} }, Sinks: []string{"audit", "live"}, Log: zaptest.NewLogger(t),
	})
	ctx, stop := context.WithCancel(t.Context())
	b.Load(ctx)
	t.Cleanup(func() {
		stop()
		b.running.Wait()
		client.Close()
		_ = s.Close()
	})
	return &replica{t, b, fs, o}
}

// noSlots lets no list begin.
type noSlots struct{}

func (noSlots) Acquire(ctx context.Context, _ source.Attempt) error {
	<-ctx.Done()
	return ctx.Err()
}
func (noSlots) Release(source.Attempt) {}

// listed returns an entry of the leader's list for the target things of the sink "audit".
func listed(committed string) Listed {
	return Listed{Sink: "audit", Target: things, At: Position{Committed: committed, Epoch: 1, Seen: committed}}
}

// only returns the only recording of things.
func (p *replica) only() *Recording {
	p.Helper()
	list := p.of("audit", things)
	if len(list) != 1 {
		p.Fatalf("there are %d recordings", len(list))
	}
	return list[0]
}

// record records changes in the only recording.
func (p *replica) record(from, to int) {
	p.Helper()
	r := p.only()
	for n := from; n <= to; n++ {
		if err := r.Handle(p.Context(), signal(p.T, fmt.Sprintf("added a%d@%d resume %d", n, n, n-1))); err != nil {
			p.Fatal(err)
		}
		if err := r.flush(); err != nil {
			p.Fatal(err)
		}
	}
}

// found is Find on a disk that can be read.
func (p *replica) found(sink string, t source.Target, at Position) *Use {
	p.Helper()
	u, err := p.Find(sink, t, at)
	if err != nil {
		p.Fatal(err)
	}
	return u
}

// replays checks which changes the sink gets after a takeover.
func (p *replica) replays(committed string, epoch uint64, from, to int) *Use {
	p.Helper()
	u := p.found("audit", things, Position{Committed: committed, Epoch: epoch, Read: committed})
	if u == nil {
		p.Fatalf("nothing is found at %s", committed)
	}
	for n := from; n <= to; n++ {
		f, err := u.Next()
		if err != nil || f.Object.ResourceVersion != fmt.Sprint(n) {
			p.Fatalf("got %q, want version %d: %v", text(f), n, err)
		}
	}
	if f, err := u.Next(); err == nil {
		p.Errorf("there is more: %q", text(f))
	}
	return u
}

// A sink that takes over finds what was recorded while its process was a standby, from the position that the bus has, which may be later than
// the one that the leader had listed.
func TestStandbyTakesOver(t *testing.T) {
	p := newReplica(t, vfs.NewMem(), spool.Options{})
	p.Follow([]Listed{listed("10")})
	p.record(11, 30)
	if s := p.State(); s.Targets != 1 || s.Frames != 20 {
		t.Errorf("the status of a standby has %+v", s)
	}
	p.Lead()
	if got := p.List(); len(got) != 1 || !got[0].Waits || got[0].At.Committed != "10" {
		t.Errorf("a new leader whose sinks have not come lists %+v", got)
	}
	if u := p.found("live", things, Position{Committed: "10", Epoch: 1, Read: "10"}); u != nil {
		t.Error("another sink finds it")
	}
	other := things
	other.Collection.LabelSelector = "x=y"
	if u := p.found("audit", other, Position{Committed: "10", Epoch: 1, Read: "10"}); u != nil {
		t.Error("another selection finds it")
	}
	p.replays("15", 1, 16, 30)
	if got := p.List(); len(got) != 1 || got[0].Waits || got[0].At.Committed != "15" {
		t.Errorf("a leader whose sink has come lists %+v", got)
	}
}

// A standby deletes what the leader's sink has committed, and what is no longer listed.
func TestStandbyTrims(t *testing.T) {
	p := newReplica(t, vfs.NewMem(), spool.Options{SegmentBytes: 1})
	p.Follow([]Listed{listed("10")})
	p.record(11, 40)
	segments := func() int { return len(p.only().stream.Segments()) }
	whole := segments()
	p.sweep(time.Now())
	if n := segments(); n < whole-1 {
		t.Errorf("%d of %d segments are left, although nothing is committed", n, whole)
	}
	p.Follow([]Listed{listed("30")})
	p.sweep(time.Now())
	if n := segments(); n > whole-18 {
		t.Errorf("%d of %d segments are left", n, whole)
	}
	p.Follow(nil)
	if len(p.List()) > 0 {
		t.Error("what nobody needs is listed")
	}
	idle := p.only().idle
	p.Follow(nil)
	if !p.only().idle.Equal(idle) {
		t.Error("each list starts the time again for which a recording is kept")
	}
	p.sweep(time.Now())
	p.Follow([]Listed{listed("31")}) // the sink is behind once more
	p.sweep(time.Now().Add(time.Hour))
	p.record(41, 42)
	p.Lead()
	if err := p.replays("31", 1, 32, 42).Suspend(); err != nil {
		t.Fatal(err)
	}
	p.Stand()
	p.Follow(nil)
	p.sweep(time.Now().Add(time.Hour))
	if n := p.State().Targets; n > 0 || len(p.Spool.List()) > 0 {
		t.Errorf("%d recordings and %d segments are left", n, len(p.Spool.List()))
	}
}

// A recording is replaced where the leader's list proves that it is of no use.
func TestStandbyReplaces(t *testing.T) {
	later := func(change func(*Listed)) Listed {
		l := listed("20")
		change(&l)
		return l
	}
	for _, c := range []struct {
		name     string
		next     Listed
		ended    bool // before the next list
		replaced bool
		start    string
	}{
		{"it reaches back", listed("20"), false, false, "10"},
		{"the position is further than what was recorded", listed("50"), false, false, "10"},
		{"it begins later", listed("5"), false, true, "5"},
		{"the position is one that the leader is not sure of", later(func(l *Listed) { l.At.Committed, l.Waits = "5", true }), false, false, "10"},
		{"the leader knows no position", later(func(l *Listed) { l.At, l.Waits = Position{}, true }), false, false, "10"},
		{"the sink has come to a new history", later(func(l *Listed) { l.At.Epoch = 2 }), false, true, "20"},
		{"a new history has begun, and the sink has not come to it", later(func(l *Listed) { l.NewHistory = true }), false, false, "10"},
		{"a new history has begun behind a position that is missing", later(func(l *Listed) { l.At.Committed, l.NewHistory = "5", true }), false, false, "10"},
		{"it has ended, and is still of use", listed("20"), true, false, "10"},
		{"it has ended, and all of it is committed", listed("40"), true, true, "40"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newReplica(t, vfs.NewMem(), spool.Options{})
			p.Follow([]Listed{listed("10")})
			p.record(11, 30)
			before := p.only()
			if c.ended {
				before.finish(errors.New("full"))
			}
			p.Follow([]Listed{c.next})
			r := p.only()
			if r.Start != c.start || (r != before) != c.replaced {
				t.Errorf("replaced: %t, and the recording begins at %s, want %s", r != before, r.Start, c.start)
			}
		})
	}
}

// What cannot be begun is not tried with every list, and other collections are recorded. What a configuration does not have is not recorded.
func TestStandbyCannotRecord(t *testing.T) {
	p := newReplica(t, vfs.NewMem(), spool.Options{MaxBytes: 1})
	foreign := listed("10")
	foreign.Sink = "no sink of this configuration"
	for _, at := range []string{"10", "11"} {
		p.Follow([]Listed{listed(at), foreign})
		if p.State().Targets != 0 {
			t.Fatal("it records")
		}
	}
	if n := len(p.followed.tried); n != 1 {
		t.Errorf("%d recordings could not be begun, want 1", n)
	}
	p.Follow(nil)
	if n := len(p.followed.tried); n != 0 {
		t.Error("a recording that is not listed any more is waited for")
	}
}

// A standby that restarts goes on with what it has on disk, and a leader that restarts lists it, although it does not know yet what its sink has
// committed.
func TestStandbyRestarts(t *testing.T) {
	fs := vfs.NewMem()
	restart := func(p *replica) *replica {
		if err := p.Spool.Close(); err != nil {
			t.Fatal(err)
		}
		return newReplica(t, fs, spool.Options{SegmentBytes: 1})
	}
	p := newReplica(t, fs, spool.Options{SegmentBytes: 1})
	p.Follow([]Listed{listed("10")})
	p.record(11, 30)
	p = restart(p)
	if got := p.List(); len(got) != 1 || got[0].At.Committed != "10" || got[0].At.Epoch != 1 || !got[0].Waits {
		t.Errorf("a whole recording is listed as %+v", got)
	}
	p.Follow([]Listed{listed("20")})
	p.sweep(time.Now().Add(time.Hour))
	p.record(31, 32)
	p = restart(p)
	if got := p.List(); len(got) != 1 || got[0].At.Committed != "" || !got[0].Waits {
		t.Errorf("the rest of a recording is listed as %+v", got)
	}
	p.Lead()
	p.replays("20", 1, 21, 32)
}

// A bridge that is started with another cluster leaves what it has recorded of the first one as it is, and goes on with that when it is back: otherwise
// the second cluster's objects would replace those of the first. Only what may no longer be on the disk is deleted.
func TestAnotherCluster(t *testing.T) {
	fs := vfs.NewMem()
	in := func(cluster string, last *replica) *replica {
		if last != nil {
			if err := last.Spool.Close(); err != nil {
				t.Fatal(err)
			}
		}
		return newReplicaIn(t, cluster, fs, spool.Options{})
	}
	at := Position{Committed: "10", Epoch: 1, Read: "10"}
	a := in("a", nil)
	if _, err := a.Begin("audit", things, at); err != nil {
		t.Fatal(err)
	}
	a.record(11, 20)
	b := in("b", a)
	if s := b.State(); s.Targets != 0 || len(b.List()) > 0 || b.found("audit", things, at) != nil {
		t.Errorf("a recording of the other cluster is used: %+v", s)
	}
	if _, err := b.Begin("audit", things, Position{Committed: "500", Epoch: 1, Read: "500"}); err != nil {
		t.Fatal(err)
	}
	b.record(501, 502)
	b.Abandon("audit", things)
	b.Follow(nil)
	b.sweep(time.Now().Add(time.Hour))
	a = in("a", b)
	a.record(21, 22)
	a.replays("10", 1, 11, 22)
	b = in("b", a)
	b.Forbid("audit", things.Collection.ID())
	if n := len(b.Spool.List()); n > 0 {
		t.Errorf("%d segments of what may not be buffered are left", n)
	}
}

// The former leader keeps what it has recorded, and follows its successor.
func TestLeaderBecomesAStandby(t *testing.T) {
	p := newReplica(t, vfs.NewMem(), spool.Options{})
	p.Come("audit")
	use, err := p.Begin("audit", things, Position{Committed: "10", Epoch: 1, Read: "10"})
	if err != nil {
		t.Fatal(err)
	}
	p.record(11, 20)
	for range 10 {
		if _, err := use.Next(); err != nil {
			t.Fatal(err)
		}
	}
	use.Committed("15", 1)
	if err := use.Suspend(); err != nil {
		t.Fatal(err)
	}
	p.Stand()
	list := p.List()
	if len(list) != 1 || list[0].At.Committed != "15" {
		t.Fatalf("it lists %+v", list)
	}
	p.sweep(time.Now().Add(time.Hour))
	older := listed("12") // its successor had read the list earlier
	older.Waits = true
	p.Follow([]Listed{older})
	p.sweep(time.Now().Add(time.Hour))
	p.record(21, 30)
	p.Follow([]Listed{listed("18")})
	p.sweep(time.Now().Add(time.Hour))
	p.Lead()
	p.replays("18", 1, 19, 30)
}

// The list names the owner of the last list that the sink has committed: another one would prove to a standby that the objects are gone.
func TestListedOwner(t *testing.T) {
	p := newReplica(t, vfs.NewMem(), spool.Options{})
	owner := source.Owner{CRD: "first"}
	use, err := p.Begin("audit", things, Position{Committed: "10", Epoch: 1, Read: "10", Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	r := p.only()
	for _, s := range []string{"added a@11 resume 11", "list", "list ended 20", "added a@21 resume 21", "added a@22 resume 22", "new epoch", "list ended 5"} {
		if err := r.Handle(t.Context(), signal(t, s)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.flush(); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := use.Next(); err != nil {
			break
		}
	}
	for _, c := range []struct {
		committed string
		epoch     uint64
		want      Position
		history   bool
	}{
		{"", 1, Position{Committed: "10", Epoch: 1, Owner: owner}, true},
		{"11", 1, Position{Committed: "11", Epoch: 1, Owner: owner}, true},
		{"21", 1, Position{Committed: "21", Epoch: 1, Owner: source.Owner{CRD: "crd-20"}}, true},
		{"15", 1, Position{Committed: "21", Epoch: 1, Owner: source.Owner{CRD: "crd-20"}}, true},
		{"5", 2, Position{Committed: "5", Epoch: 2}, false},
	} {
		use.Committed(c.committed, c.epoch)
		l := p.List()[0]
		c.want.Seen = "5"
		if l.At != c.want || l.NewHistory != c.history {
			t.Errorf("after %q of epoch %d it lists %+v, want %+v", c.committed, c.epoch, l, c.want)
		}
	}
}

// A list that is too long loses its last entries, and is read back as it was written.
func TestEncodeList(t *testing.T) {
	l := List{Holder: "a", Number: 7, Sealed: true}
	for n := range 1000 {
		one := listed(fmt.Sprint(n * 7919))
		one.Target.Collection = event.Collection{Resource: "things", Namespace: fmt.Sprintf("n-%x", n*n*7907), LabelSelector: "team=a"}
		l.Recordings = append(l.Recordings, one)
	}
	whole, left, err := l.Encode(1 << 20)
	if err != nil || left > 0 {
		t.Fatalf("%d are left out: %v", left, err)
	}
	limit := len(whole) / 3
	data, left, err := l.Encode(limit)
	if err != nil || len(data) > limit || left < 300 || left > 800 {
		t.Fatalf("%d bytes, %d are left out: %v", len(data), left, err)
	}
	got, err := DecodeList(data)
	l.Version = listVersion
	if err != nil || !slices.Equal(got.Recordings, l.Recordings[:1000-left]) || got.Number != 7 || got.Holder != "a" || !got.Sealed {
		t.Errorf("read back as %d recordings, %+v: %v", len(got.Recordings), got.Version, err)
	}
	if _, left, err = l.Encode(1); err != nil || left != 1000 {
		t.Errorf("%d are left out where there is no room at all: %v", left, err)
	}
	for _, damaged := range [][]byte{nil, {1, 2, 3}, data[:len(data)/2]} {
		if _, err := DecodeList(damaged); !errors.Is(err, ErrList) {
			t.Errorf("%d bytes of it are read: %v", len(damaged), err)
		}
	}
}

// A disk that cannot be read for a moment, for example because the process has too many open files, does not show that a recording is of no use.
// A standby that replaced it would lose what the API server no longer has.
func TestUnreadableIsNotUseless(t *testing.T) {
	for _, c := range []struct {
		kind errorfs.OpKind
		err  error
	}{{errorfs.OpOpen, syscall.EMFILE}, {errorfs.OpFileReadAt, syscall.EIO}} {
		t.Run(c.err.Error(), func(t *testing.T) {
			var failing atomic.Bool
			fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
				if failing.Load() && op.Kind == c.kind {
					return c.err
				}
				return nil
			}))
			p := newReplica(t, fs, spool.Options{})
			p.Follow([]Listed{listed("10")})
			p.record(11, 30)
			before := p.only()
			failing.Store(true)
			p.Follow([]Listed{listed("20")})
			_, err := p.Find("audit", things, listed("20").At)
			failing.Store(false)
			if !errors.Is(err, ErrUnreadable) || !errors.Is(err, c.err) {
				t.Errorf("the error of a search does not say that the disk is the reason: %v", err)
			}
			if p.only() != before {
				t.Fatal("the recording was replaced")
			}
			p.Follow([]Listed{listed("20")})
			if got := p.List(); p.only() != before || len(got) != 1 || got[0].At.Committed != "20" {
				t.Errorf("the next list does not use it: %+v", got)
			}
			p.Lead()
			if err := p.replays("20", 1, 21, 30).Suspend(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A process that cannot read a recording when it starts keeps what is there, and goes on recording when it can.
func TestUnreadableAtTheStart(t *testing.T) {
	fs := vfs.NewMem()
	p := newReplica(t, fs, spool.Options{})
	p.Follow([]Listed{listed("10")})
	p.record(11, 30)
	if err := p.Spool.Close(); err != nil {
		t.Fatal(err)
	}
	var opened atomic.Int32 // the spool opens each segment first
	p = newReplica(t, errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpOpen && !strings.HasSuffix(op.Path, "LOCK") && opened.Add(1) == 2 {
			return syscall.EMFILE
		}
		return nil
	})), spool.Options{})
	if opened.Load() < 2 {
		t.Fatalf("%d files were opened", opened.Load())
	}
	if err := p.replays("20", 1, 21, 30).Suspend(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); p.List()[0].At.Seen != "30"; time.Sleep(10 * time.Millisecond) {
		if why := p.only().hasEnded(); why != nil || time.Now().After(deadline) {
			t.Fatalf("its end is not known: %+v, ended: %v", p.List(), why)
		}
	}
	p.record(31, 40)
	p.replays("20", 1, 21, 40)
}

// A standby replaces a recording that has ended once the sink has committed what it has, also if its last frame is damaged, or in a list.
func TestStandbyReplacesWhatHasEnded(t *testing.T) {
	for name, end := range map[string]func(*replica) *replica{
		"its last frame is damaged": func(p *replica) *replica {
			stream := p.only().stream
			_, err := stream.Append([]byte("damaged"))
			if err := errors.Join(err, stream.Flush(true), p.Spool.Close()); err != nil {
				p.Fatal(err)
			}
			return newReplica(p.T, p.fs, spool.Options{})
		},
		"it is in a list": func(p *replica) *replica {
			r := p.only()
			if err := errors.Join(r.Handle(p.Context(), signal(p.T, "list")), r.flush()); err != nil {
				p.Fatal(err)
			}
			r.finish(errors.New("full"))
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newReplica(t, vfs.NewMem(), spool.Options{})
			p.Follow([]Listed{listed("10")})
			p.record(11, 30)
			p = end(p)
			before := p.only()
			if before.hasEnded() == nil {
				t.Fatal("it has not ended")
			}
			if p.Follow([]Listed{listed("20")}); p.only() != before {
				t.Error("it was replaced while it was of use")
			}
			if p.Follow([]Listed{listed("30")}); p.only() == before || p.only().Start != "30" {
				t.Error("it was not replaced")
			}
		})
	}
}
