package attribute

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/join"
)

// A sink's records and changes have one bound, however many storages its objects are in.
func TestMemoryIsShared(t *testing.T) {
	const limit = 16 << 20
	a := New(Options{
		Join:    join.Options{Settle: time.Hour, Keep: time.Hour, MaxOpen: time.Minute, MaxChanges: 100_000, MaxRequests: 100_000},
		Storage: func(r join.Resource) (string, bool) { return r.Group, true }, Inputs: 1, MaxBytes: limit,
	})
	if err := a.load(store{}, noon); err != nil {
		t.Fatal(err)
	}
	number := uint64(0)
	long := strings.Repeat("x", 64<<10)
	fill := func(group string) {
		for range 2 * limit / (64 << 10) {
			number++
			r := creation(fmt.Sprint("r", number), fmt.Sprint(number), "mallory")
			r.ID, r.Group, r.Actor.User.Extra = fmt.Sprint(number), group, map[string][]string{"e": {long}}
			a.Read(number, r, noon)
		}
		for range limit / changeBytes {
			number++
			c := change(fmt.Sprint("c", number), fmt.Sprint(number))
			c.Collection = "things." + group
			a.await(c, true, noon)
		}
	}
	wants := func(joins int) {
		t.Helper()
		changes, requests, largest := 0, 0, 0
		for _, j := range a.joins {
			c, r := j.Waiting()
			changes, requests, largest = changes+c, requests+r, max(largest, r)
		}
		sum := changes*changeBytes + requests*(65<<10)
		if len(a.joins) != joins || sum > limit*4/5 || sum < limit/2 || largest > limit/(64<<10)/joins {
			t.Errorf("%d joins have %d changes and %d requests, %d bytes of %d", len(a.joins), changes, requests, sum, limit)
		}
		if a.maxDecided()+sum > limit {
			t.Errorf("with verdicts, there may be %d bytes of %d", a.maxDecided()+sum, limit)
		}
	}
	fill("a")
	wants(1)
	fill("b")
	wants(2)
	fill("c")
	wants(3)
	if f := a.Forgotten(); f.Number == 0 {
		t.Error("nothing is said to be given up")
	}
}
