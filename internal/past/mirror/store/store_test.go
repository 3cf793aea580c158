package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const dir = "/mirror"

var pods = Resource{"prod", "pods"}

type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

func must(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

func openTest(t tester, fsys vfs.FS) *Store {
	t.Helper()
	s, err := Open(dir, Options{FS: fsys})
	must(t, err)
	return s
}

// written is a version as the model has it.
type written struct {
	Name
	collection string
	at         Position
	Version
}

// model computes from all writes what views and changes must be.
type model struct {
	all   []written
	drops []drop
}

// hides reports whether a version does not count in a view, and dropped whether it counts in none of its era.
func (m *model) hides(w written, view Position) bool {
	return slices.ContainsFunc(m.drops, func(d drop) bool { return d.collection == w.collection && d.hides(w.at, view) })
}

func (m *model) dropped(w written) bool { return m.hides(w, w.at) }

func (m *model) get(o Name, view Position) string {
	newest := map[string]written{}
	for _, w := range m.all {
		if w.Name == o && w.at.Compare(view) <= 0 && w.at.Compare(newest[w.collection].at) > 0 {
			newest[w.collection] = w
		}
	}
	best := written{}
	for _, c := range collections {
		w, ok := newest[c]
		gone := m.hides(w, view)
		if ok && !w.Deleted && !gone && (best.Body == nil || w.Epoch > best.Epoch || w.Epoch == best.Epoch && w.ResourceVersion > best.ResourceVersion) {
			best = w
		}
	}
	return string(best.Body)
}

var (
	collections = []string{"pods", "pods:a", "pods:a@x"}
	names       = []Name{{"", "a"}, {"ns", "a"}, {"ns", "a\x00b"}, {"ns", "b"}, {"ns\x00", "z"}, {"ns2", "a"}}
)

func body(o *Object) string {
	if o == nil {
		return ""
	}
	return string(o.Body)
}

// TestModel: every view, list and change is that of a model, also after moves, drops, trims and restarts. A store that differs would
// show clients objects that were deleted, or hide others.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fsys := vfs.NewMem()
		s := openTest(t, fsys)
		defer func() { must(t, s.Close()) }()
		m := &model{}
		era, seq, floor, served := uint64(1), uint64(0), Position{}, Position{Era: 1}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch n := rapid.IntRange(-1, 19).Draw(t, "step"); {
			case n < 0:
				if served.Era == era {
					continue
				}
				b, d := s.Batch(), drop{pods, rapid.SampledFrom(collections).Draw(t, "dropped"), dropAt{era, seq}} // of an era that is not served yet
				must(t, b.Drop(d.resource, d.collection, d.era, d.seq))
				must(t, b.Commit())
				m.drops = append(m.drops, d)
			case n < 14:
				seq++
				w := written{
					Name: rapid.SampledFrom(names).Draw(t, "name"), collection: rapid.SampledFrom(collections).Draw(t, "collection"),
					at: Position{era, rapid.Uint64Range(served.Version, served.Version+8).Draw(t, "at"), seq},
				}
				if w.at.Compare(floor) <= 0 {
					continue
				}
				w.Version = Version{
					Deleted: rapid.IntRange(0, 3).Draw(t, "deleted") == 0, UID: "u", Epoch: rapid.Uint64Range(1, 2).Draw(t, "epoch"), ResourceVersion: w.at.Version,
					Time: time.UnixMicro(int64(seq)).UTC(), Body: fmt.Appendf(nil, "%s %d", w.collection, seq),
				}
				if rapid.Bool().Draw(t, "large") { // pebble writes it to a file of its own
					w.Body = append(w.Body, make([]byte, 2*separation().MinimumSize)...)
				}
				b := s.Batch()
				hidden := func(x written) bool { return x.collection == w.collection && m.dropped(x) && x.at.Era == era }
				if slices.ContainsFunc(m.all, hidden) || served.Era < era && rapid.IntRange(0, 3).Draw(t, "replace") == 0 {
					must(t, b.RemoveAfter(pods, w.Name, w.collection, w.at))
					m.all = slices.DeleteFunc(m.all, func(x written) bool {
						return x.Name == w.Name && x.collection == w.collection && x.at.Era == era && x.at.Compare(w.at) > 0
					})
				}
				must(t, b.Put(pods, w.Name, w.collection, w.at, &w.Version))
				must(t, b.Put(Resource{"prod", "pods\x00"}, w.Name, w.collection, w.at, &w.Version)) // another resource beside it
				must(t, b.Commit())
				m.all = append(m.all, w)
			case n < 15:
				served.Version += rapid.Uint64Range(0, 8).Draw(t, "further")
				served.Era, served.Seq = era, seq
			case n < 17: // an era ends; what is not served belongs to the next one, except that of one collection
				except := rapid.SampledFrom(collections).Draw(t, "except")
				b := s.Batch()
				after := served
				if after.Era < era {
					after = Position{Era: era}
				}
				moved, _, err := b.MoveAfter(pods, after, era+1, []string{except})
				must(t, err)
				if _, ok := moved[except]; ok {
					t.Fatalf("moved are %v, without %s", moved, except)
				}
				if rapid.Bool().Draw(t, "drop") {
					must(t, b.Drop(pods, except, era+1, seq))
					m.drops = append(m.drops, drop{pods, except, dropAt{era + 1, seq}})
				}
				must(t, b.Commit())
				era++
				for i, w := range m.all {
					if w.at.Compare(after) > 0 && w.collection != except && !m.dropped(w) {
						m.all[i].at.Era = era
					}
				}
			case n < 18:
				if rapid.Bool().Draw(t, "merge") {
					must(t, s.db.Flush())
					must(t, s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false))
				}
				must(t, s.Close())
				s = openTest(t, fsys)
			default:
				if floor.Compare(served) < 0 {
					floor = served
				}
				must(t, s.Trim(t.Context(), pods, floor))
			}
		}
		views := []Position{floor, served, {era, ^uint64(0), ^uint64(0)}}
		for _, w := range m.all {
			views = append(views, w.at, w.at.before())
		}
		for _, view := range views {
			if view.Compare(floor) >= 0 {
				checkView(t, s, m, view)
			}
		}
		checkChanges(t, s, m, floor)
	})
}

func checkView(t *rapid.T, s *Store, m *model, view Position) {
	var want, got []string
	for _, o := range names {
		x, err := s.Get(View{pods, view}, o)
		must(t, err)
		if body(x) != m.get(o, view) {
			t.Fatalf("at %v %q is %q, want %q", view, o, body(x), m.get(o, view))
		}
		if x := m.get(o, view); x != "" {
			want = append(want, x)
		}
	}
	after := Name{}
	for page := 1; page > 0; {
		page = 0
		must(t, s.List(View{pods, view}, "", after, func(o *Object) bool {
			got, after = append(got, body(o)), o.Name
			page++
			return page < 2
		}))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("the list at %v in pages (-want +got):\n%s", view, diff)
	}
	got = nil
	must(t, s.List(View{pods, view}, "ns", Name{}, func(o *Object) bool { got = append(got, body(o)); return true }))
	want = nil
	for _, o := range names[1:4] {
		if x := m.get(o, view); x != "" {
			want = append(want, x)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("the list of a namespace at %v (-want +got):\n%s", view, diff)
	}
}

func checkChanges(t *rapid.T, s *Store, m *model, floor Position) {
	all := slices.Clone(m.all)
	slices.SortFunc(all, func(a, b written) int { return a.at.Compare(b.at) })
	var want, got []string
	for i, w := range all {
		first, last := w, true
		for j, x := range all {
			if x.Name == w.Name && x.at.Era == w.at.Era && x.at.Version == w.at.Version && x.at.Compare(floor) > 0 {
				last = last && j <= i
				if x.at.Compare(first.at) < 0 {
					first = x
				}
			}
		}
		if before, after := m.get(w.Name, first.at.before()), m.get(w.Name, w.at); last && w.at.Compare(floor) > 0 && before != after {
			want = append(want, fmt.Sprintf("%v %q: %s → %s", w.at, w.Name, before, after))
		}
	}
	must(t, s.Changes(t.Context(), pods, "", floor, Position{^uint64(0), 0, 0}, func(c *Change) bool {
		got = append(got, fmt.Sprintf("%v %q: %s → %s", c.At, c.Name, body(c.Before), body(c.After)))
		if c.Last.Body == nil {
			t.Fatalf("change %v has no version", c.At)
		}
		return true
	}))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("the changes after %v (-want +got):\n%s", floor, diff)
	}
}

// stopping is a context that ends once it was asked so many times.
type stopping struct {
	context.Context
	left int
}

func (c *stopping) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestTrimUnfinished: a trim that ends in the middle does not show a deleted object again.
func TestTrimUnfinished(t *testing.T) {
	s := openTest(t, vfs.NewMem())
	defer s.Close()
	b := s.Batch()
	last := uint64(3*trimBatch + 1)
	for i := range last {
		must(t, b.Put(pods, names[0], "pods", Position{1, i + 1, i + 1}, &Version{UID: "u", Epoch: 1, ResourceVersion: i + 1, Deleted: i+1 == last}))
	}
	must(t, b.Commit())
	for stop := 0; ; stop++ {
		err := s.Trim(&stopping{t.Context(), stop}, pods, Position{1, last, last})
		if o, failed := s.Get(View{pods, Position{1, last, last}}, names[0]); o != nil || failed != nil {
			t.Fatalf("after a trim that ended at question %d, the deleted object is shown at %v (%v)", stop, o.At, failed)
		}
		if err == nil {
			break
		}
	}
	n := 0
	must(t, s.scan([]byte{keyVersion}, func(_, _ []byte) error { n++; return nil }))
	if n != 0 {
		t.Errorf("%d versions are left", n)
	}
}

// TestTrimDrops: drops of collections do not stay without end. The trim that deletes the versions they concern keeps them, because lists go on meanwhile.
func TestTrimDrops(t *testing.T) {
	fsys := vfs.NewMem()
	s := openTest(t, fsys)
	b := s.Batch()
	for era := range uint64(4) {
		must(t, b.Put(pods, names[0], "pods", Position{era + 1, 1, era + 1}, &Version{UID: "u", Epoch: 1, ResourceVersion: 1}))
		must(t, b.Drop(pods, "pods", era+2, era+1))
	}
	must(t, b.Commit())
	for _, want := range []struct {
		floor Position
		drops []uint64
	}{
		{Position{3, 1, 3}, []uint64{2, 3, 4, 5}},
		{Position{3, 1, 3}, []uint64{2, 3, 4, 5}},
		{Position{4, 1, 4}, []uint64{3, 4, 5}},
		{Position{5, 0, 0}, []uint64{4, 5}},
		{Position{6, 0, 0}, []uint64{5}},
		{Position{7, 0, 0}, nil},
	} {
		must(t, s.Trim(t.Context(), pods, want.floor))
		var got []uint64
		for _, d := range s.drops[pods]["pods"] {
			got = append(got, d.era)
		}
		if !slices.Equal(got, want.drops) {
			t.Errorf("trimmed below %v, the drops are of the eras %v, want %v", want.floor, got, want.drops)
		}
		kept := 0
		must(t, s.scan([]byte{keyDrop}, func(_, _ []byte) error { kept++; return nil }))
		if kept != len(want.drops) {
			t.Errorf("trimmed below %v, the disk has %d drops, want %d", want.floor, kept, len(want.drops))
		}
	}
	must(t, s.Close())
}

// TestCrash: whatever write or sync of the disk fails, and however little of what was not synced survives, a store has a whole number of
// commits, and all that were confirmed. Otherwise the offset would not fit the objects.
func TestCrash(t *testing.T) {
	fsys := vfs.NewCrashableMem()
	ops := crashRun(t, fsys, -1, nil)
	for fail := 0; fail < ops; fail += 1 + ops/60 {
		for seed := range uint64(2) {
			fsys = vfs.NewCrashableMem()
			confirmed := 0
			crashRun(t, fsys, fail, &confirmed)
			after := fsys.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(1, seed))})
			s := openTest(t, after)
			text, err := s.Record("offset")
			must(t, err)
			offset := 0
			_, _ = fmt.Sscan(string(text), &offset)
			if offset < confirmed {
				t.Errorf("operation %d fails: the offset is %d, and commit %d was confirmed", fail, offset, confirmed)
			}
			var got []string
			must(t, s.List(View{pods, Position{Era: 9}}, "", Name{}, func(o *Object) bool { got = append(got, o.Name.Name); return true }))
			var want []string
			for i := range offset {
				want = append(want, fmt.Sprintf("a%02d", i), fmt.Sprintf("b%02d", i))
			}
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("operation %d fails: at offset %d it has %v", fail, offset, got)
			}
			must(t, s.Close())
		}
	}
}

// crashRun commits until an operation fails, and returns how many operations there were.
func crashRun(t *testing.T, fsys vfs.FS, fail int, confirmed *int) (ops int) {
	var failed bool
	injector := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
			return nil
		}
		if failed = failed || ops == fail; failed { // a disk that has failed stays so
			return syscall.EIO
		}
		ops++
		return nil
	})
	s, err := Open(dir, Options{FS: errorfs.Wrap(fsys, injector)})
	if err != nil {
		if fail < 0 {
			t.Fatal(err)
		}
		return ops
	}
	for i := range 20 {
		b := s.Batch()
		for _, prefix := range []string{"a", "b"} {
			v := &Version{UID: "u", Epoch: 1, ResourceVersion: uint64(i), Body: bytes.Repeat([]byte{'x'}, 20_000)}
			must(t, b.Put(pods, Name{"", fmt.Sprintf("%s%02d", prefix, i)}, "pods", Position{1, uint64(i), uint64(i)}, v))
		}
		must(t, b.SetRecord("offset", fmt.Append(nil, i+1)))
		err := b.Commit()
		if err != nil {
			if fail < 0 {
				t.Fatal(err)
			}
			if err := s.Batch().Commit(); !errors.Is(err, ErrFailed) {
				t.Errorf("a commit after a failed one returns %v", err)
			}
			break
		}
		if confirmed != nil {
			*confirmed = i + 1
		}
		if i%8 == 7 { // a failure is that of a later commit
			flush(t, s)
		}
	}
	_ = s.Close()
	return ops
}

// flush writes tables, and files of bodies, until that is done or the disk has failed.
func flush(t *testing.T, s *Store) {
	flushed, err := s.db.AsyncFlush()
	if err != nil {
		if s.disk.Err() == nil {
			t.Fatal(err)
		}
		return
	}
	for s.disk.Err() == nil {
		select {
		case <-flushed:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// TestFormat: a directory of another format is refused with one clear error.
func TestFormat(t *testing.T) {
	fsys := vfs.NewMem()
	s := openTest(t, fsys)
	must(t, s.db.Set([]byte{keyFormat}, []byte("0"), nil))
	must(t, s.Close())
	if _, err := Open(dir, Options{FS: fsys}); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), `"0"`) {
		t.Errorf("it opens (%v)", err)
	}
}

// TestTrimWhileReading: a reader whose view is deleted meanwhile gets an error. Without it, a watch that catches up would lack deletions.
func TestTrimWhileReading(t *testing.T) {
	s := openTest(t, vfs.NewMem())
	b := s.Batch()
	o := Name{"ns", "a"}
	for v := range uint64(5) {
		x := Version{UID: "u", Epoch: 1, ResourceVersion: v + 1, Deleted: v == 3, Body: []byte("{}")}
		must(t, b.Put(pods, o, "pods", Position{1, v + 1, v + 1}, &x))
	}
	must(t, b.Commit())
	from, end := Position{1, 1, 1}, Position{1, 5, 5}
	n := 0
	err := s.Changes(t.Context(), pods, "", from, end, func(*Change) bool {
		if n++; n == 1 {
			must(t, s.Trim(t.Context(), pods, end))
		}
		return true
	})
	if !errors.Is(err, ErrTrimmed) {
		t.Errorf("after %d changes: %v", n, err)
	}
	if err := s.List(View{pods, from}, "", Name{}, func(*Object) bool { return true }); !errors.Is(err, ErrTrimmed) {
		t.Errorf("a list of what was deleted: %v", err)
	}
	if x, err := s.Get(View{pods, end}, o); x == nil || err != nil {
		t.Errorf("the floor itself: %v %v", x, err)
	}
	must(t, s.Close())
}

// TestChangesOfOneList: all deletions that a list shows have its resourceVersion. The time for them is not that of their number squared, and a reader
// that is gone ends it before the first one.
func TestChangesOfOneList(t *testing.T) {
	s := openTest(t, vfs.NewMem())
	defer s.Close()
	const n = 100_000
	b := s.Batch()
	for i := range uint64(n) {
		x := Version{UID: "u", Epoch: 1, ResourceVersion: 1, Deleted: true, Body: []byte("{}")}
		must(t, b.Put(pods, Name{"ns", fmt.Sprintf("web-%06d", i)}, "pods", Position{2, 50, i + 1}, &x))
	}
	o := Name{"ns", "there"}
	for seq, deleted := range []bool{false, true, false} {
		x := Version{UID: "v", Epoch: 1, ResourceVersion: 1, Deleted: deleted, Body: []byte("{}")}
		must(t, b.Put(pods, o, "pods", Position{2, 50, n + 1 + uint64(seq)}, &x))
	}
	must(t, b.Put(pods, o, "pods", Position{2, 51, n + 9}, &Version{UID: "v", Epoch: 1, ResourceVersion: 51, Body: []byte("{}")}))
	must(t, b.Commit())
	began := time.Now()
	var got []string
	must(t, s.Changes(t.Context(), pods, "", Position{2, 50, n}, Position{Era: 3}, func(c *Change) bool {
		got = append(got, fmt.Sprint(c.At.Version, c.Before != nil, c.After != nil))
		return true
	}))
	if !slices.Equal(got, []string{"50 false true", "51 true true"}) {
		t.Errorf("the changes are %v", got)
	}
	all := &stopping{t.Context(), n + 4 + 10} // it has read the group
	if err := s.Changes(all, pods, "", Position{Era: 2}, Position{Era: 3}, func(c *Change) bool {
		t.Errorf("a change: %+v", c)
		return false
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("in the group: %v", err)
	}
	if err := s.Changes(&stopping{t.Context(), 10}, pods, "none", Position{Era: 2}, Position{Era: 3}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("in another namespace: %v", err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestMoments: a time shows the last position that was served at or before it.
func TestMoments(t *testing.T) {
	s := openTest(t, vfs.NewMem())
	defer s.Close()
	b := s.Batch()
	at := func(micros int64) time.Time { return time.UnixMicro(micros) }
	for i, micros := range []int64{-5, 10, 20} {
		must(t, b.SetMoment(pods, at(micros), Position{1, uint64(i), 0}))
	}
	must(t, b.Commit())
	check := func(micros int64, want uint64, found bool) {
		t.Helper()
		got, since, ok, err := s.Moment(pods, at(micros))
		if err != nil || ok != found || got.Version != want || ok && since.After(at(micros)) {
			t.Errorf("at %d it is %v since %s, %t (%v)", micros, got, since, ok, err)
		}
	}
	check(-6, 0, false)
	check(-5, 0, true)
	check(19, 1, true)
	check(30, 2, true)
	must(t, s.Trim(t.Context(), pods, Position{1, 1, 0}))
	check(-5, 0, false)
	check(30, 2, true)
}

// TestBatch: a batch sees its own versions, and what is discarded is not there.
func TestBatch(t *testing.T) {
	s := openTest(t, vfs.NewMem())
	defer s.Close()
	b := s.Batch()
	if !b.b.Empty() {
		t.Error("a new batch is not empty")
	}
	must(t, b.Put(pods, names[1], "pods", Position{1, 5, 1}, &Version{UID: "u", Epoch: 1, ResourceVersion: 5, Body: []byte("{}")}))
	at, v, found, err := b.Newest(pods, names[1], "pods")
	if err != nil || !found || at != (Position{1, 5, 1}) || v.UID != "u" || v.Body != nil {
		t.Errorf("the newest is %v %+v, %t (%v)", at, v, found, err)
	}
	must(t, b.Discard())
	if o, err := s.Get(View{pods, Position{Era: 2}}, names[1]); o != nil || err != nil {
		t.Errorf("discarded, and it has %v (%v)", o, err)
	}
	for _, n := range []int{0, 1, 2, 2} {
		got, err := s.CountAt(pods, 1, 7)
		if err != nil || got != n {
			t.Errorf("%d changes are counted (%v), want %d", got, err, n)
		}
		b := s.Batch()
		must(t, b.Put(pods, names[0], "pods", Position{1, 7, uint64(n) + 10*uint64(got)}, &Version{}))
		must(t, b.SetRecord("x/"+fmt.Sprint(n), []byte("y")))
		must(t, b.Commit())
	}
	var records []string
	must(t, s.Records("x/", func(name string, value []byte) error { records = append(records, name); return nil }))
	if !slices.Equal(records, []string{"x/0", "x/1", "x/2"}) {
		t.Errorf("the records are %v", records)
	}
}
