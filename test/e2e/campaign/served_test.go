package campaign

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// servedHistory is [rightHistory], with right answers to the clients of `bridge serve`.
func servedHistory(pair string) *servedVerdict {
	h := rightHistory()
	p, _ := FindPair(pair) // the tests name pairs that exist
	v := newServedVerdict(p, h.ledger, []target{{Type: kube.ConfigMaps}}, h.messages)
	v.cluster[resource] = map[string]item{"u2": {uid: "u2", name: "n/b", body: canonical(bodyAt("u2", "n/b", 25))}}
	listed := func(version uint64, items ...item) *answer {
		return &answer{resource: resource, point: point{version: version}, code: 200, version: version, pages: 1, items: items}
	}
	refused := func(version uint64) *answer {
		return &answer{resource: resource, point: point{version: version}, code: 410, reason: "Expired"}
	}
	early := listed(13)
	early.early = true
	now := listed(25, itemAt("u2", "n/b", 25))
	now.point.version = 0
	v.answers = []*answer{
		early, now, refused(9), listed(10), listed(11, itemAt("u1", "n/a", 11)), listed(12, itemAt("u1", "n/a", 12)), listed(13), listed(14, itemAt("u2", "n/b", 14)),
		refused(21), refused(22), listed(24, itemAt("u2", "n/b", 14)), listed(25, itemAt("u2", "n/b", 25)),
	}
	v.trails = []*trail{{resource: resource, what: follower, goal: 25, sights: []sight{
		{kind: sawList, version: 10},
		sightOf("ADDED", "u1", "n/a", 11), sightOf("MODIFIED", "u1", "n/a", 12), sightOf("DELETED", "u1", "n/a", 13), sightOf("ADDED", "u2", "n/b", 14),
		{kind: sawRefusal, version: 14, code: 410},
		{kind: sawList, version: 24, items: []item{itemAt("u2", "n/b", 14)}},
		sightOf("MODIFIED", "u2", "n/b", 25),
		{kind: "BOOKMARK", version: 25},
	}}, {resource: resource, what: "the watch from 24", goal: 25, sights: []sight{
		{kind: sawList, version: 24, items: []item{itemAt("u2", "n/b", 14)}}, sightOf("MODIFIED", "u2", "n/b", 25), {kind: "BOOKMARK", version: 25},
	}}, {resource: resource, what: "the watch from 13", goal: 25, sights: []sight{{kind: sawList, version: 13}, {kind: sawRefusal, version: 13, code: 410}}}}
	return v
}

func itemAt(uid, name string, rv uint64) item {
	body, _ := json.Marshal(bodyAt(uid, name, rv))
	return item{uid: uid, name: name, rv: rv, body: string(body)}
}

func sightOf(kind, uid, name string, rv uint64) sight {
	return sight{kind: kind, version: rv, item: itemAt(uid, name, rv)}
}

// A checker that accepts wrong answers would be worthless, so each rule is broken.
func TestServedVerdict(t *testing.T) {
	const strict = "nats-eo/nats"
	v := servedHistory(strict)
	if problems := v.judge(); len(problems) > 0 {
		t.Fatalf("the right answers have the problems %v, want none", problems)
	}
	if want := (servedCounts{Covered: 7, Refused: 3, Early: 1, Watches: 2, Changes: 7, Relists: 1}); v.counts != want {
		t.Errorf("the counts are %+v, want %+v", v.counts, want)
	}
	if wrong := v.differs(resource, []item{itemAt("u2", "n/b", 25)}); wrong != "" {
		t.Errorf("what exists at the end is called wrong: %s", wrong)
	}
	for _, items := range [][]item{nil, {itemAt("u2", "n/b", 14)}, {itemAt("u2", "n/b", 25), itemAt("u1", "n/a", 12)}, {itemAt("u2", "n/b", 25), itemAt("u2", "n/b", 25)}} {
		if v.differs(resource, items) == "" {
			t.Errorf("%v is taken for what exists at the end", items)
		}
	}
	list := func(v *servedVerdict, version uint64) *answer {
		i := slices.IndexFunc(v.answers, func(a *answer) bool { return !a.early && a.point.version == version })
		return v.answers[i]
	}
	sights := func(v *servedVerdict, do func([]sight) []sight) { v.trails[0].sights = do(v.trails[0].sights) }
	for name, c := range map[string]struct {
		rule string
		do   func(v *servedVerdict)
	}{
		"an object is missing":                       {"serve list", func(v *servedVerdict) { list(v, 12).items = nil }},
		"an object is missing from the present list": {"serve list", func(v *servedVerdict) { list(v, 0).items = nil }},
		"a deleted object is listed":                 {"serve list", func(v *servedVerdict) { list(v, 13).items = []item{itemAt("u1", "n/a", 12)} }},
		"an object is listed too early":              {"serve list", func(v *servedVerdict) { list(v, 13).items = []item{itemAt("u2", "n/b", 14)} }},
		"an object of a gap is listed":               {"serve list", func(v *servedVerdict) { x := list(v, 24); x.items = append(x.items, itemAt("u3", "n/c", 22)) }},
		"an old version is listed":                   {"serve list", func(v *servedVerdict) { list(v, 12).items[0] = itemAt("u1", "n/a", 11) }},
		"a later version is listed":                  {"serve list", func(v *servedVerdict) { list(v, 11).items[0] = itemAt("u1", "n/a", 12) }},
		"an object is listed twice":                  {"serve list", func(v *servedVerdict) { x := list(v, 12); x.items = append(x.items, x.items[0]) }},
		"a name is listed twice":                     {"serve list", func(v *servedVerdict) { x := list(v, 24); x.items = append(x.items, itemAt("u4", "n/b", 14)) }},
		"an object that never existed is listed":     {"serve list", func(v *servedVerdict) { x := list(v, 24); x.items = append(x.items, itemAt("u4", "n/d", 14)) }},
		"an object has another name":                 {"serve list", func(v *servedVerdict) { list(v, 12).items[0].name = "n/x" }},
		"a body has other bytes":                     {"serve list", func(v *servedVerdict) { x := &list(v, 12).items[0]; x.body = strings.Replace(x.body, ":", ": ", 1) }},
		"a body is that of another version": {"serve list", func(v *servedVerdict) {
			list(v, 12).items[0].body = itemAt("u1", "n/a", 11).body
		}},
		"a body was published, and is not that of the API server": {"serve list", func(v *servedVerdict) {
			x := &list(v, 12).items[0]
			x.body = strings.Replace(x.body, `"at":"12"`, `"at":"13"`, 1)
			v.bodies["u1 12"][x.body] = true
		}},
		"a list is of another version": {"serve list", func(v *servedVerdict) { list(v, 12).version = 11 }},
		"a page is of another version": {"serve list", func(v *servedVerdict) { list(v, 12).reason = "page 2 is of another version" }},
		"a version is refused": {"serve covered", func(v *servedVerdict) {
			*list(v, 12) = answer{resource: resource, point: point{version: 12}, code: 410}
		}},
		"the version of a list is refused": {"serve covered", func(v *servedVerdict) {
			*list(v, 24) = answer{resource: resource, point: point{version: 24}, code: 410}
		}},
		"the newest version is refused": {"serve covered", func(v *servedVerdict) {
			*list(v, 25) = answer{resource: resource, point: point{version: 25}, code: 503}
		}},
		"a version is refused later": {"serve covered", func(v *servedVerdict) {
			v.dropped = true
			*list(v, 13) = answer{resource: resource, point: point{version: 13}, code: 410}
		}},
		"a change is lost":          {"serve follower", func(v *servedVerdict) { sights(v, func(s []sight) []sight { return slices.Delete(s, 2, 3) }) }},
		"a deletion is lost":        {"serve follower", func(v *servedVerdict) { sights(v, func(s []sight) []sight { return slices.Delete(s, 3, 4) }) }},
		"the last change is lost":   {"serve follower", func(v *servedVerdict) { sights(v, func(s []sight) []sight { return slices.Delete(s, 7, 8) }) }},
		"a change comes twice":      {"serve follower", func(v *servedVerdict) { sights(v, func(s []sight) []sight { return slices.Insert(s, 3, s[2]) }) }},
		"a creation comes twice":    {"serve follower", func(v *servedVerdict) { sights(v, func(s []sight) []sight { return slices.Insert(s, 2, s[1]) }) }},
		"a deletion comes twice":    {"serve follower", func(v *servedVerdict) { sights(v, func(s []sight) []sight { return slices.Insert(s, 4, s[3]) }) }},
		"changes change places":     {"serve follower", func(v *servedVerdict) { sights(v, func(s []sight) []sight { s[2], s[1] = s[1], s[2]; return s }) }},
		"a change has a wrong body": {"serve follower", func(v *servedVerdict) { v.trails[0].sights[2].item.body = itemAt("u1", "n/a", 11).body }},
		"an object that never existed": {"serve follower", func(v *servedVerdict) {
			sights(v, func(s []sight) []sight { return slices.Insert(s, 5, sightOf("ADDED", "u4", "n/d", 14)) })
		}},
		"a list of the follower is wrong":    {"serve follower", func(v *servedVerdict) { v.trails[0].sights[6].items = nil }},
		"the follower does not come to now":  {"serve follower", func(v *servedVerdict) { v.trails[0].goal = 26 }},
		"the follower never had a list":      {"serve follower", func(v *servedVerdict) { v.trails[0].sights = nil }},
		"a 410 without a gap":                {"serve follower", func(v *servedVerdict) { v.trails[0].sights[5].version = 25 }},
		"a version that was seen is too new": {"serve follower", func(v *servedVerdict) { v.trails[0].sights[5].code = 504 }},
		"a watch misses a change":            {"serve watch", func(v *servedVerdict) { x := v.trails[1]; x.sights = slices.Delete(x.sights, 1, 2) }},
		"a watch shows a change twice":       {"serve watch", func(v *servedVerdict) { x := v.trails[1]; x.sights = slices.Insert(x.sights, 1, x.sights[1]) }},
		"a watch ends early":                 {"serve watch", func(v *servedVerdict) { x := v.trails[1]; x.sights = x.sights[:1] }},
		"a watch is refused":                 {"serve watch", func(v *servedVerdict) { v.trails[1].sights[1] = sight{kind: sawRefusal, version: 24, code: 410} }},
		"a watch sends the list again": {"serve watch", func(v *servedVerdict) {
			x := v.trails[1]
			x.sights = slices.Insert(x.sights, 1, sightOf("ADDED", "u2", "n/b", 14))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			v := servedHistory(strict)
			c.do(v)
			problems := v.judge()
			if !slices.ContainsFunc(problems, func(p string) bool { return strings.HasPrefix(p, "["+c.rule+"]") }) {
				t.Errorf("the problems are %v, want one of the rule %q", problems, c.rule)
			}
		})
	}
}

// Refusals that docs/serve.md permits are no problems.
func TestServedRefusals(t *testing.T) {
	refuse := func(v *servedVerdict, version uint64) {
		v.answers = []*answer{{resource: resource, point: point{version: version}, code: 410}}
	}
	for name, c := range map[string]struct {
		pair string
		do   func(v *servedVerdict)
	}{
		"Kafka, before a gap":                          {"kafka-eo/kafka", func(v *servedVerdict) { refuse(v, 12) }},
		"the stream was deleted":                       {"nats-eo/nats", func(v *servedVerdict) { v.dropped = true; refuse(v, 12) }},
		"etcd was restored":                            {"nats-eo/nats", func(v *servedVerdict) { v.restored = true; refuse(v, 12) }},
		"a version is too new after etcd was restored": {"nats-eo/nats", func(v *servedVerdict) { v.restored = true; v.trails[0].sights[5].code = 504 }},
		"several collections":                          {"nats-eo/nats", func(v *servedVerdict) { v.loose[resource] = true; refuse(v, 12) }},
		"during the faults":                            {"nats-eo/nats", func(v *servedVerdict) { refuse(v, 12); v.answers[0].early = true }},
	} {
		v := servedHistory(c.pair)
		c.do(v)
		if problems := v.judge(); len(problems) > 0 {
			t.Errorf("%s: the problems are %v, want none", name, problems)
		}
	}
	v := servedHistory("kafka-eo/kafka")
	refuse(v, 24)
	if problems := v.judge(); len(problems) != 1 {
		t.Errorf("a version behind the last gap is refused: the problems are %v, want one", problems)
	}
}

// A deletion has a version only if a watch has seen it. Changes of ignored fields alone are not published.
func TestServedTruth(t *testing.T) {
	o := &object{
		typ: target{Type: kube.ConfigMaps, ignore: true}, uid: "u", name: "n/a", deleted: true, after: 12, before: 16,
		versions: []version{{rv: 11, in: true, body: bodyAt("u", "n/a", 11)}, {rv: 12, in: true, body: bodyAt("u", "n/a", 12)}},
	}
	o.versions[1].body["data"] = o.versions[0].body["data"]
	h := past{1, map[string]*object{"u": o}}
	held := map[string]item{"u": itemAt("u", "n/a", 11)}
	for name, c := range map[string]struct {
		seen uint64 // the version of the deletion; 0: no watch has seen it
		at   uint64
		held map[string]item
		ok   bool
	}{
		"an ignored change":         {0, 12, held, true},
		"lost instead of ignored":   {0, 12, nil, false},
		"perhaps deleted, is there": {0, 14, held, true},
		"perhaps deleted, is gone":  {0, 14, nil, true},
		"deleted for sure":          {0, 15, held, false},
		"before the deletion":       {14, 13, nil, false},
		"after the deletion":        {14, 14, held, false},
	} {
		v := &servedVerdict{servedTruth: servedTruth{deleted: map[lifetime]uint64{{1, "u"}: c.seen, {2, "u"}: 13}, bodies: map[string]map[string]bool{"u 11": {held["u"].body: true}}, compared: map[string]map[*object]comparisons{}}}
		if found := v.existed(h, c.at, c.held); (len(found) == 0) != c.ok {
			t.Errorf("%s: %v", name, found)
		}
	}
}

// If a version has several changes, all of them are sent again to a client that resumes there.
func TestServedSameVersion(t *testing.T) {
	v := servedHistory("nats-eo/nats")
	s := &v.trails[0].sights
	*s = slices.Insert(*s, 3, (*s)[2])
	v.several[resource][12] = 2
	if problems := v.judge(); len(problems) > 0 {
		t.Errorf("the problems are %v, want none", problems)
	}
}

// TestDrawServe: every pair gets seeds with and without `bridge serve`.
func TestDrawServe(t *testing.T) {
	drawn := map[string]int{}
	const seeds = 300
	for seed := range uint64(seeds) {
		if p := Pairs()[seed%uint64(len(Pairs()))]; p.CanServe() && DrawServe(seed+1) {
			drawn[p.Name]++
		}
	}
	for _, p := range Pairs() {
		if n := drawn[p.Name]; p.CanServe() && (n < 5 || n > 20) || !p.CanServe() && n > 0 {
			t.Errorf("%s has bridge serve in %d of %d seeds", p.Name, n, seeds/len(Pairs()))
		}
	}
}

// TestBreaches: a resync is no gap, and a second gap before the first one is closed extends it.
func TestBreaches(t *testing.T) {
	h := &history{}
	h.of("gap", "", "", bus.Data{})
	h.of("synced", "", "10", bus.Data{})
	h.about("added", "u1", "n/a", 11)
	h.of("gap", "11", "11", bus.Data{Reason: "resync"})
	h.of("synced", "11", "12", bus.Data{Reason: "resync"})
	h.about("modified", "u1", "n/a", 13)
	h.of("gap", "13", "13", bus.Data{})
	h.of("gap", "13", "13", bus.Data{})
	h.of("synced", "13", "20", bus.Data{})
	p, _ := FindPair("nats-eo/nats")
	if got, want := breachesOf(p, resource, h.messages), []breach{{0, 10}, {13, 20}}; !slices.Equal(got, want) {
		t.Errorf("the gaps explain %v, want %v", got, want)
	}
	for i := range h.messages { // another partition repeats the events of the collection
		m := h.messages[i]
		if m.OfCollection() {
			m.Partition = 1
			h.messages = append(h.messages, m)
		}
	}
	p, _ = FindPair("kafka-eo/kafka")
	if got, want := fmt.Sprint(breachesOf(p, resource, h.messages)), "[{0 10} {0 20}]"; got != want {
		t.Errorf("on Kafka, the gaps explain %v, want %v", got, want)
	}
}

// The slowest collection says what `bridge serve` must show. A closed one does not count.
func TestProvedBy(t *testing.T) {
	h := rightHistory()
	if got := provedBy(h.messages, resource); got != 25 {
		t.Errorf("one collection is proved up to %d, want 25", got)
	}
	other := resource + ":x"
	h.add(h.script.collection("gap", other, resource, "", bus.Data{}))
	h.add(h.script.collection("synced", other, resource, "22", bus.Data{}))
	if got := provedBy(h.messages, resource); got != 0 {
		t.Errorf("before the second collection has reached the list of the first one, %d is proved, want 0", got)
	}
	m := h.script.collection("synced", other, resource, "24", bus.Data{Reason: "periodic"})
	m.Data.Reason = "periodic"
	h.add(m)
	if got := provedBy(h.messages, resource); got != 24 {
		t.Errorf("two collections are proved up to %d, want 24", got)
	}
	h.add(h.script.collection("closed", other, resource, "", bus.Data{}))
	if got := provedBy(h.messages, resource); got != 25 {
		t.Errorf("after the second one is closed, %d is proved, want 25", got)
	}
}
