package join

import (
	"strconv"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
)

// hot is a join with one object that many requests are about, which have no answers. A request is open all the time, so no change gets a verdict.
type hot struct {
	*Join
	now    time.Time
	number uint64
}

var hotObject = Object{"", "secrets", "shop", "hot"}

func newHot(complete bool) *hot {
	h := &hot{now: time.Unix(1_800_000_000, 0)}
	h.Join = New(Options{Complete: complete, Settle: time.Minute, Keep: time.Minute, MaxOpen: time.Hour, MaxChanges: 10_000, MaxRequests: 10_000})
	h.Floor(hotObject.resource(), Marks{0}, "10", h.now)
	h.Floor(hotObject.resource(), Marks{0}, "10", h.now.Add(time.Hour))
	h.read("open", audit.Received)
	return h
}

func (h *hot) read(uri string, stage audit.Stage) {
	h.number++
	r := &audit.Record{Stage: stage, Level: audit.Metadata, Verb: "patch", Resource: "secrets", Namespace: "shop", Name: "hot", URI: uri, Received: h.now, Reached: h.now}
	if stage == audit.Complete {
		r.Code = 200
	}
	h.Read(0, h.number, r, h.now)
}

// patch reads the records of a patch.
func (h *hot) patch() {
	uri := strconv.FormatUint(h.number, 10)
	h.read(uri, audit.Received)
	h.read(uri, audit.Complete)
}

func (h *hot) change(version int) {
	h.Change(Change{ID: uint64(version), Object: hotObject, UID: "u", Kind: Changed, Version: strconv.Itoa(version), Seen: Marks{h.number}, At: h.now})
}

// stepsOf returns how many requests are looked at by a call.
func (h *hot) stepsOf(call func()) int {
	before := h.steps
	call()
	return h.steps - before
}

// An object that clients patch all the time does not stop the sink: to forget its requests costs little more for each of them if there are more.
func TestForgettingIsQuick(t *testing.T) {
	for _, n := range []int{500, 1000, 2000} {
		h := newHot(true)
		for range n {
			h.patch()
		}
		over := h.number
		for range n {
			h.patch()
		}
		h.change(20)
		h.Floor(hotObject.resource(), Marks{over}, "15", h.now.Add(2*time.Hour))
		h.Floor(hotObject.resource(), Marks{h.number}, "25", h.now.Add(3*time.Hour))
		for _, passed := range []struct {
			version string
			left    int
		}{
			{"15", n + 1}, // a patch that was over before the state to which the change was made has not made it
			{"25", n + 1}, // any of the others can have made it
		} {
			steps := h.stepsOf(func() { h.Passed(hotObject.resource(), passed.version) })
			if changes, requests := h.Waiting(); changes != 1 || requests != passed.left {
				t.Errorf("behind version %s, %d changes and %d requests wait, want 1 and %d", passed.version, changes, requests, passed.left)
			}
			if steps > 10*n {
				t.Errorf("to forget of %d requests those that are over at version %s takes %d steps", n, passed.version, steps)
			}
		}
	}
}

// Nor does it if the records are not complete, and many of its changes wait.
func TestForgettingWithManyChangesIsQuick(t *testing.T) {
	for _, n := range []int{100, 200, 400} {
		h := newHot(false)
		for range n {
			h.patch()
		}
		for i := range n {
			h.change(20 + i)
		}
		h.now = h.now.Add(h.options.Keep - time.Second)
		h.patch() // all changes wait for their settlement, and all requests but this one are kept for them
		steps := h.stepsOf(func() {
			h.requests.all(func(q *request) { q.at = q.at.Add(-h.options.Keep) })
			h.Settle(h.now)
		})
		if changes, requests := h.Waiting(); changes != n || requests != n+2 {
			t.Errorf("%d changes and %d requests wait", changes, requests)
		}
		if steps > 10*n {
			t.Errorf("to keep %d requests for %d changes takes %d steps", n, n, steps)
		}
	}
}

// A record costs the same however many changes of its object wait.
func TestReadingWithManyChangesIsQuick(t *testing.T) {
	const n = 100
	for _, complete := range []bool{true, false} {
		for _, waiting := range []int{50, 100, 200} {
			h := newHot(complete)
			for range n {
				h.patch()
			}
			for i := range waiting {
				h.change(20 + i)
			}
			steps := h.stepsOf(h.patch)
			if changes, _ := h.Waiting(); changes != waiting {
				t.Errorf("%d changes wait, want %d", changes, waiting)
			}
			if steps > 30*n {
				t.Errorf("complete %t: two records take %d steps if %d changes wait", complete, steps, waiting)
			}
		}
	}
}
