package buffer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap/zaptest"

	"github.com/kubebridge/kubebridge/internal/base/spool"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// object returns an object with a name and a version.
func object(t testing.TB, name, version string) *source.Object {
	o, err := source.ParseObject(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Thing","metadata":{"name":%q,"namespace":"shop","resourceVersion":%q,"uid":"u-%s"}}`, name, version, name))
	if err != nil {
		t.Fatal(err)
	}
	return &o
}

// signal parses a signal. Examples: "added a@11 resume 10", "listed a@5", "progress 12", "list", "new epoch", "list
// ended 20".
func signal(t testing.TB, text string) source.Signal {
	words := strings.Fields(text)
	last := words[len(words)-1]
	switch words[0] {
	case "list":
		if len(words) > 1 {
			return source.Signal{Kind: source.ListEnded, RV: last, Owner: source.Owner{CRD: "crd-" + last}}
		}
		return source.Signal{Kind: source.ListBegun, Reason: event.ReasonExpired, Detail: "why"}
	case "new":
		return source.Signal{Kind: source.ListBegun, Reason: event.ReasonHistory, NewEpoch: true}
	case "progress":
		return source.Signal{Kind: source.Progress, RV: last, Resume: last}
	}
	name, version, _ := strings.Cut(words[1], "@")
	s := source.Signal{Object: object(t, name, version)}
	if words[0] == "listed" {
		s.Kind = source.Listed
		return s
	}
	s.Kind = map[string]source.SignalKind{"added": source.Added, "modified": source.Modified, "deleted": source.Deleted}[words[0]]
	s.Resume = last
	return s
}

// text is the reverse of signal: it writes a frame as text.
func text(f Frame) string {
	switch {
	case f.NewEpoch:
		return "new epoch"
	case f.Kind == source.ListBegun:
		return "list"
	case f.Kind == source.ListEnded:
		return "list ended " + f.RV
	case f.Kind == source.Progress:
		return "progress " + f.RV
	case f.Kind == source.Listed:
		return "listed " + f.Object.Name + "@" + f.Object.ResourceVersion
	}
	return fmt.Sprintf("%s %s@%s resume %s", f.Kind, f.Object.Name, f.Object.ResourceVersion, f.Resume)
}

// rig has a spool with one recording.
type rig struct {
	*testing.T
	fs    vfs.FS
	o     spool.Options
	spool *spool.Spool
	r     *Recording
}

var things = source.Target{Resource: source.Resource{Version: "v1", Name: "things", Kind: "Thing", Namespaced: true}}

// newRig returns a rig whose recording begins at the position start, for the sink "audit".
func newRig(t *testing.T, start string, o spool.Options) *rig {
	g := &rig{T: t, fs: vfs.NewMem(), o: o}
	g.open()
	r, err := newRecording(g.spool.Stream("s"), metadata{Cluster: "a", Target: things, Sink: "audit", Start: start, Epoch: 1, End: end{Resume: start, Seen: start, Reached: start}}, zaptest.NewLogger(t))
	g.must(err)
	r.frames = new(atomic.Uint64)
	g.r = r
	return g
}

func (g *rig) must(err error) {
	if err != nil {
		g.Helper()
		g.Fatal(err)
	}
}

func (g *rig) open() {
	g.o.FS = g.fs
	s, err := spool.Open("buffer", g.o)
	g.must(err)
	g.spool = s
	g.Cleanup(func() { _ = s.Close() })
}

// restart opens the spool again and continues the recording.
func (g *rig) restart() {
	g.Helper()
	g.must(g.r.stream.Flush(true))
	g.must(g.spool.Close())
	g.open()
	r, err := continued(g.spool.Stream("s"), zaptest.NewLogger(g.T))
	g.must(err)
	r.frames = new(atomic.Uint64)
	g.r = r
}

// record records signals.
func (g *rig) record(signals ...string) {
	g.Helper()
	for _, s := range signals {
		g.must(g.r.Handle(g.Context(), signal(g, s)))
	}
	g.must(g.r.flush())
}

// all returns the signals that a sink replays up to the present end.
func (g *rig) all(u *Use) (got []string) {
	g.Helper()
	for {
		f, err := u.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		g.must(err)
		got = append(got, text(f))
	}
}

func (g *rig) use(committed, read string) *Use {
	g.Helper()
	u, err := g.r.use(Position{Committed: committed, Epoch: 1, Read: read})
	g.must(err)
	return u
}

func (g *rig) want(got []string, want ...string) {
	g.Helper()
	if !slices.Equal(got, want) {
		g.Errorf("got %q, want %q", got, want)
	}
}

func TestFrames(t *testing.T) {
	at := time.Unix(1, 2)
	deleted := signal(t, "deleted a@3 resume 2")
	deleted.Left, deleted.LeftUnknown = true, true
	deleted.Object.CutFrom = 1 << 20
	for _, s := range []source.Signal{signal(t, "added a@3 resume 2"), deleted, signal(t, "list"), signal(t, "new epoch"), signal(t, "list ended 9"), signal(t, "progress 7")} {
		got, err := Decode((&Frame{Signal: s, At: at}).append(nil))
		if err != nil || !got.At.Equal(at) {
			t.Fatalf("%+v: %v", got, err)
		}
		head, object, err := decodeHead((&Frame{Signal: s, At: at}).append(nil))
		if err != nil || (object == nil) != (s.Object == nil) || head.version() != got.version() || head.latest() != got.latest() || head.after() != got.after() {
			t.Errorf("without its object, the frame has the versions %q, %q and %q, want %q, %q and %q: %v", head.version(), head.latest(), head.after(), got.version(), got.latest(), got.after(), err)
		}
		if s.Object != nil {
			if string(got.Object.Raw) != string(s.Object.Raw) || got.Object.UID != s.Object.UID || got.Object.CutFrom != s.Object.CutFrom {
				t.Errorf("the object is %+v, want %+v", got.Object, s.Object)
			}
			got.Object, s.Object = nil, nil
		}
		if got.Signal != s {
			t.Errorf("got %+v, want %+v", got.Signal, s)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{"added a@3 resume 2", "list", "list ended 9"} {
		f.Add((&Frame{Signal: signal(f, s), At: time.Unix(1, 2)}).append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Decode(frame.append(nil))
		if err != nil || again.Kind != frame.Kind || again.Resume != frame.Resume || !again.At.Equal(frame.At) {
			t.Fatalf("%+v is read back as %+v, %v", frame, again, err)
		}
	})
}

// What may no longer be on the disk is deleted, also while a sink reads it.
func TestForbid(t *testing.T) {
	g := newRig(t, "20", spool.Options{})
	g.record("added a@21 resume 20")
	g.r.Target.Collection.Resource = "things"
	u, behind := g.use("20", "20"), g.use("21", "21")
	b := New(Options{Spool: g.spool, Log: zaptest.NewLogger(t)})
	b.recordings[keyOf("audit", things)] = []*Recording{g.r}
	b.Forbid("audit", "others")
	b.Forbid("other", "things")
	if n := b.State().Targets; n != 1 || len(g.spool.List()) == 0 {
		t.Fatalf("%d recordings, and %d segments, after others were forbidden", n, len(g.spool.List()))
	}
	b.Forbid("audit", "things")
	if n := b.State().Targets; n != 0 || len(g.spool.List()) > 0 {
		t.Errorf("%d recordings, and segments %v", n, g.spool.List())
	}
	for _, u := range []*Use{u, behind} {
		if f, err := u.Next(); !errors.Is(err, ErrEnd) {
			t.Errorf("the sink reads %q, %v", text(f), err)
		}
	}
}

// Where the API server no longer has the changes after the committed position, a recording begins with a list. A sink that has read further
// does not need the list, and begins another recording.
func TestForgottenPosition(t *testing.T) {
	for _, c := range []struct {
		read, recorded string // with a list at its end
		forgotten      bool
	}{
		{"30", "list", true},
		{"30", "added a@25 resume 20", true}, // then it was forgotten
		{"30", "added a@31 resume 30", false},
		{"20", "list", false}, // the sink has read no further: the changes are missing
		{"30", "new epoch", false},
	} {
		g := newRig(t, "20", spool.Options{})
		g.record(c.recorded)
		if c.recorded != "list" {
			g.record("list")
		}
		u := g.use("20", c.read)
		_, err := u.Next()
		if forgotten := errors.Is(err, ErrForgotten); forgotten != c.forgotten || err != nil && !forgotten {
			t.Errorf("read up to %s, recorded %q: %v", c.read, c.recorded, err)
		}
	}
}

// opaque returns a signal, or a position, with resourceVersions that are not numbers.
func opaque(s string) string { return version.ReplaceAllString(s, "v$0") }

var version = regexp.MustCompile(`\b\d+\b`)

// A sink gets exactly what a watch from its position would send. Where resourceVersions are not numbers, the recording has to have its position.
func TestWhereASinkBegins(t *testing.T) {
	for _, notation := range []func(string) string{strings.Clone, opaque} {
		whereASinkBegins(t, notation)
	}
}

func whereASinkBegins(t *testing.T, notation func(string) string) {
	start, numbers := notation("10"), notation("10") == "10"
	recorded := []string{
		"added a@11 resume 10", "added b@12 resume 11", "progress 15", "added c@17 resume 15",
		"list", "listed a@11", "listed c@40", "list ended 50", "deleted a@51 resume 50",
		"new epoch", "listed a@5", "list ended 30", "added d@31 resume 30",
	}
	for i, s := range recorded {
		recorded[i] = notation(s)
	}
	for _, c := range []struct {
		at    string
		first int // index in recorded; -1: the recording does not reach back
	}{
		{"9", -1}, {"10", 0}, {"11", 1}, {"12", 2}, {"14", 2}, {"15", 3}, {"16", 3}, {"17", 4}, {"30", -1}, {"49", -1}, {"50", 8}, {"51", 9}, {"60", -1},
	} {
		if !numbers && (c.at == "14" || c.at == "16") { // between two frames
			c.first = -1
		}
		c.at = notation(c.at)
		for _, every := range []int{0, 1, 2, 3} { // after how many frames metadata is written again; 0: never
			g := newRig(t, start, spool.Options{})
			for i, s := range recorded {
				if every > 0 && i%every == 0 {
					g.r.since = g.r.metadataEvery()
				}
				g.record(s)
			}
			g.restart()
			u := g.use(c.at, c.at)
			switch {
			case c.first < 0 && u != nil:
				t.Errorf("%s, metadata every %d frames: the recording is used", c.at, every)
			case c.first >= 0 && u == nil:
				t.Errorf("%s, metadata every %d frames: the recording is not used", c.at, every)
			case u != nil:
				g.want(g.all(u), recorded[c.first:]...)
			}
		}
	}
}

// Frames that a sink has read but not committed are kept for the next start. Until then, the sink does not read them
// twice.
func TestReadIsNotCommitted(t *testing.T) {
	for _, notation := range []func(string) string{strings.Clone, opaque} {
		start, first, second, third := notation("10"), notation("added a@11 resume 10"), notation("deleted a@12 resume 11"), notation("added a@13 resume 12")
		g := newRig(t, start, spool.Options{})
		u := g.use(start, notation("12"))
		g.record(first)
		g.want(g.all(u))
		g.record(second, third)
		g.want(g.all(u), third)
		g.record(notation("added b@14 resume 13"))
		g.want(g.all(u), notation("added b@14 resume 13"))
		g.restart()
		g.want(g.all(g.use(start, start)), first, second, third, notation("added b@14 resume 13"))
		g.want(g.all(g.use(notation("12"), notation("12"))), third, notation("added b@14 resume 13"))
	}
}

// A position may be that of a bookmark, which another watch does not get. Among resourceVersions that are not numbers it is then not found. The
// next bookmark shows that the API server has passed it, and the sink gets no frame that it has read.
func TestReadUpToABookmark(t *testing.T) {
	g := newRig(t, "v10", spool.Options{})
	u := g.use("v10", "v13")
	g.record("added a@v11 resume v10", "added a@v14 resume v11")
	g.want(g.all(u))
	g.record("progress v15")
	if f, err := u.Next(); !errors.Is(err, ErrForgotten) {
		t.Errorf("got %q, %v", text(f), err)
	}
}

func TestGoesOnAfterARestart(t *testing.T) {
	for _, c := range []struct {
		recorded     []string
		resume, seen string
		owner        string
	}{
		{[]string{"added a@11 resume 10"}, "10", "11", ""},
		{[]string{"added a@11 resume 10", "progress 15"}, "15", "15", ""},
		{[]string{"added a@11 resume 10", "list", "listed a@13"}, "", "13", ""},
		{[]string{"list", "listed a@11", "list ended 20"}, "20", "20", "crd-20"},
		{[]string{"list", "list ended 20", "new epoch", "listed a@5"}, "", "5", "crd-20"},
	} {
		for _, every := range []int{0, 1, 2} { // after how many frames metadata is written again; 0: never
			g := newRig(t, "10", spool.Options{})
			for i, s := range c.recorded {
				if every > 0 && i%every == 0 {
					g.r.since = g.r.metadataEvery()
				}
				g.record(s)
			}
			want := end{Resume: c.resume, Seen: c.seen, Owner: source.Owner{CRD: c.owner}, Reached: g.r.End.Reached, NewHistory: g.r.End.NewHistory}
			g.restart()
			if g.r.End != want || g.r.Target != things || g.r.ended != nil {
				t.Errorf("%q: it goes on with %+v, want %+v; %+v: %v", c.recorded, g.r.End, want, g.r.Target, g.r.ended)
			}
			if g.r.needs.since.IsZero() || g.r.Sink != "audit" {
				t.Errorf("%q: it does not wait for the sink", c.recorded)
			}
		}
	}
}

// Frames are deleted only after the sink has committed them, and the sink still finds its position.
func TestTrim(t *testing.T) {
	for _, notation := range []func(string) string{strings.Clone, opaque} {
		trims(t, notation)
	}
}

func trims(t *testing.T, notation func(string) string) {
	g := newRig(t, notation("10"), spool.Options{SegmentBytes: 1}) // each flush ends a segment
	for n := 11; n < 40; n++ {
		g.record(notation(fmt.Sprintf("added a%d@%d resume %d", n, n, n-1)))
	}
	left := func() int { return len(g.r.stream.Segments()) }
	u := g.use(notation("10"), notation("10"))
	g.all(u)
	whole := left()
	g.must(g.r.trim())
	if left() < whole-1 { // the metadata has a segment
		t.Errorf("%d of %d segments are left, although the sink has committed nothing", left(), whole)
	}
	u.Committed(notation("20"), 1)
	g.must(g.r.trim())
	if n := left(); n > whole-8 {
		t.Errorf("%d of %d segments are left", n, whole)
	}
	g.restart() // nothing is deleted before the sink has come
	n := left()
	g.must(g.r.trim())
	if left() != n {
		t.Error("what an expected sink may need is deleted")
	}
	g.want(g.all(g.use(notation("20"), notation("20")))[:1], notation("added a21@21 resume 20"))
	if u, err := g.r.use(Position{Committed: notation("12"), Epoch: 1, Read: notation("12")}); u != nil || err != nil {
		t.Errorf("the recording reaches back to what was deleted: %v", err)
	}
}

// Frames with one position are trimmed together. Frames of a new history are not trimmed: their versions do not compare with the sink's
// position.
func TestMarks(t *testing.T) {
	g := newRig(t, "10", spool.Options{})
	u := g.use("10", "10")
	g.record("added a@11 resume 10", "added b@12 resume 11", "added c@12 resume 11", "added d@12 resume 11", "new epoch", "list ended 5", "added e@6 resume 5")
	g.all(u)
	u.Committed("11", 1)
	if u.done != 2 { // the frame of a, behind that of the metadata
		t.Errorf("everything up to frame %d counts as committed", u.done)
	}
	u.Committed("12", 1)
	if u.done != 2 {
		t.Errorf("everything up to frame %d counts as committed, in another history", u.done)
	}
	if other, err := g.r.use(Position{Committed: "6", Epoch: 2, Read: "6"}); other != nil || err != nil {
		t.Errorf("a position of another epoch is found: %v", err)
	}
}

// A recording is needed while a sink uses it or may use it again.
func TestNeeded(t *testing.T) {
	g := newRig(t, "10", spool.Options{})
	later := func() time.Time { return time.Now().Add(time.Hour) }
	u := g.use("10", "10")
	g.must(u.Suspend())
	if g.r.unneeded(later()) {
		t.Error("a sink that will come again is forgotten")
	}
	u = g.use("10", "10")
	g.r.leave(nil) // the sink uses it
	if g.r.unneeded(later()) {
		t.Error("a sink that uses it is forgotten")
	}
	g.must(u.Close())
	if g.r.unneeded(time.Now()) || !g.r.unneeded(later()) {
		t.Error("it is not kept for a while, or always")
	}
}

// The recording waits for a sink until the sink has had the time to use it.
func TestOverdue(t *testing.T) {
	g := newRig(t, "10", spool.Options{})
	began := time.Now()
	waits := func() bool { return !g.r.needs.since.IsZero() }
	g.r.overdue(time.Time{}, began.Add(time.Hour)) // the sink's bus may be unreachable
	if !waits() {
		t.Error("a sink that could not come is forgotten")
	}
	come := began.Add(time.Hour)
	g.r.overdue(come, began.Add(time.Hour+comeWithin/2))
	if !waits() {
		t.Error("a sink that could have come just now is forgotten")
	}
	g.r.overdue(come, began.Add(time.Hour+2*comeWithin))
	if waits() {
		t.Error("a sink that does not come is waited for without end")
	}
	u := g.use("10", "10")
	g.r.overdue(come, began.Add(24*time.Hour))
	if !waits() {
		t.Error("a sink that uses the recording is forgotten")
	}
	g.must(u.Suspend())
	g.r.overdue(began, began.Add(comeWithin/2))
	if !waits() {
		t.Error("a sink that will come again is forgotten at once")
	}
}

// When the buffer is full, the frames in it are replayed.
func TestFull(t *testing.T) {
	g := newRig(t, "10", spool.Options{MaxBytes: 1 << 20})
	u := g.use("10", "10")
	large := func(n int) source.Signal {
		s := signal(t, fmt.Sprintf("added a%d@%d resume %d", n, n, n-1))
		o, err := source.ParseObject(slices.Concat(s.Object.Raw[:len(s.Object.Raw)-1], []byte(`,"x":"`), noise(200<<10), []byte(`"}`)))
		g.must(err)
		s.Object = &o
		return s
	}
	n, err := 11, error(nil)
	for ; err == nil && n < 100; n++ {
		if err = g.r.Handle(t.Context(), large(n)); err == nil {
			g.must(g.r.flush())
		}
	}
	if !errors.Is(err, spool.ErrFull) {
		t.Fatalf("frame %d: %v", n, err)
	}
	g.r.finish(err)
	for want := 11; want < n-1; want++ {
		f, err := u.Next()
		g.must(err)
		if f.Object.ResourceVersion != fmt.Sprint(want) {
			t.Fatalf("got %s, want %d", text(f), want)
		}
	}
	if _, err := u.Next(); !errors.Is(err, ErrEnd) || !errors.Is(err, spool.ErrFull) {
		t.Errorf("the end: %v", err)
	}
}

// noise returns text that cannot be compressed well.
func noise(n int) []byte {
	out := make([]byte, n)
	x := uint32(1)
	for i := range out {
		x = x*1664525 + 1013904223
		out[i] = 'A' + byte(x>>24)%58
		if out[i] == '\\' {
			out[i] = 'z'
		}
	}
	return out
}

// A recording with missing frames is replayed up to the first missing one.
func TestDamage(t *testing.T) {
	g := newRig(t, "10", spool.Options{SegmentBytes: 1})
	g.record("added a@11 resume 10")
	g.record("added b@12 resume 11")
	g.record("added c@13 resume 12")
	g.must(g.r.stream.Flush(true))
	segments := g.r.stream.Segments()
	i := slices.IndexFunc(segments, func(s spool.Segment) bool { return s.First == 3 }) // the metadata is a frame, too
	g.must(g.spool.Close())
	g.must(g.fs.Remove(segments[i].File))
	g.open()
	r, err := continued(g.spool.Stream("s"), zaptest.NewLogger(t))
	g.must(err)
	g.r = r
	u := g.use("10", "10")
	f, err := u.Next()
	g.must(err)
	g.want([]string{text(f)}, "added a@11 resume 10")
	if _, err := u.Next(); !errors.Is(err, ErrEnd) || !errors.Is(err, spool.ErrBroken) || r.hasEnded() == nil {
		t.Errorf("the end: %v, ended: %v", err, r.hasEnded())
	}
}

// With a key, no text of an object is on the disk.
func TestSealed(t *testing.T) {
	const secret = "correct horse battery staple"
	for _, sealed := range []bool{false, true} {
		o := spool.Options{}
		if sealed {
			o.Key = bytes.Repeat([]byte("k"), 32)
		}
		g := newRig(t, "10", o)
		s := signal(t, "added a@11 resume 10")
		object, err := source.ParseObject(slices.Concat(s.Object.Raw[:len(s.Object.Raw)-1], []byte(`,"x":"`+secret+`"}`)))
		g.must(err)
		s.Object = &object
		g.must(g.r.Handle(t.Context(), s))
		g.must(g.r.stream.Flush(true))
		found := false
		names, err := g.fs.List("buffer")
		g.must(err)
		for _, name := range names {
			f, err := g.fs.Open(g.fs.PathJoin("buffer", name))
			g.must(err)
			all, err := io.ReadAll(f)
			g.must(errors.Join(err, f.Close()))
			found = found || bytes.Contains(all, []byte(secret))
		}
		if found == sealed {
			t.Errorf("sealed: %t, found: %t", sealed, found)
		}
	}
}

// An edit waits for a recording that the sink reads, or has to come for, and for no other.
func TestRecorded(t *testing.T) {
	g := newRig(t, "10", spool.Options{})
	b := New(Options{Spool: g.spool, Log: zaptest.NewLogger(t)})
	b.recordings["key"] = []*Recording{g.r}
	recorded := func(sink string, want bool) {
		t.Helper()
		targets := b.Recorded(sink, things.Collection.ID())
		if got := slices.Equal(targets, []source.Target{things}); got != want || !want && len(targets) > 0 {
			t.Errorf("%s: recorded %v, want %t", sink, targets, want)
		}
	}
	recorded("audit", true)
	recorded("other", false)
	if got := b.Recorded("audit", "others"); len(got) > 0 {
		t.Errorf("recorded %v of another collection", got)
	}
	u := g.use("10", "10")
	recorded("audit", true)
	g.must(u.Suspend())
	recorded("audit", true)
	g.must(g.use("10", "10").Close())
	recorded("audit", false)
}

// What maxAge deletes of a recording is shown if the sink needs it, and has not committed it.
func TestAged(t *testing.T) {
	g := newRig(t, "10", spool.Options{SegmentBytes: 1})
	b := New(Options{Spool: g.spool, Log: zaptest.NewLogger(t), MaxAge: time.Hour})
	b.recordings["key"] = []*Recording{g.r}
	g.record("added a@11 resume 10")
	g.record("added b@12 resume 11")
	u := g.use("10", "10")
	g.all(u)
	u.Committed("11", 1)
	b.sweep(time.Now())
	if s := b.State(); s.Aged != 0 {
		t.Errorf("%d recordings have lost frames", s.Aged)
	}
	for range 2 {
		b.sweep(time.Now().Add(2 * time.Hour))
	}
	if s := b.State(); s.Aged != 1 {
		t.Errorf("%d recordings have lost frames, want 1", s.Aged)
	}
}

// A recording that cannot begin is counted.
func TestBeginFails(t *testing.T) {
	files, err := spool.Open("buffer", spool.Options{FS: vfs.NewMem(), MaxBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = files.Close() }()
	b := New(Options{Spool: files, Log: zaptest.NewLogger(t)})
	if use, err := b.Begin("audit", things, Position{Committed: "10", Read: "10"}); err == nil || use != nil {
		t.Error("a recording begins in a full buffer")
	}
	if s := b.State(); s.Failed != 1 || s.Targets != 0 {
		t.Errorf("got %+v", s)
	}
}
