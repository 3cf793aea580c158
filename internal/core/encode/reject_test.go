package encode_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// form describes the content of an event, for the tables of these tests.
func form(e *event.Received) string {
	parts := []string{}
	if e.DeadLetter != nil {
		parts = append(parts, "dead letter ("+e.DeadLetter.Reason+")")
	}
	if e.Patch != nil || e.Before != nil {
		parts = append(parts, "diff")
	}
	switch {
	case !e.BodyKnown:
		parts = append(parts, "identity")
	case e.Truncated != nil:
		parts = append(parts, "truncated")
	default:
		parts = append(parts, "body")
	}
	return strings.Join(parts, ", ")
}

// An event that the bus rejects is made smaller as configured until it fits. If nothing can be left out, the event is
// lost, or its collection waits.
func TestRejected(t *testing.T) {
	invalid := &sink.RecordError{Err: errors.New("not valid")}
	for name, x := range map[string]struct {
		policy  encode.Oversize
		deleted bool
		err     *sink.RecordError
		want    []string // the forms of the event
	}{
		"truncate":              {encode.Truncate, false, tooLarge, []string{"diff, body", "body", "truncated", "identity", "lost"}},
		"truncate, invalid":     {encode.Truncate, false, invalid, []string{"diff, body", "truncated", "identity", "lost"}},
		"truncate, deletion":    {encode.Truncate, true, tooLarge, []string{"body", "truncated", "identity", "lost"}},
		"dead-letter":           {encode.ToDeadLetters, false, tooLarge, []string{"diff, body", "body", "dead letter (oversize), body", "dead letter (oversize), truncated", "dead letter (oversize), identity", "lost"}},
		"dead-letter, invalid":  {encode.ToDeadLetters, false, invalid, []string{"diff, body", "dead letter (rejected), body", "dead letter (rejected), truncated", "dead letter (rejected), identity", "lost"}},
		"dead-letter, deletion": {encode.ToDeadLetters, true, tooLarge, []string{"body", "truncated", "identity", "lost"}},
		"fail":                  {encode.Fail, false, tooLarge, []string{"diff, body", "body"}},
		"fail, deletion":        {encode.Fail, true, tooLarge, []string{"body"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, configMaps, both, func(o *encode.Options) { o.Oversize, o.DeadLetters = x.policy, template(t, "dead") })
			r.list("snapshot", "10", reconcile.Gone, configMap("a", "ua", "5", "1"))
			r.commit()
			var got []string
			for {
				before := len(r.values)
				if x.deleted {
					r.deleted(configMap("a", "ua", "11", "2"))
				} else {
					r.watch(configMap("a", "ua", "11", "2"))
				}
				if len(r.values) == before {
					got = append(got, "lost")
					break
				}
				got = append(got, form(r.last()))
				if len(got) > 10 {
					t.Fatalf("it never ends: %v", got)
				}
				items := r.core.Items()
				if err := r.encoder.Reject(&items[len(items)-1], x.err); err != nil {
					if !errors.Is(err, x.err.Err) || !errors.As(err, new(*sink.RecordError)) || !strings.Contains(err.Error(), "shop/a") {
						t.Errorf("the error is %v", err)
					}
					break
				}
				r.core.Drop(r.id)
				r.encoder.Dropped(r.id)
				r.load()
			}
			if diff := cmp.Diff(x.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestTruncatedFields: an event whose object does not fit has the values that field selectors select by, also if only the identity fits. Without them
// nobody knows whether `kubectl get pods --field-selector spec.nodeName=n1` selects the pod.
func TestTruncatedFields(t *testing.T) {
	r := newRig(t, event.Collection{Resource: "pods"}, encode.Settings{Redact: []shape.Rule{{Paths: []string{"spec.schedulerName"}}}}, nil)
	pod := func(version, spec string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"shop","uid":"u","resourceVersion":%q},"spec":%s,"status":{"phase":"Running"}}`, version, spec)
	}
	r.list("snapshot", "10", reconcile.Gone, pod("5", `{}`))
	r.commit()
	long := strings.Repeat("x", 3000)
	for _, want := range []string{"body", "truncated", "identity"} {
		r.watch(pod("11", `{"nodeName":"n1","hostNetwork":true,"schedulerName":"secret","serviceAccountName":"`+long+`"}`))
		e := r.last()
		if form(e) != want {
			t.Fatalf("the event has %s, want %s", form(e), want)
		}
		if want != "body" {
			fields := map[string]string{
				"spec.nodeName": "n1", "spec.hostNetwork": "true", "spec.restartPolicy": "", "spec.schedulerName": e.Truncated.Fields["spec.schedulerName"],
				"spec.serviceAccountName": event.BoundName(long), "status.phase": "Running", "status.podIP": "", "status.nominatedNodeName": "",
			}
			if diff := cmp.Diff(fields, e.Truncated.Fields); diff != "" || strings.Contains(fields["spec.schedulerName"], "secret") {
				t.Errorf("%s (-want +got):\n%s", want, diff)
			}
		}
		r.reject(tooLarge)
	}
}

// An event about a collection has no parts that could be left out.
func TestRejectedGap(t *testing.T) {
	r := newRig(t, configMaps, encode.Settings{}, nil)
	r.step(&reconcile.Input{Kind: reconcile.ListBegun, Reason: "snapshot"})
	if err := r.encoder.Reject(&r.core.Items()[0], tooLarge); !errors.Is(err, tooLarge.Err) || !strings.Contains(err.Error(), "gap of configmaps") {
		t.Errorf("the error is %v", err)
	}
}

// If several events of one batch do not fit, all of them are made to fit. The decision about one event is kept while
// the next one is decided, and ends when the event is committed.
func TestSeveralRejected(t *testing.T) {
	invalid := &sink.RecordError{Err: errors.New("not valid")}
	r := newRig(t, configMaps, encode.Settings{}, nil)
	r.list("snapshot", "10", reconcile.Gone, configMap("a", "ua", "5", "1"))
	r.commit()
	for _, rejected := range []string{"11", "12"} {
		r.watch(configMap("a", "ua", "11", "1"))
		if rejected == "12" {
			r.watch(configMap("a", "ua", "12", "2"))
		}
		r.reject(invalid)
	}
	r.watch(configMap("a", "ua", "11", "1"))
	first := r.last()
	r.watch(configMap("a", "ua", "12", "2"))
	if form(first) != "truncated" || form(r.last()) != "truncated" {
		t.Errorf("the events have: %s; %s", form(first), form(r.last()))
	}
	if first.Truncated.Size != len(configMap("a", "ua", "11", "1")) || first.Truncated.Limit != 0 {
		t.Errorf("it says %+v", first.Truncated)
	}
	r.commit()
	r.step(&reconcile.Input{Kind: reconcile.Demand})
	r.step(&reconcile.Input{Kind: reconcile.SideBegun})
	r.step(&reconcile.Input{Kind: reconcile.Sighted, Sighting: sighting(configMap("a", "ua", "12", "2"), reconcile.Resync)})
	if e := r.last(); e.Type != event.Present || form(e) != "body" {
		t.Errorf("after the commit, %s has: %s", e.ID, form(e))
	}
}

// A list with many objects that do not fit does not begin again for each of them.
func TestLimitIsRemembered(t *testing.T) {
	small := &sink.RecordError{Size: 5000, Limit: 2000, Err: errors.New("too large")}
	for name, x := range map[string]struct {
		policy encode.Oversize
		redact []shape.Rule
		want   string
	}{
		"truncate":           {encode.Truncate, nil, "truncated"},
		"truncate, redacted": {encode.Truncate, []shape.Rule{{Paths: []string{"data.y"}}}, "truncated"},
		"dead-letter":        {encode.ToDeadLetters, nil, "dead letter (oversize), body"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, configMaps, encode.Settings{Redact: x.redact}, func(o *encode.Options) { o.Oversize, o.DeadLetters = x.policy, template(t, "dead") })
			large := func(n int, version string) string {
				return configMap(fmt.Sprint("n", n), fmt.Sprint("u", n), version, strings.Repeat("x", 3000))
			}
			r.step(&reconcile.Input{Kind: reconcile.ListBegun, Reason: "snapshot"})
			r.step(&reconcile.Input{Kind: reconcile.Sighted, Sighting: sighting(large(0, "1"), reconcile.List)})
			r.reject(small)
			before := len(r.values)
			r.list("interrupted", "10", reconcile.Gone, large(0, "1"), large(1, "2"), large(2, "3"), configMap("small", "u", "4", "1"))
			var got []string
			for _, e := range r.values[before:] {
				if !e.Type.OfCollection() {
					got = append(got, form(e))
				}
			}
			if diff := cmp.Diff([]string{x.want, x.want, x.want, "body"}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			r.commit()
			r.deleted(large(1, "11"))
			if x.policy == encode.Truncate {
				asked := form(r.last()) // the list is over, so the limit may be another one
				r.reject(small)
				r.deleted(large(1, "11"))
				if got := form(r.last()); asked != "body" || got != "truncated" {
					t.Errorf("the deletion has: %s, and after its rejection: %s", asked, got)
				}
			}
			if x.policy == encode.ToDeadLetters && r.last().Type == event.Deleted {
				t.Errorf("the end of an object is published that consumers do not have: %s", r.last().ID)
			}
		})
	}
}

// Dead letters have a limit of their own.
func TestLimitOfDeadLetters(t *testing.T) {
	r := newRig(t, configMaps, encode.Settings{}, func(o *encode.Options) { o.Oversize, o.DeadLetters = encode.ToDeadLetters, template(t, "dead") })
	r.list("snapshot", "10", reconcile.Gone)
	r.commit()
	for _, limit := range []int{5000, 500} {
		r.watch(configMap("a", "ua", "11", strings.Repeat("x", 6000)))
		r.reject(&sink.RecordError{Size: 7000, Limit: limit, Err: errors.New("too large")})
	}
	r.watch(configMap("b", "ub", "12", strings.Repeat("x", 1000)))
	if got := form(r.last()); got != "body" {
		t.Errorf("an event that fits has: %s", got)
	}
}

// A limit that was raised holds from the next event on: no event is cut down to a limit that the bus no longer has. Only while rejections follow
// each other, as of an object that changes all the time, the limit is not tried with each event.
func TestLimitRaised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		small := &sink.RecordError{Size: 5000, Limit: 2000, Err: errors.New("too large")}
		large := func(version string) string { return configMap("a", "ua", version, strings.Repeat("x", 3000)) }
		r := newRig(t, configMaps, encode.Settings{}, nil)
		r.list("snapshot", "10", reconcile.Gone)
		r.commit()
		version := 10
		// next returns the forms of an event of the watch while the bus rejects large ones, and once it does not.
		next := func(rejects bool) (forms []string) {
			version++
			r.watch(large(fmt.Sprint(version)))
			if forms = append(forms, form(r.last())); rejects && forms[0] == "body" {
				r.reject(small)
				r.watch(large(fmt.Sprint(version)))
				forms = append(forms, form(r.last()))
			}
			r.commit()
			return forms
		}
		for step, x := range []struct {
			after   time.Duration
			rejects bool
			want    string
		}{
			{0, true, "[body truncated]"},
			{0, true, "[body truncated]"},
			{0, true, "[truncated]"}, // rejections follow each other
			{2 * time.Second, true, "[body truncated]"},
			{time.Minute, true, "[body truncated]"},
			{0, false, "[truncated]"},
			{11 * time.Second, false, "[body]"},
			{2 * time.Minute, true, "[body truncated]"},
			{0, false, "[body]"}, // raised
		} {
			time.Sleep(x.after)
			if got := fmt.Sprint(next(x.rejects)); got != x.want {
				t.Errorf("event %d: %s, want %s", step, got, x.want)
			}
		}

		b := configMap("b", "ub", "49", strings.Repeat("x", 3000))
		r.step(&reconcile.Input{Kind: reconcile.ListBegun, Reason: "expired"})
		r.step(&reconcile.Input{Kind: reconcile.Sighted, Sighting: sighting(b, reconcile.List)})
		r.reject(small)
		r.list("interrupted", "50", reconcile.Gone, b)
		r.commit()
		r.step(&reconcile.Input{Kind: reconcile.Demand})
		r.step(&reconcile.Input{Kind: reconcile.SideBegun})
		r.step(&reconcile.Input{Kind: reconcile.Sighted, Sighting: sighting(b, reconcile.Resync)})
		if got := form(r.last()); got != "body" {
			t.Errorf("in the resync after the list: %s", got)
		}
	})
}

// If an event without a body is too large, the limit is to blame and not the object: the collection waits, instead of losing every event. What
// waits is tried with its body.
func TestNothingFits(t *testing.T) {
	for name, policy := range map[string]encode.Oversize{"truncate": encode.Truncate, "dead-letter": encode.ToDeadLetters} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, configMaps, encode.Settings{}, func(o *encode.Options) { o.Oversize, o.DeadLetters = policy, template(t, "dead") })
			r.list("snapshot", "10", reconcile.Gone)
			r.commit()
			var forms []string
			for range 10 {
				r.watch(configMap("a", "ua", "11", "1"))
				items := r.core.Items()
				if len(items) == 0 {
					t.Fatalf("the event is lost, after %v", forms)
				}
				forms = append(forms, form(r.last()))
				err := r.encoder.Reject(&items[len(items)-1], &sink.RecordError{Size: 700, Limit: 500, Err: errors.New("too large")})
				r.core.Drop(r.id)
				r.encoder.Dropped(r.id)
				r.load()
				if err == nil {
					continue
				}
				if !errors.As(err, new(*sink.RecordError)) {
					t.Errorf("%v would count as an outage of the API server", err)
				}
				if !strings.Contains(err.Error(), "700 bytes, the bus takes 500") || !strings.Contains(err.Error(), "no event of the collection fits") {
					t.Errorf("the error is %v", err)
				}
				r.watch(configMap("a", "ua", "11", "1"))
				if got := form(r.last()); got != "body" {
					t.Errorf("the next attempt has: %s", got)
				}
				return
			}
			t.Errorf("the collection does not wait: %v", forms)
		})
	}
}
