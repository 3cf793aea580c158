package recent

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// TestHostileBodies: anybody may have written the objects. Even if they are small and deeply nested, or have many
// lines, one answer takes little memory and little time.
func TestHostileBodies(t *testing.T) {
	deep := func(n int, leaf string) string {
		return `{"metadata":{},"x":` + strings.Repeat(`{"a":`, n) + leaf + strings.Repeat("}", n) + "}"
	}
	list := func(n, kinds, from int) string { // few different lines, so that each line resembles many others
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, ",%d", (i*7919+from)%kinds)
		}
		return `{"x":[` + b.String()[1:] + "]}"
	}
	for name, c := range map[string]struct {
		before, object string
		shown          bool
	}{
		"deep":        {deep(4000, "1"), deep(4000, "2"), false},
		"deep lines":  {deep(2000, `"`+strings.Repeat(`a\n`, 7000)+`"`), deep(2000, "1"), false},
		"deep words":  {deep(2000, `"`+strings.Repeat(`a `, 10000)+`"`), deep(2000, "1"), false},
		"deep lists":  {`{"x":` + strings.Repeat("[", 8000) + strings.Repeat("]", 8000) + "}", `{"x":1}`, false},
		"many lines":  {list(15000, 150, 0), list(15000, 150, 77), false},
		"like others": {list(3900, 120, 0), list(3900, 120, 61), true},
		"all new":     {list(3900, 100000, 0), list(3900, 100000, 61), true},
	} {
		t.Run(name, func(t *testing.T) {
			c := c
			kept := New()
			for i := range perCollection {
				kept.take("s", []event.Record{modified(fmt.Sprint(i), c.before, c.object)})
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := time.Now()
			changes := kept.Of("s", "pods", true)
			took := time.Since(began)
			runtime.ReadMemStats(&after)
			text, err := json.Marshal(changes)
			if err != nil {
				t.Fatal(err)
			}
			shown := 0
			for _, change := range changes {
				if change.Diff != "" {
					shown++
				} else if !strings.Contains(change.Note, "no diff: ") {
					t.Errorf("neither a diff nor a reason: %+v", change)
				}
			}
			allocated, most := after.TotalAlloc-before.TotalAlloc, uint64(1<<20)
			if c.shown {
				most = 64 << 20
			}
			t.Logf("%d changes, %d diffs, %d bytes, %d KiB allocated, %v", len(changes), shown, len(text), allocated>>10, took)
			if allocated > most {
				t.Errorf("%d KiB were allocated for an answer, want at most %d", allocated>>10, most>>10)
			}
			if len(text) > 8<<20 || (shown > 0) != c.shown || len(changes) < 3 {
				t.Errorf("%d changes, %d with diffs, in an answer of %d bytes", len(changes), shown, len(text))
			}
		})
	}
}
