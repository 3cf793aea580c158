package campaign

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
)

// servedVerdict judges what `bridge serve` has answered, with what the API server acknowledged. Its rules:
//
//	serve list      A list has the objects that existed at its resourceVersion, in these versions, each with the body that the API server had,
//	                in the bytes that the bus has. All its pages are of the resourceVersion that was asked for.
//	serve covered   A version is refused only if a gap explains that, and never after it was answered.
//	serve watch     A watch shows each change behind the version that it begins with once, in order, and leads to what exists.
//	serve follower  The same for a client that resumes from what it has seen, over kills. A 410 needs a gap.
//
// That the present list is that of the API server within a minute after the faults is judged while it happens: see [nemesis.settleServed].
type servedVerdict struct {
	servedTruth
	answers []*answer // in the order of time
	trails  []*trail  // of clients

	problems []string
	counts   servedCounts
}

// servedTruth is what answers are compared with.
type servedTruth struct {
	truth    map[string][]past          // by resource: the histories, of which each answer must fit one
	cluster  map[string]map[string]item // by resource and UID: what exists at the end; the body of what is comparable, or ""
	types    map[string]target          // by resource
	bodies   map[string]map[string]bool // by UID and version: the bodies that were published
	deleted  map[lifetime]uint64        // the version of the deletion that a watch has seen; 0: it has seen several
	several  map[string]map[uint64]int  // by resource: the number of changes of a version, in all collections
	breaches map[string][]breach        // by resource
	loose    map[string]bool            // resources of several collections: every refusal may have a reason
	restored bool                       // etcd was restored from a backup
	dropped  bool                       // a stream or topic was deleted, so `bridge serve` has dropped its copy

	compared map[string]map[*object]comparisons // by body
}

// servedCounts are counts of the answers.
type servedCounts struct {
	Covered int           `json:"covered"` // versions of the past whose list was answered after the faults
	Refused int           `json:"refused"` // versions that a gap explains
	Shared  *servedShared `json:"shared,omitempty"`
	Early   int           `json:"early"`   // lists that were answered during the faults
	Watches int           `json:"watches"` // from the past
	Changes int           `json:"changes"` // that followers saw
	Relists int           `json:"relists"` // of followers, after a 410
	Kills   int           `json:"kills"`   // of `bridge serve`
}

// servedShared are the counts of versions of the resource that several entries share, which the others do not include.
type servedShared struct {
	Covered int `json:"covered"`
	Refused int `json:"refused"`
}

func (c *servedCounts) String() string {
	s := fmt.Sprintf("%d versions covered, %d refused", c.Covered, c.Refused)
	if c.Shared != nil {
		s += fmt.Sprintf(" (shared resource: %d, %d)", c.Shared.Covered, c.Shared.Refused)
	}
	return s + fmt.Sprintf("; %d lists during the faults, %d watches; followers saw %d changes and listed %d times again; %d kills", c.Early, c.Watches, c.Changes, c.Relists, c.Kills)
}

// countsOf returns the counts of covered and refused versions for a resource.
func (v *servedVerdict) countsOf(resource string) (covered, refused *int) {
	if !v.loose[resource] {
		return &v.counts.Covered, &v.counts.Refused
	}
	if v.counts.Shared == nil {
		v.counts.Shared = &servedShared{}
	}
	return &v.counts.Shared.Covered, &v.counts.Shared.Refused
}

// lifetime names an object in an epoch. After a restore, an object that the backup has exists in another epoch.
type lifetime struct {
	epoch int
	uid   string
}

// past is one history of a resource.
type past struct {
	epoch   int
	objects map[string]*object
}

// item is an object in an answer.
type item struct {
	uid, name, body string
	rv              uint64
}

// answer is the answer to a list.
type answer struct {
	resource string
	point    point
	early    bool // there were faults
	at       time.Time
	code     int
	reason   string // of a refusal; of a list, what is wrong with its pages
	version  uint64
	pages    int
	items    []item
}

// trail is what a client saw of a resource, in order.
type trail struct {
	resource, what string
	sights         []sight
	position       uint64 // the last version
	goal           uint64 // the version that the client had to reach at the end; 0: none
}

func (t *trail) String() string {
	s := fmt.Sprintf("%s of %s saw", t.what, t.resource)
	for _, x := range t.sights {
		s += fmt.Sprintf("\n  %-8s %d %s %s", x.kind, x.version, x.item.name, x.reason)
	}
	return s
}

// sight is a list, an event of a watch, or a refusal.
type sight struct {
	kind    string // sawList, sawRefusal, or the type of the event
	version uint64
	items   []item // of a list
	item    item   // of an event
	code    int
	reason  string
}

const (
	sawList    = "LIST"
	sawRefusal = "REFUSED"
)

// breach is a range of versions, both exclusive, that a gap explains.
type breach struct{ from, to uint64 }

// newServedVerdict collects what answers are compared with.
func newServedVerdict(p Pair, l *ledger, types []target, messages []bus.Message) *servedVerdict {
	v := &servedVerdict{servedTruth: servedTruth{
		truth: map[string][]past{}, cluster: map[string]map[string]item{}, types: map[string]target{},
		breaches: map[string][]breach{}, loose: map[string]bool{}, restored: l.former != nil, compared: map[string]map[*object]comparisons{},
	}}
	for _, t := range types {
		resource := t.ResourceID()
		v.types[resource] = t
		for era, objects := range l.eras() {
			of := past{era + 1, map[string]*object{}}
			for uid, o := range objects {
				if o.typ.ResourceID() == resource {
					of.objects[uid] = o
				}
			}
			v.truth[resource] = append(v.truth[resource], of)
		}
	}
	v.read(p, messages)
	return v
}

// read reads everything that is on the bus. It forgets what it read before.
func (v *servedVerdict) read(p Pair, messages []bus.Message) {
	v.bodies, v.deleted, v.several = map[string]map[string]bool{}, map[lifetime]uint64{}, map[string]map[uint64]int{}
	for resource := range v.types {
		v.breaches[resource] = breachesOf(p, resource, messages)
	}
	seen := map[string]bool{}
	for i := range messages {
		m := &messages[i]
		if m.OfAudit() || m.OfCollection() {
			continue
		}
		if m.Is("deleted") {
			if m.Attributes["origin"] == "watch" {
				of := lifetime{m.Epoch(), m.UID()}
				at, again := v.deleted[of]
				if v.deleted[of] = versionOf(m); again && at != versionOf(m) {
					v.deleted[of] = 0
				}
			}
		} else {
			key := m.UID() + " " + m.RV()
			if v.bodies[key] == nil {
				v.bodies[key] = map[string]bool{}
			}
			v.bodies[key][string(m.Data.Object)] = true
		}
		if change := fmt.Sprint(m.Collection(), m.UID(), m.Is("deleted"), versionOf(m)); !seen[change] {
			seen[change] = true
			if v.several[m.Resource()] == nil {
				v.several[m.Resource()] = map[uint64]int{}
			}
			v.several[m.Resource()][versionOf(m)]++
		}
	}
}

// breachesOf returns the versions of a resource with one collection that `bridge serve` may refuse: those before the first list has ended, and
// those of each gap. On Kafka it may have read a gap in one partition before it had read what precedes the gap in another one, so
// everything before the gap may be refused.
func breachesOf(p Pair, resource string, messages []bus.Message) (all []breach) {
	seen, high, open := map[string]bool{}, uint64(0), -1
	for i := range messages {
		m := &messages[i]
		if m.Resource() != resource || m.OfAudit() || seen[m.ID()] {
			continue
		}
		seen[m.ID()] = true
		switch {
		case m.Is("gap") && m.Data.Reason != "resync" && open < 0, m.Is("closed") && open < 0:
			from := high
			if p.Bus == "kafka" {
				from = 0
			}
			open = len(all)
			all = append(all, breach{from, math.MaxUint64})
		case m.Is("synced") && open >= 0 && m.Data.Reason != "periodic":
			all[open].to = number(m.RV())
			open = -1
			high = max(high, number(m.RV()))
		case m.Is("synced"), m.Attributes["origin"] == "watch":
			high = max(high, versionOf(m))
		}
	}
	return all
}

// provedBy returns the lowest version that all open collections of a resource are proved to have reached, in the present epoch. It returns 0
// if the last list of one of them ended at a higher version: nothing later than the gap is complete then.
func provedBy(messages []bus.Message, resource string) uint64 {
	reached, listed, epochs := map[string]uint64{}, map[string]uint64{}, map[string]int{}
	for i := range messages {
		m := &messages[i]
		id := m.Collection()
		switch {
		case m.Resource() != resource || m.OfAudit():
			continue
		case m.Is("closed"):
			delete(reached, id)
			delete(listed, id)
			continue
		case m.Data.Reset || m.Epoch() > epochs[id]:
			reached[id], epochs[id] = 0, m.Epoch()
		}
		if m.Is("synced") && m.Data.Reason != "periodic" {
			listed[id] = versionOf(m)
		}
		if m.Is("synced") || m.Attributes["origin"] == "watch" {
			reached[id] = max(reached[id], versionOf(m))
		}
	}
	if len(reached) == 0 {
		return 0
	}
	lowest := slices.Min(slices.Collect(maps.Values(reached)))
	for _, version := range listed {
		if version > lowest {
			return 0
		}
	}
	return lowest
}

// listedFirst returns the version at which the first list of a resource ended.
func (v *servedVerdict) listedFirst(resource string) uint64 {
	if all := v.breaches[resource]; len(all) > 0 {
		return all[0].to
	}
	return 0
}

func (v *servedVerdict) wrong(rule, format string, args ...any) {
	v.problems = append(v.problems, "["+rule+"] "+fmt.Sprintf(format, args...))
}

func (v *servedVerdict) judge() []string {
	answered := map[string]bool{}
	for _, a := range v.answers {
		v.answer(a, answered)
	}
	for _, one := range v.trails {
		v.trail(one)
	}
	return v.problems
}

func (a *answer) String() string {
	s := fmt.Sprintf("the list of %s at %d", a.resource, a.point.version)
	if a.point.version == 0 {
		s = "the present list of " + a.resource
	}
	if a.point.epoch > 0 {
		s += fmt.Sprintf(" in epoch %d", a.point.epoch)
	}
	return s + " (" + a.at.UTC().Format(time.RFC3339Nano) + ")"
}

// answer judges a list. answered has the versions that were answered before.
func (v *servedVerdict) answer(a *answer, answered map[string]bool) {
	key := fmt.Sprint(a.resource, a.point.epoch, a.point.version)
	covered, refused := v.countsOf(a.resource)
	switch {
	case a.code != http.StatusOK:
		switch {
		case answered[key] && (!v.restored || a.point.epoch > 0) && (!a.early || a.code == http.StatusGone): // until the list of a reset ends, it is 503 or 404
			v.wrong("serve covered", "%s is refused, and it was answered before: %d %s", a, a.code, a.reason)
		case a.early:
			return // during the faults
		case !v.explained(a.resource, a.point.version):
			v.wrong("serve covered", "%s is refused, and no gap explains it: %d %s; gaps: %v", a, a.code, a.reason, v.breaches[a.resource])
		}
		*refused++
		return
	case a.reason != "":
		v.wrong("serve list", "%s: %s", a, a.reason)
	case a.point.version != 0 && a.version != a.point.version:
		v.wrong("serve list", "%s is of resourceVersion %d", a, a.version)
	}
	if a.point.version != 0 {
		answered[key] = true
	}
	if a.early {
		v.counts.Early++
	} else if a.point.version != 0 {
		*covered++
	}
	if wrong := v.listed(a.resource, a.version, a.items); wrong != "" {
		v.wrong("serve list", "%s, of resourceVersion %d and %d pages: %s", a, a.version, a.pages, wrong)
	}
}

// explained reports whether a version may be refused.
func (v *servedVerdict) explained(resource string, version uint64) bool {
	return v.loose[resource] || v.restored || v.dropped || slices.ContainsFunc(v.breaches[resource], func(b breach) bool { return b.from < version && version < b.to })
}

// interrupted reports whether a watch from a version may end with 410.
func (v *servedVerdict) interrupted(resource string, version uint64) bool {
	return v.loose[resource] || v.restored || v.dropped || slices.ContainsFunc(v.breaches[resource], func(b breach) bool { return version < b.to })
}

// listed compares a list with all histories, and returns the differences from the one that fits best; "" if one fits.
func (v *servedVerdict) listed(resource string, version uint64, items []item) string {
	held, wrong := byUID(items)
	if wrong != "" {
		return wrong
	}
	if len(v.truth[resource]) == 0 {
		return ""
	}
	var best []string
	for i, h := range v.truth[resource] {
		found := v.existed(h, version, held)
		if len(found) == 0 {
			return ""
		}
		if i == 0 || len(found) < len(best) {
			best = found
		}
	}
	return fmt.Sprintf("%d objects differ: %s", len(best), some(best))
}

// byUID returns objects by UID, and what is wrong if a name comes twice.
func byUID(items []item) (by map[string]item, wrong string) {
	by, names := map[string]item{}, map[string]bool{}
	for _, x := range items {
		if by[x.uid].uid != "" || names[x.name] {
			wrong = fmt.Sprintf("%s (%s) is listed twice", x.name, x.uid)
		}
		by[x.uid], names[x.name] = x, true
	}
	return by, wrong
}

// existed compares objects with those that existed in a history at a version.
func (v *servedVerdict) existed(h past, version uint64, held map[string]item) (found []string) {
	for uid, o := range h.objects {
		x, has := held[uid]
		state, exists, sure := v.at(h.epoch, o, version)
		switch {
		case exists && state.in && !has && sure:
			found = append(found, fmt.Sprintf("missing: %s", o))
		case !(exists && state.in) && has:
			found = append(found, fmt.Sprintf("rv=%d of an object that did not exist or was not selected: %s", x.rv, o))
		case has:
			if wrong := v.shows(o, state, x); wrong != "" {
				found = append(found, wrong)
			}
		}
	}
	for uid, x := range held {
		if h.objects[uid] == nil {
			found = append(found, fmt.Sprintf("%s (%s) never existed", x.name, uid))
		}
	}
	return found
}

// at returns the last state of an object in an epoch up to a version. sure is false if the object may have been deleted by then.
func (v *servedVerdict) at(epoch int, o *object, version uint64) (state version, exists, sure bool) {
	for _, one := range o.versions {
		if one.rv <= version {
			state, exists = one, true
		}
	}
	after, before := o.after, o.before
	if at := v.deleted[lifetime{epoch, o.uid}]; at > after && at < before {
		after, before = at-1, at+1
	}
	switch {
	case !exists, !o.deleted, version <= after:
		return state, exists, true
	case version+1 >= before:
		return state, false, true
	}
	return state, exists, false
}

// comparisons are the results of shows for a body: "" for the versions at which the object may have it.
type comparisons map[uint64]string

// shows compares an object in an answer with its state at a version. A change of ignored fields alone is not published, so the object can
// have an earlier version.
func (v *servedVerdict) shows(o *object, state version, x item) string {
	known := v.compared[x.body][o]
	if known == nil {
		known = comparisons{}
		if v.compared[x.body] == nil {
			v.compared[x.body] = map[*object]comparisons{}
		}
		v.compared[x.body][o] = known
	}
	wrong, done := known[state.rv]
	if !done {
		wrong = v.compare(o, state, x)
		known[state.rv] = wrong
	}
	return wrong
}

func (v *servedVerdict) compare(o *object, state version, x item) string {
	shown, exists := o.find(x.rv)
	if x.name != o.name {
		return fmt.Sprintf("the name %s of %s", x.name, o)
	}
	if !exists || x.rv != state.rv && !o.published(x.rv, state.rv) {
		return fmt.Sprintf("rv=%d, want %d of %s", x.rv, state.rv, o)
	}
	if !v.bodies[fmt.Sprintf("%s %d", x.uid, x.rv)][x.body] {
		return fmt.Sprintf("rv=%d of %s with bytes that were not published: %.1500s", x.rv, o, x.body)
	}
	if shown.body == nil { // the truth has no bodies of the objects that several entries share
		return ""
	}
	var body map[string]any
	if err := json.Unmarshal([]byte(x.body), &body); err != nil {
		return fmt.Sprintf("%v: rv=%d of %s", err, x.rv, o)
	}
	if got, want := canonical(essence(o.typ, body)), canonical(shown.body); got != want {
		return fmt.Sprintf("the body at rv=%d of %s\n  is   %.1500s\n  want %.1500s", x.rv, o, got, want)
	}
	return ""
}

// published reports whether what is published of an object is the same in all versions from one to another, because others are ignored.
func (o *object) published(from, to uint64) bool {
	if !o.typ.ignore || from > to {
		return false
	}
	want := ""
	for _, one := range o.versions {
		if one.rv < from || one.rv > to {
			continue
		}
		text := o.typ.published(one.body)
		if want == "" {
			want = text
		}
		if !one.in || text != want {
			return false
		}
	}
	return true
}

// differs compares a list with what exists at the end.
func (v *servedVerdict) differs(resource string, items []item) string {
	held, wrong := byUID(items)
	if wrong != "" {
		return wrong
	}
	var found []string
	t := v.types[resource]
	for uid, want := range v.cluster[resource] {
		got, has := held[uid]
		if !has {
			found = append(found, fmt.Sprintf("missing: %s (%s)", want.name, uid))
			continue
		}
		if want.body == "" { // only versions are compared
			if got.rv != want.rv {
				found = append(found, fmt.Sprintf("%s (%s) has rv=%d, want %d", want.name, uid, got.rv, want.rv))
			}
			continue
		}
		var body map[string]any
		if err := json.Unmarshal([]byte(got.body), &body); err != nil {
			found = append(found, err.Error())
		} else if is := t.published(essence(t, body)); is != want.body {
			found = append(found, fmt.Sprintf("%s (%s)\n  is   %.1500s\n  want %.1500s", want.name, uid, is, want.body))
		}
	}
	for uid, got := range held {
		if _, exists := v.cluster[resource][uid]; !exists {
			found = append(found, fmt.Sprintf("%s (%s) does not exist", got.name, uid))
		}
	}
	if len(found) == 0 {
		return ""
	}
	return fmt.Sprintf("%d objects differ: %s", len(found), some(found))
}

// trail judges what a client saw: from each list to the next one.
func (v *servedVerdict) trail(one *trail) {
	rule := "serve watch"
	if one.what == follower {
		rule = "serve follower"
	} else {
		v.counts.Watches++
	}
	if len(one.sights) == 0 {
		v.wrong(rule, "%s of %s has never had a list", one.what, one.resource)
		return
	}
	for i := 0; i < len(one.sights); {
		end := i + 1
		for end < len(one.sights) && one.sights[end].kind != sawList {
			end++
		}
		part := one.sights[i:end]
		i = end
		for _, x := range part {
			switch {
			case x.kind != sawRefusal, x.code == http.StatusGatewayTimeout && v.restored:
			case x.code != http.StatusGone:
				v.wrong(rule, "%s of %s is refused at %d: %d %s", one.what, one.resource, x.version, x.code, x.reason)
			case !v.interrupted(one.resource, x.version):
				v.wrong(rule, "%s of %s ends at %d with 410, and no gap explains it: %s; gaps: %v", one.what, one.resource, x.version, x.reason, v.breaches[one.resource])
			}
			if one.what == follower && x.kind == sawRefusal {
				v.counts.Relists++
			}
		}
		var best []string
		for n, h := range v.truth[one.resource] {
			found := v.walk(h, part)
			if n == 0 || len(found) < len(best) {
				best = found
			}
		}
		for _, wrong := range best {
			v.wrong(rule, "%s of %s, which listed at %d: %s", one.what, one.resource, part[0].version, wrong)
		}
		if one.what == follower {
			v.counts.Changes += len(part) - 1
		}
	}
	if last := one.sights[len(one.sights)-1]; last.version < one.goal && last.kind != sawRefusal {
		v.wrong(rule, "%s of %s ends at %d, before the present %d", one.what, one.resource, last.version, one.goal)
	}
}

// follower is what the trail of a client is called that resumes over kills.
const follower = "the follower"

// walk applies the events behind a list to it, and compares the result with a history: after the list, at each bookmark and after the last event.
func (v *servedVerdict) walk(h past, sights []sight) (found []string) {
	copied, wrong := byUID(sights[0].items)
	if wrong != "" {
		return []string{wrong}
	}
	begun, at := sights[0].version, sights[0].version
	seen := map[string]map[uint64]bool{}
	check := func(what string) {
		if differ := v.existed(h, at, copied); len(differ) > 0 {
			found = append(found, fmt.Sprintf("after %s of %d, %d objects differ: %s", what, at, len(differ), some(differ)))
		}
	}
	check("the list")
	last := 0
	for i, x := range sights {
		if x.kind == sawList || x.kind == sawRefusal {
			continue
		}
		last = i
		if x.version < at {
			found = append(found, fmt.Sprintf("%s of %d after %d: %s", x.kind, x.version, at, x.item.name))
		}
		repeated := x.version == at && v.several[v.resourceOf(h)][at] > 1 // then all changes of the version are sent again
		at = max(at, x.version)
		if x.kind == "BOOKMARK" {
			check("the bookmark")
			continue
		}
		before, has := copied[x.item.uid]
		switch {
		case repeated:
		case (x.kind == "ADDED") == has, has && x.kind == "MODIFIED" && before.rv >= x.item.rv:
			found = append(found, fmt.Sprintf("%s of %s (%s) at %d, and the client had rv=%d", x.kind, x.item.name, x.item.uid, x.version, before.rv))
		}
		if x.kind == "DELETED" {
			delete(copied, x.item.uid)
			continue
		}
		if o := h.objects[x.item.uid]; o == nil {
			found = append(found, fmt.Sprintf("%s (%s) never existed", x.item.name, x.item.uid))
		} else if wrong := v.shows(o, version{rv: x.version}, x.item); wrong != "" {
			found = append(found, wrong)
		}
		copied[x.item.uid] = x.item
		if seen[x.item.uid] == nil {
			seen[x.item.uid] = map[uint64]bool{}
		}
		seen[x.item.uid][x.version] = true
	}
	if last > 0 && sights[last].kind != "BOOKMARK" {
		check("the last event")
	}
	return append(found, v.missed(h, begun, at, seen)...)
}

func (v *servedVerdict) resourceOf(h past) string {
	for _, o := range h.objects {
		return o.typ.ResourceID()
	}
	return ""
}

// missed returns the changes between two versions that a client did not see.
func (v *servedVerdict) missed(h past, from, to uint64, seen map[string]map[uint64]bool) (found []string) {
	for uid, o := range h.objects {
		for i, one := range o.versions {
			ignored := o.typ.ignore && i > 0 && o.versions[i-1].in && o.typ.published(o.versions[i-1].body) == o.typ.published(one.body)
			if one.rv > from && one.rv <= to && one.in && !ignored && !seen[uid][one.rv] {
				found = append(found, fmt.Sprintf("version %d was not shown: %s", one.rv, o))
			}
		}
	}
	return found
}

// pastsOf returns what can be the truth about the resource that several entries share: in each of its histories, what each of the editions selects.
func (g *gadgets) pastsOf() (all []past) {
	t := target{Type: g.typ}
	add := func(epoch int, e edition, world map[string]*gadget) {
		of := past{epoch, map[string]*object{}}
		for uid, o := range world {
			one := &object{typ: t, uid: uid, name: o.states[0].namespace + "/" + o.states[0].name, deleted: o.deleted, after: o.after, before: o.before}
			for _, s := range o.states {
				one.versions = append(one.versions, version{rv: s.rv, in: e.selects(s)})
			}
			of.objects[uid] = one
		}
		all = append(all, of)
	}
	for _, e := range g.editions {
		if g.truth.former != nil {
			add(1, e, g.truth.former)
			add(2, e, g.truth.objects)
		} else {
			add(1, e, g.truth.objects)
		}
	}
	return all
}

// publishesAll reports whether all entries publish all types of events. Else copies cannot be compared.
func (g *gadgets) publishesAll() bool {
	return !slices.ContainsFunc(g.editions, func(e edition) bool {
		return slices.ContainsFunc(e.entries, func(one entry) bool { return one.types != nil })
	})
}

// droppedBy reports whether a fault has deleted a part of the bus.
func droppedBy(happened []happening) bool {
	return slices.ContainsFunc(happened, func(h happening) bool {
		return strings.HasPrefix(h.name, "stream deleted") || strings.HasPrefix(h.name, "topic deleted")
	})
}
