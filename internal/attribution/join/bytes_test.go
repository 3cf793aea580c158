package join

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
)

// A client that makes its records long does not fill the memory. What is given up is said, and nothing is exact that needs it.
func TestRequestsAreBoundedByBytes(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	j := New(Options{Complete: true, Settle: time.Minute, Keep: time.Hour, MaxOpen: time.Minute, MaxChanges: 1000, MaxRequests: 1000, MaxBytes: 1 << 20})
	j.Lost(Marks{0}, now)
	now = now.Add(2 * time.Minute)
	j.Floor(Resource{"apps", "deployments"}, Marks{0}, "10", now)
	patch := func(n int, extra int) *audit.Record {
		r := &audit.Record{ID: strconv.Itoa(n), Stage: audit.Complete, Level: audit.Metadata, Verb: "patch", Group: "apps", Resource: "deployments", Namespace: "shop", Name: "x", Code: 200, Received: now, Reached: now}
		r.Actor.User.Extra = map[string][]string{"e": {strings.Repeat("x", extra)}}
		return r
	}
	bytes := 0
	for n := range 100 {
		j.Read(0, uint64(n+1), patch(n, 64<<10), now)
		_, requests := j.Waiting()
		if bytes = j.requests.bytes; bytes > 1<<20 || requests != min(n+1, 15) {
			t.Fatalf("after %d records, %d requests with %d bytes wait", n+1, requests, bytes)
		}
	}
	if f := j.Forgotten(); f.Number != 85 || !f.Since.Equal(now) {
		t.Errorf("forgotten are %+v, want 85", f)
	}
	if f := j.Forgotten(); f.Number != 0 {
		t.Errorf("forgotten once more are %+v", f)
	}
	j.Change(Change{ID: 1, Object: Object{"apps", "deployments", "shop", "x"}, UID: "u", Kind: Changed, Version: "20", Seen: Marks{100}, At: now})
	j.Settle(now.Add(time.Hour))
	if v := j.Take(); len(v) != 1 || v[0].Exact != nil || v[0].Reason != Incomplete {
		t.Errorf("verdicts %+v, want one that is incomplete", v)
	}
	j.requests.all(j.requests.remove)
	if j.requests.bytes != 0 {
		t.Errorf("without requests, %d bytes are counted", j.requests.bytes)
	}
}
