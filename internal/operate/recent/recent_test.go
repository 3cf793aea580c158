package recent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/pkg/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var pods = &event.Collection{Resource: "pods"}

func record(e event.Event) event.Record {
	if e.Collection == nil {
		e.Collection = pods
	}
	return event.Record{Event: &e}
}

func modified(name string, before, object string) event.Record {
	return record(event.Event{Type: event.Modified, Origin: event.Watch, Name: name, UID: "u-" + name, ResourceVersion: "2", Before: []byte(before), Object: []byte(object)})
}

func names(changes []status.Change) string {
	var all []string
	for _, c := range changes {
		all = append(all, c.Name)
	}
	return strings.Join(all, " ")
}

// TestWhatIsShown: a change is shown to operators as it was published, and unknown parts are marked as unknown.
func TestWhatIsShown(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	before, object := `{"metadata":{"name":"a","resourceVersion":"1"},"spec":{"replicas":2}}`, `{"metadata":{"name":"a","resourceVersion":"2"},"spec":{"replicas":3}}`
	for name, x := range map[string]struct {
		e          event.Event
		off        bool
		diff, note string
		who        string
	}{
		"two bodies":   {e: event.Event{Type: event.Modified, Before: []byte(before), Object: []byte(object), Patch: []byte(`[]`)}, diff: "-  replicas: 2\n+  replicas: 3\n"},
		"only rv":      {e: event.Event{Type: event.Modified, Before: []byte(`{"metadata":{"resourceVersion":"1"}}`), Object: []byte(`{"metadata":{"resourceVersion":"2"}}`)}, note: "nothing but its resourceVersion or managedFields"},
		"a patch":      {e: event.Event{Type: event.Modified, Object: []byte(object), Patch: []byte(`[{"op":"replace","path":"/metadata/resourceVersion","value":"2"},{"op":"add","path":"/a","value":{"b":[1]}},{"op":"remove","path":"/c"},{"op":"replace","path":"/d","value":"x\ny"},{"op":"move","from":"/e","path":"/f"}]`)}, diff: "+/a: {\"b\":[1]}\n-/c\n~/d: \"x\\ny\"\n~/f: move of /e\n"},
		"not asked":    {e: event.Event{Type: event.Modified, Object: []byte(object)}, off: true, note: "no diff: `diff` is off for this resource"},
		"not known":    {e: event.Event{Type: event.Modified, Object: []byte(object)}, note: "no diff: it is not certain which body was published before"},
		"reconcile":    {e: event.Event{Type: event.Added, Origin: event.Reconcile, Object: []byte(object)}, note: "updates in between are not known"},
		"left":         {e: event.Event{Type: event.Deleted, Reason: "left", Object: []byte(object)}, note: "it exists, and is not selected any more"},
		"withheld":     {e: event.Event{Type: event.Modified, DeadLetter: &event.DeadLetter{Reason: event.Unredacted}}, off: true, note: "its body is not known; it went to the dead letters: unredacted; no diff: `diff` is off for this resource"},
		"truncated":    {e: event.Event{Type: event.Modified, Object: []byte(`{}`), Truncated: &event.Truncation{Size: 9000}}, note: "truncated: its body of 9000 bytes did not fit the bus; no diff: it is not certain which body was published before"},
		"not readable": {e: event.Event{Type: event.Modified, Before: []byte(`{`), Object: []byte(`{}`)}, note: "no diff: unexpected EOF"},
		"by":           {e: event.Event{Type: event.Added, Object: []byte(object), ChangedBy: []byte(`[{"manager":"kubectl","operation":"Update","subresource":"scale"},{"manager":"hpa"}]`)}, who: "kubectl/scale, hpa"},
	} {
		t.Run(name, func(t *testing.T) {
			c := New()
			x.e.Name, x.e.Namespace, x.e.UID, x.e.ResourceVersion, x.e.Run, x.e.Time = "web", "shop", "u", "7", "5", at
			if x.e.Origin == "" {
				x.e.Origin = event.Watch
			}
			if x.who == "" {
				x.who = "unknown"
			}
			r := record(x.e)
			c.take("s", []event.Record{r})
			got := c.Of("s", "pods", !x.off)
			if len(got) != 1 {
				t.Fatalf("%d changes", len(got))
			}
			g := got[0]
			if g.Note != x.note || g.Who != x.who || !strings.HasSuffix(g.Diff, x.diff) || x.diff == "" && g.Diff != "" {
				t.Errorf("note %q, by %q, diff:\n%s", g.Note, g.Who, g.Diff)
			}
			if g.Namespace != "shop" || g.Name != "web" || g.UID != "u" || g.ResourceVersion != "7" || g.Type != x.e.Type.String() ||
				g.ID != r.Event.ID() || !g.Time.Equal(at) || g.Time.Location() != time.UTC || !json.Valid(g.By) {
				t.Errorf("%+v", g)
			}
		})
	}
}

// The user comes with an event of its own, after the change.
func TestUsers(t *testing.T) {
	c := New()
	listen := c.Listen("s")
	change := modified("web", `{}`, `{"a":1}`)
	listen([]event.Record{change, modified("api", `{}`, `{"a":2}`)})
	attributed := func(explains string, a event.Attribution) event.Record {
		a.Explains = explains
		return record(event.Event{Type: event.Attributed, Attribution: &a})
	}
	alice := event.Request{User: event.User{Name: "alice"}, UserAgent: "kubectl/v1.36.3 (linux/amd64)"}
	listen([]event.Record{attributed(change.Event.ID(), event.Attribution{Request: &alice}), attributed("unknown", event.Attribution{Request: &alice})})
	got := c.Of("s", "pods", false)
	if len(got) != 2 || len(got[0].Users) != 0 || strings.Join(got[1].Users, "|") != "user alice, with kubectl/v1.36.3" {
		t.Fatalf("changes %+v", got)
	}
	long := event.Request{User: event.User{Name: strings.Repeat("ä", userBytes)}}
	listen([]event.Record{attributed(change.Event.ID(), event.Attribution{Reason: "incomplete", Candidates: []event.Request{alice, long, alice}})})
	lines := c.Of("s", "pods", false)[1].Users
	if len(lines) != 3 || lines[1] != "  alice, with kubectl/v1.36.3" || len(lines[2]) > userBytes || !utf8.ValidString(lines[2]) {
		t.Errorf("lines %q", lines)
	}
	if c.bytes != c.rings[place{"s", "pods"}].bytes {
		t.Errorf("%d bytes in all, %d in the collection", c.bytes, c.rings[place{"s", "pods"}].bytes)
	}
}

// TestWhatIsKept: changes are kept by sink and collection, newest first. Objects of a first list are not kept, because
// they would leave no room for changes. Changes of closed or removed collections are not kept, nor changes of before a reset: they
// may have values in clear that are redacted now.
func TestWhatIsKept(t *testing.T) {
	c := New()
	other := &event.Collection{Resource: "nodes"}
	listen := c.Listen("s")
	listen([]event.Record{
		record(event.Event{Type: event.Gap, Report: &event.Report{}}),
		record(event.Event{Type: event.Added, Origin: event.Snapshot, Name: "listed"}),
		record(event.Event{Type: event.Present, Origin: event.Resync, Name: "repeated"}),
		record(event.Event{Type: event.Synced, Report: &event.Report{}}),
		record(event.Event{Type: event.Added, Origin: event.Reconcile, Name: "missed"}),
		record(event.Event{Type: event.Added, Origin: event.Watch, Name: "node", Collection: other}),
		record(event.Event{Type: event.Modified, Origin: event.Watch, Name: "m"}),
	})
	listen([]event.Record{record(event.Event{Type: event.Deleted, Origin: event.Watch, Name: "d"})})
	c.Listen("t")([]event.Record{record(event.Event{Type: event.Added, Origin: event.Watch, Name: "elsewhere"})})
	if got := names(c.Of("s", "pods", false)); got != "d m missed" {
		t.Errorf("of pods: %q", got)
	}
	if got := names(c.Of("s", "nodes", false)) + "|" + names(c.Of("t", "pods", false)); got != "node|elsewhere" {
		t.Errorf("of others: %q", got)
	}
	listen([]event.Record{
		record(event.Event{Type: event.Modified, Name: "last"}),
		record(event.Event{Type: event.Deleted, Name: "node", Collection: other}),
		record(event.Event{Type: event.Closed, Report: &event.Report{}}),
		record(event.Event{Type: event.Added, Name: "node", Collection: other}),
	})
	if got := names(c.Of("s", "pods", false)) + "|" + names(c.Of("s", "nodes", false)); got != "|node node node" || len(c.rings) != 2 {
		t.Errorf("after it was closed: %q, %d collections are kept", got, len(c.rings))
	}
	listen([]event.Record{
		record(event.Event{Type: event.Added, Name: "old"}),
		record(event.Event{Type: event.Closed, Report: &event.Report{}}),
		record(event.Event{Type: event.Added, Name: "new"}),
	})
	if got := names(c.Of("s", "pods", false)); got != "new" {
		t.Errorf("closed and opened again: %q", got)
	}
	listen([]event.Record{
		record(event.Event{Type: event.Gap, Report: &event.Report{}}),
		record(event.Event{Type: event.Added, Origin: event.Reconcile, Name: "missed"}),
	})
	if got := names(c.Of("s", "pods", false)); got != "missed new" {
		t.Errorf("after a gap without a reset: %q", got)
	}
	listen([]event.Record{
		record(event.Event{Type: event.Modified, Name: "clear"}),
		record(event.Event{Type: event.Gap, Report: &event.Report{Reset: true}}),
		record(event.Event{Type: event.Added, Origin: event.Snapshot, Name: "redacted"}),
		record(event.Event{Type: event.Synced, Report: &event.Report{}}),
	})
	if got := names(c.Of("s", "pods", false)); got != "" || len(c.rings) != 2 {
		t.Errorf("after a reset, because values are redacted now: %q, %d collections are kept", got, len(c.rings))
	}
	c.Forget("s")
	if len(c.rings) != 1 || c.bytes != c.rings[place{"t", "pods"}].bytes {
		t.Errorf("after another led: %d collections, %d bytes", len(c.rings), c.bytes)
	}
	c.Forget("t")
	if c.bytes != 0 {
		t.Errorf("%d bytes of nothing", c.bytes)
	}
}

// TestMemoryIsCopied: changes must not share memory with a batch, because the pipeline reuses it for the next one.
func TestMemoryIsCopied(t *testing.T) {
	for _, patch := range []bool{false, true} {
		c := New()
		r := modified("a", `{"spec":1}`, `{"spec":2}`)
		r.Event.ChangedBy = []byte(`[{"manager":"m"}]`)
		if patch {
			r.Event.Before, r.Event.Patch = nil, []byte(`[{"op":"replace","path":"/spec","value":2}]`)
		}
		c.take("s", []event.Record{r})
		want := fmt.Sprintf("%+v", c.Of("s", "pods", true))
		for _, b := range [][]byte{r.Event.Before, r.Event.Object, r.Event.Patch, r.Event.ChangedBy} {
			for i := range b {
				b[i] = 'x'
			}
		}
		*r.Event = event.Event{}
		if got := fmt.Sprintf("%+v", c.Of("s", "pods", true)); got != want {
			t.Errorf("it was %s\nand is %s", want, got)
		}
	}
}

// TestBounds: a busy collection, large objects and many collections take no more memory than the limit. The newest
// changes stay, and large ones do not displace small ones.
func TestBounds(t *testing.T) {
	sum := func(c *Changes) int {
		t.Helper()
		all := 0
		for at, r := range c.rings {
			own := 0
			for _, k := range r.changes {
				own += k.bytes
			}
			if own != r.bytes || own > collectionBytes || len(r.changes) > perCollection {
				t.Fatalf("%v: %d changes of %d bytes, counted as %d", at, len(r.changes), own, r.bytes)
			}
			all += own
		}
		if all != c.bytes || all > totalBytes {
			t.Fatalf("%d bytes, counted as %d", all, c.bytes)
		}
		return all
	}
	last := func(c *Changes, collection string) (n int, newest string) {
		all := c.rings[place{"s", collection}].changes
		return len(all), all[len(all)-1].name
	}
	body := func(n int) string { return `{"a":"` + strings.Repeat("x", n) + `"}` }

	t.Run("many changes", func(t *testing.T) {
		c := New()
		var batch []event.Record
		for i := range 3 * perCollection {
			batch = append(batch, modified(fmt.Sprint(i), body(1), body(2)))
		}
		c.take("s", batch)
		c.take("s", batch[:1])
		if n, newest := last(c, "pods"); n != perCollection || newest != "0" || c.Of("s", "pods", true)[1].Name != "149" {
			t.Errorf("%d, newest %s", n, newest)
		}
		sum(c)
	})
	t.Run("large objects", func(t *testing.T) {
		c := New()
		for i := range 20 {
			c.take("s", []event.Record{modified(fmt.Sprint(i), body(10<<10), body(15<<10))})
			sum(c)
		}
		if n, newest := last(c, "pods"); n != 10 || newest != "19" {
			t.Errorf("%d, newest %s", n, newest)
		}
	})
	t.Run("too large", func(t *testing.T) {
		c := New()
		large := modified("large", body(changeBytes/2), body(changeBytes/2))
		patched := modified("patched", body(changeBytes/2), body(changeBytes/2))
		patched.Event.Patch = []byte(`[{"op":"remove","path":"/b"}]`)
		c.take("s", []event.Record{large, patched})
		all := c.Of("s", "pods", true)
		if all[0].Diff != "-/b\n" || all[1].Diff != "" || !strings.Contains(all[1].Note, fmt.Sprint("no diff: it takes ", changeBytes+16, " bytes")) {
			t.Errorf("%+v", all)
		}
		if all := sum(c); all > 4<<10 {
			t.Errorf("%d bytes", all)
		}
	})
	t.Run("many collections", func(t *testing.T) {
		c := New()
		small := &event.Collection{Resource: "small"}
		few := modified("few", body(1), body(2))
		few.Event.Collection = small
		c.take("s", []event.Record{few})
		for i := range 100 {
			col := &event.Collection{Resource: fmt.Sprint("r", i)}
			for j := range perCollection {
				r := modified(fmt.Sprint(j), body(2<<10), body(2<<10))
				r.Event.Collection = col
				c.take("s", []event.Record{r})
			}
			sum(c)
			if n, newest := last(c, col.Resource); n < 10 || newest != "49" {
				t.Errorf("collection %d: %d, newest %s", i, n, newest)
			}
		}
		if n, _ := last(c, "small"); n != 1 {
			t.Error("a small collection was displaced by large ones")
		}
		if all := sum(c); all < totalBytes/2 {
			t.Errorf("%d bytes are kept, of %d", all, totalBytes)
		}
	})
}

// BenchmarkTake measures the cost of keeping a delivered event.
func BenchmarkTake(b *testing.B) {
	body := []byte(`{"a":"` + strings.Repeat("x", 3000) + `"}`)
	for _, x := range []struct {
		name               string
		batch, collections int
		before             []byte
	}{
		{"busy", 2000, 1, body}, {"alone", 1, 1, body}, {"alone-no-diff", 1, 1, nil}, {"many", 2000, 500, body},
	} {
		b.Run(x.name, func(b *testing.B) {
			var (
				records     []event.Record
				collections []*event.Collection
			)
			for i := range x.collections {
				collections = append(collections, &event.Collection{Resource: fmt.Sprint("r", i)})
			}
			for i := range x.batch {
				records = append(records, record(event.Event{
					Type: event.Modified, Origin: event.Watch, Namespace: "namespace", Name: fmt.Sprint("name-", i), UID: "ffd2cab6-2033-4dcb-a16f-000000000000",
					ResourceVersion: "123456", Before: x.before, Object: body, Collection: collections[i%x.collections],
				}))
			}
			c := New()
			b.ReportAllocs()
			for b.Loop() {
				c.take("s", records)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*x.batch), "ns/event")
		})
	}
}
