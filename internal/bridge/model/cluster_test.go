package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// object is one state of an object of the watched resource.
type object struct {
	namespace, name, uid string
	rv                   int
	x                    int  // the value of the label that selectors select by
	keep                 bool // what filters select by
	big                  bool // the body is too large for a bus with a small limit
}

func (o object) key() string { return o.namespace + "/" + o.name }

// json returns the object as the API server sends it. If partial is true, it returns only the metadata.
func (o object) json(version string, partial bool) string {
	if partial {
		return fmt.Sprintf(`{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":"%d","labels":{"x":"%d"}}}`,
			o.name, o.namespace, o.uid, o.rv, o.x)
	}
	padding := ""
	if o.big {
		padding = bigBody
	}
	return fmt.Sprintf(`{"apiVersion":"%s/%s","kind":"Thing","metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":"%d","labels":{"x":"%d"}},"spec":{"keep":%t,"padding":%q}}`,
		group, version, o.name, o.namespace, o.uid, o.rv, o.x, o.keep, padding)
}

// change is one write. before is nil for a creation, after for a deletion.
type change struct {
	rv            int
	before, after *object
}

// history is the content of etcd from its beginning, or from a restore, until the next restore.
type history struct {
	base    map[string]object // by key, at baseRV
	baseRV  int
	rv      int // the newest resourceVersion
	floor   int // a restore does not go back further than this: definitions and namespaces are not restored
	changes []change
}

// at returns the objects at a resourceVersion, by key.
func (h *history) at(rv int) map[string]object {
	state := maps.Clone(h.base)
	for _, c := range h.changes {
		if c.rv > rv {
			break
		}
		if c.before != nil {
			delete(state, c.before.key())
		}
		if c.after != nil {
			state[c.after.key()] = *c.after
		}
	}
	return state
}

// exists reports whether there is an object at a resourceVersion.
func (h *history) exists(uid string, rv int) bool {
	for _, o := range h.at(rv) {
		if o.uid == uid {
			return true
		}
	}
	return false
}

// existed reports whether there was an object at any time.
func (h *history) existed(uid string) bool {
	return h.exists(uid, h.baseRV) || slices.ContainsFunc(h.changes, func(c change) bool { return c.after != nil && c.after.uid == uid })
}

// keeps reports whether an object that exists at a resourceVersion is selected from then on. It also must not be
// deleted together with others: the bridge may have seen the resourceVersion of its deletion with one of these.
func (h *history) keeps(uid string, rv int, s selection) bool {
	at := h.at(rv)
	maps.DeleteFunc(at, func(_ string, o object) bool { return o.uid != uid || !s.selects(&o) })
	deleted := map[int]int{} // number of deleted objects, by resourceVersion
	for _, c := range h.changes {
		if c.after == nil {
			deleted[c.rv]++
		}
	}
	return len(at) > 0 && !slices.ContainsFunc(h.changes, func(c change) bool {
		if c.after == nil {
			return c.before.uid == uid && deleted[c.rv] > 1
		}
		return c.rv > rv && c.after.uid == uid && !s.selects(c.after)
	})
}

// has reports whether a resourceVersion belongs to this history.
func (h *history) has(rv int) bool { return rv >= h.baseRV && rv <= h.rv }

// cluster is the model of etcd and of the namespaces and definitions around the watched objects.
type cluster struct {
	histories []*history // the last one is the present one
	uids      int        // number of UIDs that were used so far
	crd       string     // UID of the definition; "": the resource does not exist
	second    bool       // the resource is also served in version v2
	spaces    map[string]space
}

// space is a namespace.
type space struct {
	uid  string
	team bool // it has the label that namespace selectors select by
	rv   int
}

func newCluster() *cluster {
	c := &cluster{histories: []*history{{base: map[string]object{}, rv: 10}}, second: true, spaces: map[string]space{}}
	c.crd = c.uid("crd")
	for _, n := range namespaces {
		c.spaces[n] = space{uid: c.uid("ns"), team: true, rv: c.next()}
	}
	return c
}

// crowd adds n objects with x=1 to the first namespace at the present resourceVersion.
func (c *cluster) crowd(n int) {
	for i := range n {
		o := object{namespace: namespaces[0], name: fmt.Sprintf("o%05d", i), uid: c.uid("u"), rv: c.now().rv, x: 1, keep: true}
		c.now().base[o.key()] = o
	}
}

func (c *cluster) now() *history { return c.histories[len(c.histories)-1] }

func (c *cluster) uid(prefix string) string {
	c.uids++
	return prefix + "-" + strconv.Itoa(c.uids)
}

// next returns a new resourceVersion.
func (c *cluster) next() int {
	h := c.now()
	h.rv++
	return h.rv
}

// live returns the present objects, by key.
func (c *cluster) live() map[string]object { return c.now().at(c.now().rv) }

// put creates or updates an object. A write without a change has no resourceVersion of its own.
func (c *cluster) put(namespace, name string, edit func(*object)) bool {
	if c.crd == "" || c.spaces[namespace].uid == "" {
		return false
	}
	o, exists := c.live()[namespace+"/"+name]
	before := &o
	if !exists {
		o, before = object{namespace: namespace, name: name, uid: c.uid("u")}, nil
	}
	after := o
	edit(&after)
	after.rv = c.next()
	if before != nil {
		b := *before
		before = &b
	}
	c.now().changes = append(c.now().changes, change{after.rv, before, &after})
	return true
}

// remove deletes objects, all of them at one resourceVersion, as objects that expire under one lease are deleted.
func (c *cluster) remove(keys ...string) bool {
	live := c.live()
	keys = slices.DeleteFunc(keys, func(k string) bool { _, ok := live[k]; return !ok })
	if len(keys) == 0 {
		return false
	}
	rv := c.next()
	for _, k := range keys {
		o := live[k]
		c.now().changes = append(c.now().changes, change{rv, &o, nil})
	}
	return true
}

// removeAll deletes the objects of a namespace, or of all namespaces, one after another.
func (c *cluster) removeAll(namespace string) {
	for _, k := range slices.Sorted(maps.Keys(c.live())) {
		if o := c.live()[k]; namespace == "" || o.namespace == namespace {
			c.remove(k)
		}
	}
}

// restore restores etcd to its content n changes ago, like a backup. The resourceVersions after that are used again.
func (c *cluster) restore(n int) bool { return c.restoreWith(n, 0) }

// restoreWith is restore with a bump: new resourceVersions begin bump above the highest one that was used before. 0:
// no bump, like etcdutl snapshot restore without --bump-revision.
func (c *cluster) restoreWith(n, bump int) bool {
	h := c.now()
	if n <= 0 || n > len(h.changes)-h.floor || c.crd == "" {
		return false
	}
	rv := h.changes[len(h.changes)-n].rv - 1
	next := &history{base: h.at(rv), baseRV: rv, rv: rv}
	if bump > 0 {
		next.baseRV, next.rv = h.rv+bump, h.rv+bump
	}
	c.histories = append(c.histories, next)
	return true
}

func byKey(a, b object) int { return cmp.Compare(a.key(), b.key()) }
