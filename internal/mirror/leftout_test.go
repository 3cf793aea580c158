package mirror

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// TestLeaveOut: without deleted events, as with core Events by default, a copy would hold every object since the last reset, and show those that
// have expired. Nothing of such a collection is kept or served, until a reset begins what has all types.
func TestLeaveOut(t *testing.T) {
	b := openBacklog(t)
	b.partitions = 1
	leaveOut := func(types string) {
		t.Helper()
		if err := b.mirror.LeaveOut(func(string) string { return types }); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(past int64) {
		t.Helper()
		b.commit()
		b.readUntil(past)
		r := b.mirror.Resource(pods)
		_, err := r.Latest()
		if !errors.Is(err, ErrIncomplete) || !strings.Contains(err.Error(), "deleted events are not published") {
			t.Errorf("the present: %v", err)
		}
		if _, err := b.mirror.AtTime(r, time.Unix(past, 0)); !errors.Is(err, ErrExpired) || !strings.Contains(err.Error(), "types: [added, modified, deleted]") {
			t.Errorf("a time: %v", err)
		}
		if _, err := r.AtVersion(r.Served.Version, 0); !errors.Is(err, ErrExpired) {
			t.Errorf("a resourceVersion: %v", err)
		}
	}
	leaveOut("deleted")
	b.gap(0, 10, "100", event.ReasonReset)
	b.pod(0, 11, event.Present, 20)
	b.synced(0, 12, "100", 1, 30)
	b.pod(0, 13, event.Modified, 40)
	b.synced(0, 14, "100", 2, 50)
	refused(14)
	r := b.mirror.Resource(pods)
	if r.Kind.Kind != "Pod" || r.Served.Version != 50 || !r.LastEvent.Equal(time.Unix(14, 0)) {
		t.Errorf("the resource is %+v", r)
	}
	b.wantAt(r.Served, nil)

	leaveOut("") // a start with other types, before the bridge has them
	refused(14)
	b.pod(0, 15, event.Modified, 60)
	refused(14)
	b.incarnation = 200
	b.gap(0, 20, "200", event.ReasonReset)
	b.pod(0, 21, event.Present, 60)
	b.synced(0, 22, "200", 1, 70)
	b.commit()
	b.latest(70, 60)

	leaveOut("deleted")
	refused(22)
}
