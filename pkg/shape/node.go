package shape

import (
	"regexp"
	"slices"
)

// action says how a value is replaced. If several rules apply to a value, the greatest action wins.
type action int

const (
	pass       action = iota // the value stays
	hashed                   // a keyed hash of the value, its path and the object's name
	secretHash               // the hash of a Secret's value
	masked
	removed
)

// node is a step of one or more paths. All paths together are a tree, in which paths with a common beginning share nodes.
type node struct {
	names      map[string]*node
	patterns   []patternNode
	any        *node // for every member or element
	anyBut     *node // for every member that is not in exceptions
	exceptions []string
	deep       *node // the node of **: it applies to this value and all values below
	repeats    bool  // this node is the node of a **
	action     action
	kept       bool // part of the identity: no action applies to the value itself, but actions apply to values in it
	object     bool // the value must be an object or null
	embedded   bool // a string here is the JSON of an earlier state of the object
}

type patternNode struct {
	pattern *regexp.Regexp
	node    *node
}

// addPath returns the node at the end of a path, and adds missing nodes.
func (n *node) addPath(p path) *node {
	for _, s := range p {
		n = n.addStep(s)
	}
	return n
}

func (n *node) addStep(s step) *node {
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
			n.deep = &node{repeats: true}
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

// frame is the range of the walker's stack that has the nodes of one value.
type frame struct{ begin, end int }

// enter adds a node to the value whose nodes begin at index begin of the stack.
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

// pushChild pushes the nodes of a member, or of an element if name is nil.
func (w *walker) pushChild(f frame, name []byte, kept bool) frame {
	w.nodes = w.nodes[:f.end]
	for _, n := range w.nodes[f.begin:f.end] {
		if n.repeats || kept && n.action != pass {
			w.enter(f.end, n)
		}
		if n.any != nil {
			w.enter(f.end, n.any)
		}
		if n.anyBut != nil && !slices.Contains(n.exceptions, string(name)) {
			w.enter(f.end, n.anyBut)
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

func (w *walker) nodesOf(f frame) []*node { return w.nodes[f.begin:f.end] }

// action returns the action for a value that begins with c.
func (w *walker) action(f frame, c byte) action {
	act := pass
	for _, n := range w.nodesOf(f) {
		switch {
		case n.kept:
			return pass
		case n.any != nil && !n.object && c != '{' && c != '[' && c != 'n':
			act = max(act, n.any.action) // a scalar counts as its own only element
		}
		act = max(act, n.action)
	}
	return act
}

func (w *walker) has(f frame, is func(*node) bool) bool {
	for _, n := range w.nodesOf(f) {
		if is(n) {
			return true
		}
	}
	return false
}

func isKept(n *node) bool     { return n.kept }
func isObject(n *node) bool   { return n.object }
func isEmbedded(n *node) bool { return n.embedded }
