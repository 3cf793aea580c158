package join

import (
	"strconv"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
)

var deployments, events = Resource{"apps", "deployments"}, Resource{"", "events"}

// patches is a join of complete records with patches of one Deployment.
type patches struct {
	*Join
	now    time.Time
	number uint64
}

func newPatches() *patches {
	p := &patches{now: time.Unix(1_800_000_000, 0), Join: New(Options{Complete: true, Settle: time.Minute, Keep: time.Hour, MaxOpen: time.Minute, MaxChanges: 10, MaxRequests: 10})}
	p.Lost(Marks{0}, p.now)
	return p
}

// at is a later floor of a resource, behind all records.
func (p *patches) at(r Resource, version string) {
	p.now = p.now.Add(2 * time.Minute)
	p.Floor(r, Marks{p.number}, version, p.now)
}

var web = Object{"apps", "deployments", "shop", "web"}

// patch reads the records of a patch of the Deployment that was answered with a version. It returns the numbers of its beginning and of its end.
func (p *patches) patch(user, version string) (begin, end uint64) {
	return p.patchOf(web, user, version)
}

func (p *patches) patchOf(o Object, user, version string) (begin, end uint64) {
	r := p.record(o, "patch", user)
	over := r
	over.Stage, over.Code, over.Decision, over.Answer = audit.Complete, 200, "allow", &audit.Answer{Namespace: o.Namespace, Name: o.Name, UID: "u", Version: version}
	return p.read(r), p.read(over)
}

// record returns the first record of a request.
func (p *patches) record(o Object, verb, user string) audit.Record {
	return audit.Record{
		ID: user, Stage: audit.Received, Level: audit.RequestResponse, Verb: verb, Group: o.Group, Resource: o.Resource, Namespace: o.Namespace, Name: o.Name,
		URI: strconv.FormatUint(p.number, 10), Received: p.now, Reached: p.now, Actor: audit.Actor{User: audit.User{Name: user}},
	}
}

func (p *patches) read(r audit.Record) (number uint64) {
	p.number++
	p.Read(0, p.number, &r, p.now)
	return p.number
}

// change returns the user that a verdict on the change of the Deployment to a version names; "": there is none, or it is not exact.
func (p *patches) change(version string, seen uint64) string { return p.changeOf(web, version, seen) }

func (p *patches) changeOf(o Object, version string, seen uint64) string {
	p.Change(Change{ID: p.number, Object: o, UID: "u", Kind: Changed, Version: version, Seen: Marks{seen}, At: p.now})
	p.Settle(p.now)
	return p.user()
}

// user returns the user that the verdicts since the last call name.
func (p *patches) user() string {
	for _, v := range p.Take() {
		if v.Exact != nil {
			return v.Exact.Actor.User.Name
		}
	}
	return ""
}

// Events may have an etcd of their own, with resourceVersions of their own. How far they have come says nothing about Deployments: the patch that made a
// change is not forgotten because of it, and a later one that changed nothing is not taken for it.
func TestEachResourceHasItsOwnVersions(t *testing.T) {
	p := newPatches()
	p.at(deployments, "5000100")
	p.patch("alice", "5000123")
	for n := range 20 {
		p.at(events, strconv.Itoa(900_050+n))
	}
	p.Passed(deployments, "5000110")
	p.Passed(events, "900060")
	begin, _ := p.patch("bob", "5000123")
	if user := p.change("5000123", begin); user != "alice" {
		t.Errorf("%q has made the change, want alice", user)
	}
	p.at(deployments, "5000130")
	begin, _ = p.patch("carol", "5000140")
	if user := p.change("5000140", begin); user != "carol" {
		t.Errorf("%q has made the change, want carol", user)
	}
}

// A floor of another resource does not say since when no record is missing.
func TestEachResourceIsTrustedByItsOwnFloor(t *testing.T) {
	p := newPatches()
	p.at(events, "900050")
	begin, _ := p.patch("alice", "5000123")
	if user := p.change("5000123", begin); user != "" {
		t.Errorf("%s has made the change, although records may be missing", user)
	}
}

// If a resource is used later, or again, records of requests before may be missing, until these must have ended.
func TestUsedLater(t *testing.T) {
	p := newPatches()
	p.at(deployments, "100")
	begin, _ := p.patch("alice", "110")
	if user := p.change("110", begin); user != "alice" {
		t.Fatalf("%q has made the change, want alice", user)
	}
	p.patch("bob", "110")
	for range 2 {
		p.now = p.now.Add(p.options.Keep)
		p.Idle(deployments, p.now)
	}
	if _, requests := p.Waiting(); requests != 0 {
		t.Errorf("%d requests for a resource without collections wait", requests)
	}
	p.Use(deployments, p.now)
	p.Floor(deployments, Marks{p.number}, "200", p.now)
	begin, _ = p.patch("carol", "210")
	if user := p.change("210", begin); user != "" {
		t.Errorf("%s has made the change, although records may be missing", user)
	}
	p.Use(deployments, p.now)
	p.at(deployments, "300")
	begin, _ = p.patch("dave", "310")
	if user := p.change("310", begin); user != "dave" {
		t.Errorf("%q has made the change, want dave", user)
	}
}

// A caller says that all changes up to a version were passed to the join, and one of them comes later. Its request is forgotten, so the only one that is
// left has not made the change.
func TestPassedTooEarly(t *testing.T) {
	p := newPatches()
	p.at(deployments, "100")
	p.patch("alice", "120")
	p.at(deployments, "140")
	p.Passed(deployments, "150")
	p.Passed(deployments, "110") // another collection is behind
	begin, _ := p.patch("bob", "120")
	if user := p.change("120", begin); user != "" {
		t.Errorf("%s has made the change, although its request is forgotten", user)
	}
	begin, _ = p.patch("carol", "160")
	if user := p.change("160", begin); user != "carol" {
		t.Errorf("%q has made the change, want carol", user)
	}
}

// A deletion has its options in the body, which only the last record has. If they say that it is a dry run, it has changed nothing: a patch that was sent
// meanwhile does not wait for it any more.
func TestDryRunInTheBody(t *testing.T) {
	p := newPatches()
	p.at(deployments, "100")
	dry := p.record(web, "delete", "bob")
	dry.MaybeDryRun = true
	p.read(dry)
	p.patch("alice", "110")
	if user := p.change("110", p.number); user != "" {
		t.Errorf("%s has made the change, although a deletion is open", user)
	}
	dry.Stage, dry.Code, dry.MaybeDryRun, dry.DryRun = audit.Complete, 200, false, true
	dry.Answer = &audit.Answer{Namespace: "shop", Name: "web", UID: "u", Version: "110", Bare: true}
	p.read(dry)
	if user := p.user(); user != "alice" {
		t.Errorf("%q has made the change, want alice", user)
	}
	if changes, requests := p.Waiting(); changes+requests != 0 {
		t.Errorf("%d changes and %d requests wait", changes, requests)
	}
}

// A dry run is over, and says nothing about another request with the same audit ID and times: clients can send both.
func TestDryRunWithTheKeyOfAnother(t *testing.T) {
	p := newPatches()
	p.at(deployments, "100")
	dry := p.record(web, "delete", "alice")
	p.read(dry) // the deletion
	p.read(dry)
	p.patch("bob", "110")
	dry.Stage, dry.Code, dry.DryRun = audit.Complete, 200, true
	p.read(dry)
	if user := p.change("110", p.number); user != "" {
		t.Errorf("%s has made the change, although a deletion is open", user)
	}
}

// If a resource is not passed, because one of its collections cannot be listed, its requests are not kept without an end: other resources and the API server
// need the room of their records. Its changes are not exact then.
func TestResourceThatIsStuck(t *testing.T) {
	p := newPatches()
	p.Use(deployments, p.now)
	p.at(deployments, "100")
	p.Settle(p.now)
	p.patch("alice", "110")
	last := p.number
	p.patch("bob", "120")
	p.now = p.now.Add(p.options.Keep)
	p.Settle(p.now)
	marks := Marks{p.number + 1}
	if p.Lower(marks, nil); marks[0] <= last {
		t.Errorf("records from %d on are needed", marks[0])
	}
	if user := p.change("120", p.number); user != "" {
		t.Errorf("%s has made the change, although requests are forgotten", user)
	}
}

// A resource whose requests cannot be forgotten, because one of its collections is never read, takes the room of all. What is given up then makes no
// other resource inexact: requests for Events change no Deployment.
func TestRoomTakenByOneResource(t *testing.T) {
	p := newPatches()
	for _, r := range []Resource{deployments, events} {
		p.Use(r, p.now)
		p.at(r, "100")
	}
	event := Object{"", "events", "shop", "e"}
	for range 3 * p.options.MaxRequests {
		p.patchOf(event, "kubelet", "")
	}
	if f := p.Forgotten(); f.Number == 0 {
		t.Fatal("there was room for all requests")
	}
	begin, _ := p.patch("alice", "110")
	if user := p.change("110", begin); user != "alice" {
		t.Errorf("%q has made the change of the Deployment, want alice", user)
	}
	for _, o := range []struct{ version, user string }{{"120", ""}, {"220", "scheduler"}} {
		begin, _ := p.patchOf(event, "scheduler", o.version)
		if user := p.changeOf(event, o.version, begin); user != o.user {
			t.Errorf("%q has made the change of the Event to %s, want %q", user, o.version, o.user)
		}
		p.at(events, "200")
		p.Passed(events, "200")
	}
}

// Requests of a resource without collections may be given up as well, before it is used again.
func TestRoomTakenBeforeItIsUsed(t *testing.T) {
	p := newPatches()
	p.Use(deployments, p.now)
	p.at(deployments, "100")
	p.Idle(deployments, p.now)
	for range 2 * p.options.MaxRequests {
		p.patch("alice", "110")
	}
	p.Use(deployments, p.now.Add(2*p.options.MaxOpen))
	p.Floor(deployments, Marks{p.number}, "120", p.now.Add(2*p.options.MaxOpen))
	begin, _ := p.patch("bob", "130")
	if user := p.change("130", begin); user != "" {
		t.Errorf("%s has made the change, although records may be missing", user)
	}
}

// After a restart, a collection that is behind publishes a change that another one has published. The records that say who made it are needed until
// then, or until no request is waited for any more.
func TestRecordsOfLateCollections(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for _, test := range []struct {
		name   string
		passed func(j *Join)
	}{
		{"all collections have the change", func(j *Join) { j.Passed(deployments, "7") }},
		{"it is too late", func(j *Join) { j.Settle(now.Add(j.options.Keep)) }},
		{"records are read again from another position", func(j *Join) { j.Begin(Marks{0}, now) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			j := New(Options{Settle: time.Minute, Keep: time.Hour, MaxOpen: time.Minute, MaxChanges: 10, MaxRequests: 10})
			r := audit.Record{
				Stage: audit.Complete, Level: audit.RequestResponse, Verb: "create", Code: 201, Group: "apps", Resource: "deployments", Namespace: "shop", Name: "web",
				Answer: &audit.Answer{Namespace: "shop", Name: "web", UID: "u", Version: "7"}, Received: now, Reached: now,
			}
			j.Read(0, 1, &r, now)
			j.Change(Change{ID: 1, Object: web, UID: "u", Kind: Created, Version: "7", At: now})
			if v := j.Take(); len(v) != 1 || v[0].Exact == nil {
				t.Fatalf("verdicts %+v, want one that is exact", v)
			}
			needed := func(overlapping ...Resource) uint64 {
				marks, all := Marks{2}, map[Resource]bool{}
				for _, r := range overlapping {
					all[r] = true
				}
				j.Lower(marks, all)
				return marks[0]
			}
			j.Passed(deployments, "6")
			if n := needed(deployments); n != 1 {
				t.Errorf("records are needed from %d on, want 1: a collection has not passed the change", n)
			}
			if n := needed(events); n != 2 {
				t.Errorf("records are needed from %d on, want 2: no other collection has the object", n)
			}
			test.passed(j)
			if n := needed(deployments); n != 2 {
				t.Errorf("records are needed from %d on, want 2", n)
			}
		})
	}
}
