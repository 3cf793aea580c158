package join

import (
	"strconv"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/audit"
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

// patch reads the records of a patch that was answered with a version. It returns the numbers of its beginning and of its end.
func (p *patches) patch(user, version string) (begin, end uint64) {
	r := audit.Record{
		ID: user, Stage: audit.Received, Level: audit.RequestResponse, Verb: "patch", Group: "apps", Resource: "deployments", Namespace: "shop", Name: "web",
		Received: p.now, Reached: p.now, Actor: audit.Actor{User: audit.User{Name: user}},
	}
	over := r
	over.Stage, over.Code, over.Decision, over.Answer = audit.Complete, 200, "allow", &audit.Answer{Namespace: "shop", Name: "web", UID: "u", Version: version}
	p.Read(0, p.number+1, &r, p.now)
	p.Read(0, p.number+2, &over, p.now)
	p.number += 2
	return p.number - 1, p.number
}

// change returns the user that a verdict on the change to a version names; "": there is none, or it is not exact.
func (p *patches) change(version string, seen uint64) string {
	p.Change(Change{ID: p.number, Object: Object{"apps", "deployments", "shop", "web"}, UID: "u", Kind: Changed, Version: version, Seen: Marks{seen}, At: p.now})
	p.Settle(p.now)
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
