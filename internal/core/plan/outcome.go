package plan

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// Held describes the copy of a collection that consumers have.
type Held uint8

// The copies that consumers may have of a collection.
const (
	// Nothing: there is no incarnation, or it is closed.
	Nothing Held = iota
	// NothingExists: there is no incarnation, because it is proved that no object exists. Consumers
	// have no event of the collection, so it does not belong to the plan that they compare with.
	NothingExists
	// Gone: an incarnation of which it is proved that no object exists. Consumers have the events that say so.
	Gone
	// Empty: an incarnation without objects. Objects of which the bridge has not read yet may have existed.
	Empty
	// Objects: an incarnation that may have objects.
	Objects
)

// Known is a collection that the checkpoint has.
type Known struct {
	ID        string
	Held      Held
	Leaving   bool   // a plan has removed it, and it is not closed yet
	Selection string // as recorded, like Storage
	Storage   string
	// Last is what the last plan said of the collection, by which it is read; nil: no plan has, or the last one said that it is not read.
	Last *Collection
	// Read is a time: every change of the collection that the API server made before it is read and decided. Zero: it is not known.
	Read time.Time
}

// Outcome is what the plan does with a collection that the checkpoint has.
//
//	its entry               its namespace                   its resource                      outcome
//	in the plan             –                               –                                 Wanted
//	any                     –                               no catalog                        Undecided
//	none                    –                               –                                 Removed
//	has no such namespace   –                               –                                 Removed 1
//	a namespaceSelector     not listed yet                  –                                 Undecided
//	a namespaceSelector     left it: see [Departure]        –                                 Ended or Removed
//	has the namespace       –                               group unknown, or not watchable   Undecided 4
//	has the namespace       –                               not served in any version         Unserved if an incarnation is held, else Removed
//	waits for the resource  –                               served                            Undecided 2
//	has the namespace       –                               served                            Removed 3
//
// Undecided is Outdated if the entry hides something else now than [Known].Last says: see [Hider].
//
//  1. Or the entry changed from all namespaces to one collection per namespace, or back.
//  2. For example, the entry names a version that is not served, or contradicts another entry. Other resources of a pattern do not wait.
//  3. The plan lacks it for no reason that is known.
//  4. Also if a version that the group may prefer is unknown. The collection is read on in its version.
//
// An entry belongs to a collection if it means the resource and has the collection's entry
// name. A pattern does not mean what patterns leave out. If several entries mean the resource, only the narrowest ones count. An entry whose resource is
// not found means the resource if its name is the plural. An entry with a short or singular name counts only if there
// is no other entry; of several, the one of [Known].Last counts.
type Outcome uint8

// The outcomes.
const (
	// Undecided: the catalog or the namespaces are not known well enough. The collection does not change.
	Undecided Outcome = iota
	// Outdated: as Undecided, and its entry hides something else now. The collection stays as it is, and is not read: consumers must not get what
	// the entry hides.
	Outdated
	// Wanted: the plan has it.
	Wanted
	// Unserved: an entry means it, and the server does not serve its resource. The collection
	// stays, with its recorded properties. Its reader checks whether the CustomResourceDefinition
	// is absent, and then emits the deletion of its objects.
	Unserved
	// Ended: its namespace has left the selector because it does not exist any more, or this is not known yet. It is read as if it were wanted, so
	// that everything that happened before is published. A later plan removes it: see [Departure].
	Ended
	// Removed: it is not wanted any more. It is closed when every wanted collection of its
	// resource has synced.
	Removed
)

func (o Outcome) String() string {
	return [...]string{"undecided", "outdated", "wanted", "unserved", "ended", "removed"}[o]
}

// Outcomes has the outcome of every collection of the plan and of the checkpoint. Each collection is
// in one list only. Each list is sorted by ID.
type Outcomes struct {
	Wanted    []Collection
	Unserved  []Collection // their Resource has no Version and no Kind
	Ended     []Collection
	Undecided []string
	Outdated  []string
	Removed   []string

	entries       []string        // all, by [Entry.String]
	complete      []string        // those that have all their collections
	nothingExists map[string]bool // collections of Wanted without any object
	unlisted      []unlisted
	undecided     map[string]bool // resources with a collection in Undecided or Outdated
	// lacking has the collections that others may replace, and whether an entry that means their resource waits. Those of Undecided and Outdated do.
	lacking map[string]bool
}

// Lacks reports whether a collection that a plan has removed must not be closed yet, because others may replace it that are not known: an entry that
// means its resource waits for something, or it is not decided what becomes of it or of another collection. A collection of a namespace that a selector
// does not match any more is replaced by none.
func (o *Outcomes) Lacks(id string) bool {
	c := event.ParseCollection(id)
	lacks, replaceable := o.lacking[id]
	return lacks || replaceable && o.undecided[c.ResourceID()]
}

// Outcomes decides the outcome of each collection that the checkpoint has. known may include closed
// collections. departure is called for collections whose namespace no longer matches a selector, if consumers may have objects of them.
func (p *Plan) Outcomes(known []Known, departure func(k *Known) Departure) Outcomes {
	out := Outcomes{Wanted: slices.Clone(p.Collections), nothingExists: map[string]bool{}, unlisted: p.unlisted, undecided: map[string]bool{}, lacking: map[string]bool{}}
	for _, e := range p.in.entries {
		out.entries = append(out.entries, e.String())
		if e.complete() {
			out.complete = append(out.complete, e.String())
		}
	}
	wanted := map[string]int{} // index in out.Wanted
	for i := range p.Collections {
		wanted[p.Collections[i].ID()] = i
	}
	known = slices.Clone(known)
	slices.SortFunc(known, func(a, b Known) int { return strings.Compare(a.ID, b.ID) })
	for _, k := range known {
		if at, ok := wanted[k.ID]; ok {
			out.nothingExists[k.ID] = k.Held == NothingExists
			out.Wanted[at].Storage = p.storage(&k)
			continue
		}
		outcome, e := p.decide(&k, departure)
		c := event.ParseCollection(k.ID)
		switch outcome {
		case Undecided, Outdated:
			list := &out.Undecided
			if outcome == Outdated {
				list = &out.Outdated
			}
			*list = append(*list, k.ID)
			out.undecided[c.ResourceID()], out.lacking[k.ID] = true, true
		case Unserved:
			out.Unserved = append(out.Unserved, e.unserved(&k))
		case Ended:
			out.Ended = append(out.Ended, p.ended(e, &k))
		default:
			out.Removed = append(out.Removed, k.ID)
			if e == nil || e.NamespaceSelector == "" || c.Namespace == "" || e.waitsFor(resourceOf(&c)) {
				out.lacking[k.ID] = p.lacks(&c)
			}
		}
	}
	return out
}

// counted returns the collections that belong to the sink's plan, each with a digest of its properties or
// a value that takes its place.
func (o *Outcomes) counted(properties func(*Collection) string) map[string]string {
	all := map[string]string{}
	for i := range o.Wanted {
		if id := o.Wanted[i].ID(); !o.nothingExists[id] {
			all[id] = properties(&o.Wanted[i])
		}
	}
	for i := range o.Unserved {
		all[o.Unserved[i].ID()] = unspecified
	}
	for i := range o.Ended {
		all[o.Ended[i].ID()] = asBefore
	}
	for _, id := range slices.Concat(o.Undecided, o.Outdated) {
		all[id] = asBefore
	}
	return all
}

// decide decides the outcome of a collection that is not in the plan. It also returns the
// collection's entry, nil for none.
func (p *Plan) decide(k *Known, departure func(*Known) Departure) (Outcome, *parsed) {
	c := event.ParseCollection(k.ID)
	if p.in.catalog == nil {
		return Undecided, nil
	}
	served, unknown := p.serves(&c)
	e := p.entryOf(&c, served, k.Last)
	if e == nil {
		return Removed, nil
	}
	undecided := Undecided
	if k.Last != nil && e.hidesOther(k.Last) {
		undecided = Outdated
	}
	switch has, listed := e.has(c.Namespace, p.in.namespaces); {
	case !listed:
		return undecided, e
	case !has && e.NamespaceSelector != "" && c.Namespace != "" && k.Held >= Empty && !k.Leaving:
		return departure(k).outcome(), e
	case !has:
		return Removed, e
	}
	switch {
	case unknown:
		return undecided, e
	case !served && k.Held >= Gone:
		return Unserved, e
	case served && e.waitsFor(resourceOf(&c)):
		return undecided, e
	}
	return Removed, e
}

// serves reports whether the server serves a collection's resource in any version, or whether this, or which version it prefers, is
// unknown.
func (p *Plan) serves(c *event.Collection) (served, unknown bool) {
	name := discovery.NameOf(resourceOf(c), "")
	r, err := p.in.catalog.Find(name)
	switch {
	case err != nil:
		return false, !errors.Is(err, discovery.ErrNoResource)
	case !p.in.catalog.IsCertain(name, r):
		return false, true
	}
	return r.Group == c.Group && r.Name == c.Resource, false
}

// Entry returns the entry that a collection belongs to, nil for none. An entry whose resource is not found counts only if
// its name is the plural.
func (p *Plan) Entry(c *event.Collection) *Entry {
	served, _ := p.serves(c)
	if e := p.clearEntryOf(c, served); e != nil {
		return &e.Entry
	}
	return nil
}

// entryOf finds the entry of a collection, nil for none. last is [Known].Last.
func (p *Plan) entryOf(c *event.Collection, served bool, last *Collection) *parsed {
	found := p.clearEntryOf(c, served)
	if found != nil {
		return found
	}
	for _, e := range p.in.entries {
		if e.Name == c.Entry && e.mayMean(resourceOf(c), served, p.in.catalog) && (found == nil || last != nil && e.String() == last.Entry) {
			found = e
		}
	}
	return found
}

// Hider is implemented by [Entry].Options with settings that hide nothing.
type Hider interface {
	// HidesAs reports whether other options hide the same values.
	HidesAs(other any) bool
}

// hidesOther reports whether an entry hides something else in a collection than a plan before.
func (p *parsed) hidesOther(before *Collection) bool {
	if p.MetadataOnly != before.Target.Collection.MetadataOnly {
		return true
	}
	if h, ok := p.Options.(Hider); ok {
		return !h.HidesAs(before.Options)
	}
	return !reflect.DeepEqual(p.Options, before.Options)
}

// clearEntryOf finds the entry of a collection among the narrowest entries that mean its resource.
func (p *Plan) clearEntryOf(c *event.Collection, served bool) *parsed {
	r := resourceOf(c)
	for b := range discovery.Breadths {
		meant := false
		for _, e := range p.in.entries {
			if e.resource.Breadth() != b || !p.means(e, r, served) {
				continue
			}
			if meant = true; e.Name == c.Entry {
				return e
			}
		}
		if meant {
			break
		}
	}
	return nil
}

// means reports whether an entry means a resource, also if the server does not serve it.
func (p *Plan) means(e *parsed, r schema.GroupResource, served bool) bool {
	if !e.resource.IsPattern() {
		return slices.Contains(e.named, r) || e.resource.Matches(r.Group, r.Resource) && e.mayMean(r, served, p.in.catalog)
	}
	return e.resource.Matches(r.Group, r.Resource) && p.in.leftOut(r) == ""
}

func resourceOf(c *event.Collection) schema.GroupResource {
	return schema.GroupResource{Group: c.Group, Resource: c.Resource}
}

// has reports whether an entry has a collection for a namespace. "" is the collection of all
// namespaces or of a cluster-scoped resource. listed is false if the answer is not known yet.
func (p *parsed) has(namespace string, namespaces Namespaces) (has, listed bool) {
	if p.NamespaceSelector == "" {
		return namespace == "" && !p.confined() || slices.Contains(p.in, namespace), true
	}
	names, known := namespaces(p.NamespaceSelector)
	return slices.Contains(names, namespace) && !slices.Contains(p.ExcludeNamespaces, namespace), known
}

// unserved returns a collection whose resource the server does not serve. It is not read, so it keeps its recorded selection and storage.
func (p *parsed) unserved(k *Known) Collection {
	id := event.ParseCollection(k.ID)
	// It is unknown whether the resource is namespaced. An entry that excludes namespaces can only mean a namespaced resource.
	namespaced := id.Namespace != "" || p.namespaced() != ""
	c := p.collection(discovery.Resource{Group: id.Group, Name: id.Resource, Namespaced: namespaced}, namespaced && !p.confined())
	c.Target.Collection.Namespace = id.Namespace
	c.Selection, c.Storage = k.Selection, k.Storage
	return c
}

// ended returns a collection whose namespace has left the selector of e. Its selection is that of its target, as that of a wanted collection: an edit
// leads to a list. A collection that would wait is not read, so that it has the form of an unserved one.
func (p *Plan) ended(e *parsed, k *Known) Collection {
	id := event.ParseCollection(k.ID)
	r := e.found
	if e.resource.IsPattern() {
		r, _ = p.in.catalog.Find(discovery.NameOf(resourceOf(&id), ""))
		if !p.in.catalog.IsCertain(e.resource, r) {
			r = discovery.Resource{}
		}
	}
	if r.GroupResource() != resourceOf(&id) || e.waitsFor(r.GroupResource()) {
		return e.unserved(k)
	}
	c := e.collection(r, false)
	c.Target.Collection.Namespace, c.Storage = id.Namespace, p.storage(k)
	return c
}

// lacks reports whether one of the narrowest entries that mean a collection's resource waits with collections of it. None is waited for if the server
// does not serve the resource: what was published of it exists no more.
func (p *Plan) lacks(c *event.Collection) bool {
	r := resourceOf(c)
	served, unknown := p.serves(c)
	if !served && !unknown {
		return false
	}
	for b := range discovery.Breadths {
		meant := false
		for _, e := range p.in.entries {
			if e.resource.Breadth() != b || !p.means(e, r, served) && !e.mayMean(r, served, p.in.catalog) {
				continue
			}
			if meant = true; unknown && e.resource.IsPattern() || e.waitsFor(r) || e.unlisted(p.in.namespaces) {
				return true
			}
		}
		if meant {
			break
		}
	}
	return false
}

// unlisted reports whether the namespaces of an entry have not been listed.
func (p *parsed) unlisted(namespaces Namespaces) bool {
	if p.NamespaceSelector == "" {
		return false
	}
	_, known := namespaces(p.NamespaceSelector)
	return !known
}

// waitsFor reports whether the entry has no collections of a resource that it means, because too little is known, or until the configuration is another.
func (p *parsed) waitsFor(r schema.GroupResource) bool {
	return p.err != nil || slices.Contains(p.held, r)
}

// storage returns the storage of a collection: the recorded one if the present one is not known.
func (p *Plan) storage(k *Known) string {
	c := event.ParseCollection(k.ID)
	if storage, known := p.in.catalog.Storage(c.Group); known {
		return storage
	}
	return k.Storage
}
