package join

import (
	"fmt"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
)

// A client that is believed too easily can make it look as if it, or somebody else, had made a change.
func TestProofs(t *testing.T) {
	restored := time.Unix(1_800_000_000, 0)
	answer := audit.Answer{Namespace: "shop", Name: "web", UID: "u", Version: "7", Bare: true}
	object := Object{"apps", "deployments", "shop", "web"}
	for _, test := range []struct {
		name   string
		record audit.Record
		kind   Kind
		proves bool
	}{
		{"creation", audit.Record{Verb: "create", Code: 201}, Created, true},
		{"server-side apply that created", audit.Record{Verb: "patch", Code: 201}, Created, true},
		{"answer of another resource", audit.Record{Verb: "create", Subresource: "token", Code: 201}, Created, false},
		{"update of the version before", audit.Record{Verb: "update", Code: 200, Expected: "5"}, Changed, true},
		{"update that changed nothing", audit.Record{Verb: "update", Code: 200, Expected: "7"}, Changed, false},
		{"update without a version", audit.Record{Verb: "update", Code: 200}, Changed, false},
		{"update of version 0, which the API server does not compare", audit.Record{Verb: "update", Code: 200, Expected: "0"}, Changed, false},
		{"the same version, written in another way", audit.Record{Verb: "update", Code: 200, Expected: "07"}, Changed, false},
		{"no version", audit.Record{Verb: "update", Code: 200, Expected: "5x"}, Changed, false},
		{"patch", audit.Record{Verb: "patch", Code: 200, Expected: "5"}, Changed, false},
		{"refused update", audit.Record{Verb: "update", Code: 409, Expected: "5"}, Changed, false},
		{"deletion that returned the removed object", audit.Record{Verb: "delete", Code: 200}, Removed, true},
		{"deletion that set deletionTimestamp, or found it", audit.Record{Verb: "delete", Code: 200}, Changed, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, received := range []time.Time{restored.Add(-time.Second), restored.Add(time.Second)} {
				r := test.record
				r.Group, r.Resource, r.Namespace, r.Name = object.Group, object.Resource, object.Namespace, object.Name
				r.Stage, r.Level, r.Received, r.Answer = audit.Complete, audit.RequestResponse, received, &answer
				j := New(Options{Settle: time.Minute, Keep: time.Hour, MaxOpen: time.Minute, MaxChanges: 10, MaxRequests: 10, After: restored})
				j.Change(Change{ID: 1, Object: object, UID: "u", Kind: test.kind, Version: "7", At: restored})
				j.Read(0, 1, &r, restored)
				verdicts := j.Take()
				exact := len(verdicts) == 1 && verdicts[0].Exact != nil
				if want := test.proves && received.After(restored); exact != want {
					t.Errorf("the record came %s after the restore, and is proof: %t; want %t", received.Sub(restored), exact, want)
				}
			}
		})
	}
}

// A second deletion of a Pod that is in its grace period changes nothing, and is answered with the Pod. If the Pod has left the selection with that
// version, and does not exist any more when that is asked, then somebody else has removed it.
func TestSecondDeletionOfAPod(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for grace, removes := range map[string]bool{"30": false, "1": false, "0": true, "null": true} {
		for _, complete := range []bool{true, false} {
			var b audit.Batch
			audit.NewParser(audit.Options{}).Message(fmt.Appendf(nil, `{
				"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "auditID": "1", "stage": "ResponseComplete",
				"requestURI": "/api/v1/namespaces/shop/pods/web", "verb": "delete", "user": {"username": "bob"},
				"objectRef": {"resource": "pods", "namespace": "shop", "name": "web", "apiVersion": "v1"}, "responseStatus": {"code": 200},
				"requestObject": {"kind": "DeleteOptions", "apiVersion": "v1"},
				"responseObject": {"kind": "Pod", "apiVersion": "v1", "metadata": {
					"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7",
					"deletionTimestamp": "2026-11-26T00:00:00Z", "deletionGracePeriodSeconds": %s}},
				"requestReceivedTimestamp": "2026-11-26T00:00:00.000000Z", "stageTimestamp": "2026-11-26T00:00:00.000000Z"
			}`, grace), &b)
			if len(b.Records) != 1 {
				t.Fatalf("grace period %s: %+v is no record", grace, b)
			}
			j := New(Options{Complete: complete, Settle: time.Minute, Keep: time.Hour, MaxOpen: time.Minute, MaxChanges: 10, MaxRequests: 10})
			j.Floor(Resource{"", "pods"}, Marks{0}, "5", now)
			j.Change(Change{ID: 1, Object: Object{"", "pods", "shop", "web"}, UID: "u", Kind: Removed, Version: "7", Seen: Marks{1}, At: now})
			j.Read(0, 1, &b.Records[0], now)
			j.Settle(now)
			verdicts := j.Take()
			if exact := len(verdicts) == 1 && verdicts[0].Exact != nil; exact != removes {
				t.Errorf("grace period %s, complete records %t: bob is the one who removed the Pod: %t; want %t", grace, complete, exact, removes)
			}
		}
	}
}

// A deletion of many objects succeeds although it has found none: the object may have gone in another way.
func TestDeletionOfMany(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	j := New(Options{Complete: true, Settle: time.Minute, Keep: time.Hour, MaxOpen: time.Minute, MaxChanges: 10, MaxRequests: 10})
	j.Floor(Resource{"apps", "deployments"}, Marks{0}, "5", now)
	r := audit.Record{Stage: audit.Received, Verb: "deletecollection", Group: "apps", Resource: "deployments", Namespace: "shop", Received: now, Reached: now}
	j.Read(0, 1, &r, now)
	over := r
	over.Stage, over.Code = audit.Complete, 200
	j.Read(0, 2, &over, now)
	j.Change(Change{ID: 1, Object: Object{"apps", "deployments", "shop", "web"}, UID: "u", Kind: Removed, Version: "7", Seen: Marks{1}, At: now})
	verdicts := j.Take()
	if len(verdicts) != 1 || verdicts[0].Reason != NoOutcome || len(verdicts[0].Candidates) != 1 {
		t.Errorf("verdicts %+v; want one candidate, whose outcome is unknown", verdicts)
	}
}

// A change whose event was not published comes again after any time, with the request that made it. Nothing else changes meanwhile: a patch that changed
// nothing, and was answered with the next change of the object, has not made that one.
func TestReturned(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	object := Object{"apps", "deployments", "shop", "web"}
	number := uint64(0)
	patch := func(j *Join, user, version string) {
		r := audit.Record{Stage: audit.Received, Level: audit.RequestResponse, Verb: "patch", Group: object.Group, Resource: object.Resource, Namespace: object.Namespace, Name: object.Name, URI: user, Received: now, Reached: now}
		over := r
		over.Stage, over.Code, over.Answer = audit.Complete, 200, &audit.Answer{Namespace: "shop", Name: "web", UID: "u", Version: version}
		for _, r := range []*audit.Record{&r, &over} {
			number++
			j.Read(0, number, r, now)
		}
	}
	j := New(Options{Complete: true, Settle: time.Minute, Keep: time.Hour, MaxOpen: time.Minute, MaxChanges: 10, MaxRequests: 10})
	j.Floor(Resource{"apps", "deployments"}, Marks{0}, "10", now)
	change := func(id uint64, version, want string) Verdict {
		t.Helper()
		j.Change(Change{ID: id, Object: object, UID: "u", Kind: Changed, Version: version, Seen: Marks{number}, At: now})
		j.Settle(now)
		v := j.Take()
		if len(v) != 1 || v[0].Exact == nil || v[0].Exact.URI != want {
			t.Fatalf("change %d has verdicts %+v, want %s", id, v, want)
		}
		return v[0]
	}
	patch(j, "alice", "11")
	returned := change(1, "11", "alice")
	patch(j, "bob", "12")
	change(2, "12", "bob") // in another collection
	patch(j, "carol", "12")
	now = now.Add(2 * j.options.Keep)
	j.resolved.limit, j.resolved.bytes = 0, 1 // nobody else remembers the verdicts
	j.resolved.shrink()
	j.Return(returned, now)
	marks := Marks{number}
	if j.Lower(marks, nil); marks[0] != 1 {
		t.Errorf("records are needed from %d on, want 1: the change was not published", marks[0])
	}
	change(3, "11", "alice")
	j.Change(Change{ID: 4, Object: object, UID: "u", Kind: Changed, Version: "12", Seen: Marks{number}, At: now})
	j.Settle(now.Add(2 * j.options.Keep))
	if v := j.Take(); len(v) != 1 || v[0].Exact != nil && v[0].Exact.URI != "bob" {
		t.Errorf("the change of bob has verdicts %+v", v)
	}
}

// The API server stores an object, cannot return it in the form that the client asks for, and answers with an error. A patch of another user that
// changed nothing is not the only request that is possible then.
func TestStoredDespiteTheError(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	object := Object{"apps", "deployments", "shop", "web"}
	answer := audit.Answer{Namespace: "shop", Name: "web", UID: "u", Version: "7", Bare: true}
	for code, exact := range map[int]bool{400: false, 406: false, 418: false, 409: true, 422: true} {
		for _, complete := range []bool{true, false} {
			j := New(Options{Complete: complete, Settle: time.Minute, Keep: time.Hour, MaxOpen: time.Minute, MaxChanges: 10, MaxRequests: 10})
			j.Floor(Resource{"apps", "deployments"}, Marks{0}, "5", now)
			number := uint64(0)
			patch := func(user string, code int, answer *audit.Answer) {
				r := audit.Record{
					ID: user, Stage: audit.Received, Level: audit.RequestResponse, Verb: "patch", Group: object.Group, Resource: object.Resource,
					Namespace: object.Namespace, Name: object.Name, Received: now, Reached: now, Actor: audit.Actor{User: audit.User{Name: user}},
					URI: "/apis/apps/v1/namespaces/shop/deployments/web?includeObject=wrong",
				}
				end := r
				end.Stage, end.Code, end.Decision, end.Answer = audit.Complete, code, "allow", answer
				j.Read(0, number+1, &r, now)
				j.Read(0, number+2, &end, now)
				number += 2
			}
			patch("mallory", code, nil)
			patch("controller", 200, &answer)
			j.Change(Change{ID: 1, Object: object, UID: "u", Kind: Changed, Version: "7", Before: "5", Seen: Marks{number}, At: now})
			j.Settle(now.Add(2 * time.Minute))
			verdicts := j.Take()
			if len(verdicts) != 1 {
				t.Fatalf("%d verdicts", len(verdicts))
			}
			v := verdicts[0]
			if v.Exact != nil != (exact && complete) || !exact && len(v.Candidates) != 2 {
				t.Errorf("code %d, complete records %t: exact is %v, with %d candidates", code, complete, v.Exact, len(v.Candidates))
			}
		}
	}
}

// A request is excluded only by what the API server guarantees, also if other requests write between its steps: an excluded one makes an innocent the
// only one that is possible.
func TestPossible(t *testing.T) {
	gone, marked, untouched := audit.Answer{Ending: true, Bare: true}, audit.Answer{Ending: true}, audit.Answer{Bare: true}
	answer := func(a audit.Answer, uid, version string) *audit.Answer {
		a.Namespace, a.Name, a.UID, a.Version = "shop", "web", uid, version
		return &a
	}
	change := Change{Object: Object{"", "pods", "shop", "web"}, UID: "u", Version: "9", Before: "8"}
	for _, test := range []struct {
		name       string
		record     audit.Record
		kind       Kind
		impossible bool
	}{
		{"update that names the version before", audit.Record{Verb: "update", Code: 200, Expected: "8"}, Changed, false},
		{"update that names an earlier version", audit.Record{Verb: "update", Code: 200, Expected: "7"}, Changed, true},
		{"it takes the last finalizer away, and another write came between its steps", audit.Record{Verb: "update", Code: 200, Expected: "7", Answer: answer(gone, "u", "7")}, Removed, false},
		{"the same, answered with a Table", audit.Record{Verb: "update", Code: 200, Expected: "7"}, Removed, false},
		{"the same of a Namespace", audit.Record{Verb: "update", Subresource: "finalize", Code: 200, Expected: "7", Answer: answer(gone, "u", "7")}, Removed, false},
		{"a patch that takes it away, and the name was used again between its steps", audit.Record{Verb: "patch", Code: 200, Answer: answer(gone, "old", "5")}, Removed, false},
		{"update that leaves a finalizer", audit.Record{Verb: "update", Code: 200, Expected: "8", Answer: answer(marked, "u", "8")}, Removed, true},
		{"update after the removal", audit.Record{Verb: "update", Code: 200, Answer: answer(gone, "u", "9")}, Removed, true},
		{"deletion that sets deletionTimestamp", audit.Record{Verb: "delete", Code: 200, Answer: answer(marked, "u", "9")}, Changed, false},
		{"deletion that finds it set", audit.Record{Verb: "delete", Code: 200, Answer: answer(marked, "u", "10")}, Changed, true},
		{"deletion that sets it and removes", audit.Record{Verb: "delete", Code: 200, Answer: answer(gone, "u", "10")}, Changed, false},
		{"forced deletion that sets it, and another one removes: 200 without a resourceVersion", audit.Record{Verb: "delete", Code: 200, Answer: answer(gone, "u", "")}, Changed, false},
		{"the same has not removed", audit.Record{Verb: "delete", Code: 200, Answer: answer(gone, "u", "")}, Removed, true},
		{"deletion that sets it, and removes an object that has the name by then", audit.Record{Verb: "delete", Code: 200, Answer: answer(untouched, "new", "12")}, Changed, false},
		{"deletion that has removed one with the name before", audit.Record{Verb: "delete", Code: 200, Answer: answer(gone, "old", "5")}, Changed, true},
		{"deletion that removes", audit.Record{Verb: "delete", Code: 200, Answer: answer(untouched, "u", "9")}, Removed, false},
		{"deletion that removes an object that got a finalizer and a deletionTimestamp between its steps", audit.Record{Verb: "delete", Code: 200, Answer: answer(marked, "u", "9")}, Removed, false},
		{"deletion of many that has selected it", audit.Record{Verb: "deletecollection", Code: 200, Selected: []string{"api", "web"}}, Removed, false},
		{"deletion of many, and it is not known which", audit.Record{Verb: "deletecollection", Code: 200}, Removed, false},
		{"deletion of many that has selected others", audit.Record{Verb: "deletecollection", Code: 200, Selected: []string{"api"}}, Changed, true},
		{"deletion of many that has selected nothing", audit.Record{Verb: "deletecollection", Code: 200, Selected: []string{}}, Removed, true},
		{"patch that is refused before the write", audit.Record{Verb: "patch", Code: 400, URI: "/api/v1/namespaces/shop/pods/web?fieldManager=x"}, Changed, true},
		{"patch that may be refused after the write", audit.Record{Verb: "patch", Code: 400, URI: "/api/v1/namespaces/shop/pods/web?includeObject=x"}, Changed, false},
		{"deletion of another object", audit.Record{Verb: "delete", Code: 200, Answer: answer(gone, "old", "9")}, Removed, true},
	} {
		r := test.record
		r.Stage = audit.Complete
		change.Kind = test.kind
		if possible := can(&request{record: &r}, &change); possible == test.impossible {
			t.Errorf("%s: possible is %t", test.name, possible)
		}
	}
}

// A forced deletion of a Pod sets its deletionTimestamp, and the kubelet's deletion removes the Pod before it. The API server answers it with 200, and an object
// without a resourceVersion. It has changed the Pod and has not removed it. Nobody else who patches or deletes the Pod at that time is named instead.
func TestForcedDeletionThatIsTooLate(t *testing.T) {
	p := newPatches()
	pods := Resource{"", "pods"}
	pod := Object{"", "pods", "shop", "web"}
	p.at(pods, "100")
	request := func(verb, user string, answer audit.Answer) func() {
		r := p.record(pod, verb, user)
		p.read(r)
		r.Stage, r.Code, r.Decision = audit.Complete, 200, "allow"
		answer.Namespace, answer.Name, answer.UID = "shop", "web", "u"
		r.Answer = &answer
		return func() { p.read(r) }
	}
	force := request("delete", "alice", audit.Answer{Ending: true, Bare: true})
	kubelet := request("delete", "kubelet", audit.Answer{Version: "112", Ending: true, Bare: true})
	label := request("patch", "bob", audit.Answer{Version: "110", Ending: true})
	kubelet()
	force()
	label()
	if user := p.changeOf(pod, "111", p.number); user == "bob" || user == "kubelet" {
		t.Errorf("%s has set the deletionTimestamp", user)
	}
	p.Change(Change{ID: 99, Object: pod, UID: "u", Kind: Removed, Version: "112", Seen: Marks{p.number}, At: p.now})
	p.Settle(p.now)
	if user := p.user(); user != "kubelet" {
		t.Errorf("%q has removed the Pod, want the kubelet", user)
	}
}

// Two records prove the same change for different users: one of them is wrong, for example because it is forged. Neither is exact, in whichever order the records and
// the change come. The second record may also come when there is a verdict: then the change gets another one, and later ones of other collections are alike.
func TestTwoProofs(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for _, kind := range []Kind{Created, Changed, Removed} {
		for at := range 3 { // where the change comes
			for _, complete := range []bool{false, true} {
				j := New(Options{Complete: complete, Settle: time.Minute, Keep: time.Hour, MaxOpen: time.Minute, MaxChanges: 10, MaxRequests: 10})
				for i, user := range []string{"alice", "mallory"} {
					if at == i {
						j.Change(Change{ID: 1, Object: web, UID: "u", Kind: kind, Version: "7", At: now})
					}
					j.Read(0, uint64(i+1), proof(kind, user, now), now)
				}
				if at == 2 {
					j.Change(Change{ID: 1, Object: web, UID: "u", Kind: kind, Version: "7", At: now})
				}
				j.Change(Change{ID: 2, Object: web, UID: "u", Kind: kind, Version: "7", At: now}) // in another collection
				j.Settle(now.Add(j.options.Keep))
				last := map[uint64]Verdict{}
				for _, v := range j.Take() {
					last[v.Change] = v
				}
				for id := uint64(1); id <= 2; id++ {
					if v, given := last[id]; !given || v.Exact != nil || v.Reason != Several || len(v.Candidates) != 2 {
						t.Errorf("kind %d, change at %d, complete records %t: the verdict on change %d is %+v", kind, at, complete, id, v)
					}
				}
			}
		}
	}
}

// proof returns a record that proves a change of the Deployment to version 7.
func proof(kind Kind, user string, now time.Time) *audit.Record {
	r := map[Kind]audit.Record{Created: {Verb: "create", Code: 201}, Changed: {Verb: "update", Code: 200, Expected: "6"}, Removed: {Verb: "delete", Code: 200}}[kind]
	r.ID, r.Stage, r.Level, r.Actor.User.Name, r.Received, r.Reached = user, audit.Complete, audit.RequestResponse, user, now, now
	r.Group, r.Resource, r.Namespace, r.Name = web.Group, web.Resource, web.Namespace, web.Name
	r.Answer = &audit.Answer{Namespace: "shop", Name: "web", UID: "u", Version: "7", Bare: true}
	return &r
}

// An API server sends a batch again, and an aggregated one records the same request once more: both are of the same user, so the verdict stays.
func TestOneProofTwice(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	j := New(Options{Settle: time.Minute, Keep: time.Hour, MaxOpen: time.Minute, MaxChanges: 10, MaxRequests: 10})
	j.Change(Change{ID: 1, Object: web, UID: "u", Kind: Changed, Version: "7", At: now})
	for i := range 3 {
		j.Read(0, uint64(i+1), proof(Changed, "alice", now.Add(time.Duration(i/2)*time.Millisecond)), now)
	}
	if v := j.Take(); len(v) != 1 || v[0].Exact == nil {
		t.Errorf("verdicts %+v, want one that is exact", v)
	}
}
