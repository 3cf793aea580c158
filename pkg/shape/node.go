package shape

import (
	"regexp"
	"slices"
)

// action is what becomes of a value. Where several rules meet, the greatest wins.
type action int

const (
	pass       action = iota
	hashed            // a keyed hash of the value and of where it stands
	secretHash        // the one of a Secret's value
	masked
	removed
)

// node is a place of several paths at once: they share their beginnings.
type node struct {
	names    map[string]*node
	patterns []patternNode
	any      *node // of every member or element
	most     *node // of every member but those in spared
	spared   []string
	deep     *node // a node that is at this place, and at every one below
	loops    bool  // it is such a node
	action   action
	kept     bool // identity: no action applies to it, but to what is in it
	object   bool // what stands here must be an object or null
	embedded bool // a text here is JSON of an older state of the object
}

type patternNode struct {
	pattern *regexp.Regexp
	node    *node
}

// at is the place of a path, made where it was none.
func (n *node) at(p path) *node {
	for _, s := range p {
		n = n.along(s)
	}
	return n
}

func (n *node) along(s step) *node {
	switch s.kind {
	case stepName:
		if n.names == nil {
			n.names = map[string]*node{}
		}
		if n.names[s.name] == nil {
			n.names[s.name] = &node{}
		}
		return n.names[s.name]
	case stepPattern:
		for _, p := range n.patterns {
			if p.pattern.String() == s.pattern.String() {
				return p.node
			}
		}
		next := &node{}
		n.patterns = append(n.patterns, patternNode{s.pattern, next})
		return next
	case stepAny:
		if n.any == nil {
			n.any = &node{}
		}
		return n.any
	default:
		if n.deep == nil {
			n.deep = &node{loops: true}
		}
		return n.deep
	}
}

func named(names ...string) path {
	var p path
	for _, name := range names {
		p = append(p, step{name: name})
	}
	return p
}

// frame is the nodes of one value, on the walker's stack.
type frame struct{ begin, end int }

// enter adds a node to the value whose nodes begin at a place of the stack.
func (w *walker) enter(begin int, n *node) {
	for _, other := range w.nodes[begin:] {
		if other == n {
			return
		}
	}
	w.nodes = append(w.nodes, n)
	if n.deep != nil {
		w.enter(begin, n.deep)
	}
}

// below puts the nodes of a member or an element (name is nil) on the stack.
func (w *walker) below(f frame, name []byte, kept bool) frame {
	w.nodes = w.nodes[:f.end]
	for _, n := range w.nodes[f.begin:f.end] {
		if n.loops || kept && n.action != pass {
			w.enter(f.end, n)
		}
		if n.any != nil {
			w.enter(f.end, n.any)
		}
		if n.most != nil && !slices.Contains(n.spared, string(name)) {
			w.enter(f.end, n.most)
		}
		if name == nil {
			continue
		}
		if next, ok := n.names[string(name)]; ok {
			w.enter(f.end, next)
		}
		for _, p := range n.patterns {
			if p.pattern.Match(name) {
				w.enter(f.end, p.node)
			}
		}
	}
	return frame{f.end, len(w.nodes)}
}

func (w *walker) of(f frame) []*node { return w.nodes[f.begin:f.end] }

// action is what becomes of a value that begins with c.
func (w *walker) action(f frame, c byte) action {
	act := pass
	for _, n := range w.of(f) {
		switch {
		case n.kept:
			return pass
		case n.any != nil && !n.object && c != '{' && c != '[' && c != 'n':
			act = max(act, n.any.action) // all that is in it is itself
		}
		act = max(act, n.action)
	}
	return act
}

func (w *walker) has(f frame, is func(*node) bool) bool {
	for _, n := range w.of(f) {
		if is(n) {
			return true
		}
	}
	return false
}

func isKept(n *node) bool     { return n.kept }
func isObject(n *node) bool   { return n.object }
func isEmbedded(n *node) bool { return n.embedded }
