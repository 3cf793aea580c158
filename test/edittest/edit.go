// Package edittest makes random objects and random edits of them, for tests of the code that finds out which manager
// changed which field. The API server accepts all of them.
package edittest

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// Object is a decoded JSON object.
type Object = map[string]any

// Kind is a kind of object. All objects have the name "o".
type Kind struct {
	APIVersion, Kind string
	// Subresources are the subresources of the kind, for example "status".
	Subresources []string
	parts        []part
}

// part is a part of an object that an edit may change.
type part struct {
	subresource string // the subresource that writes the part; "": the object itself
	path        []string
	value       func(r *rand.Rand) any
}

// Kinds returns one kind with maps, one with lists by key, atomic lists and sets by value, and one that has no schema
// beyond JSON itself (kind Widget in the given group).
func Kinds(group string) []Kind {
	metadata := []part{
		{"", []string{"metadata", "labels", "a"}, word},
		{"", []string{"metadata", "labels", "b"}, word},
		{"", []string{"metadata", "annotations", "x.y/z"}, word},
		{"", []string{"metadata", "annotations"}, words},
		{"", []string{"metadata", "finalizers"}, some(func(name string) any { return "a.b/" + name })},
	}
	return []Kind{
		{APIVersion: "v1", Kind: "ConfigMap", parts: slices.Concat(metadata, []part{
			{"", []string{"data"}, words},
			{"", []string{"data", "a"}, word},
			{"", []string{"data", "b"}, word},
			{"", []string{"data", "c"}, word},
		})},
		{APIVersion: "apps/v1", Kind: "Deployment", Subresources: []string{"status", "scale"}, parts: slices.Concat(metadata, []part{
			{"", []string{"spec", "replicas"}, number},
			{"scale", []string{"spec", "replicas"}, number},
			{"", []string{"spec", "paused"}, func(r *rand.Rand) any { return r.IntN(2) == 0 }},
			{"", []string{"spec", "template", "spec", "nodeSelector"}, words},
			{"", []string{"spec", "template", "spec", "containers"}, containers},
			{"", []string{"spec", "template", "spec", "containers"}, containers},
			{"", []string{"spec", "template", "spec", "containers"}, containers},
			{"status", []string{"status", "conditions"}, conditions},
			{"status", []string{"status", "observedGeneration"}, number},
		})},
		{APIVersion: group + "/v1", Kind: "Widget", Subresources: []string{"status"}, parts: slices.Concat(metadata, []part{
			{"", []string{"spec", "m"}, words},
			{"", []string{"spec", "m", "a"}, word},
			{"", []string{"spec", "m", "b", "c"}, word},
			{"", []string{"spec", "l"}, some(func(name string) any { return name })},
			{"", []string{"spec", "n"}, number},
			{"", []string{"spec", "e"}, func(*rand.Rand) any { return Object{} }},
			{"", []string{"spec", "e", "f"}, func(*rand.Rand) any { return Object{} }},
			{"", []string{"spec", "e", "f", "g"}, word},
			{"status", []string{"status", "m"}, words},
			{"status", []string{"status", "m", "a"}, word},
		})},
	}
}

// New returns a new object, without its metadata.
func (k Kind) New(r *rand.Rand) Object {
	o := k.Config(r, "")
	for range 4 {
		k.Edit(r, o, "")
	}
	return o
}

// Config returns the configuration that a manager applies to the whole object (subresource "") or to a subresource.
func (k Kind) Config(r *rand.Rand, subresource string) Object {
	o := Object{"apiVersion": k.APIVersion, "kind": k.Kind, "metadata": Object{"name": "o"}}
	if k.Kind == "Deployment" && subresource == "" {
		pod := Object{"metadata": Object{"labels": Object{"app": "o"}}, "spec": Object{"containers": []any{Object{"name": "app", "image": "app:1"}}}}
		o["spec"] = Object{"selector": Object{"matchLabels": Object{"app": "o"}}, "template": pod}
	}
	for _, p := range k.parts {
		if p.subresource == subresource && r.IntN(4) == 0 {
			set(o, p.path, p.value(r))
		}
	}
	return o
}

// Edit changes a random part of an object that the subresource writes.
func (k Kind) Edit(r *rand.Rand, o Object, subresource string) {
	var parts []part
	for _, p := range k.parts {
		if p.subresource == subresource {
			parts = append(parts, p)
		}
	}
	for range 1 + r.IntN(2) {
		p := parts[r.IntN(len(parts))]
		if v, ok := p.value(r).([]any); ok && r.IntN(3) > 0 {
			set(o, p.path, editList(r, get(o, p.path), v))
			continue
		}
		if !p.must() && r.IntN(3) == 0 {
			remove(o, p.path)
			continue
		}
		set(o, p.path, p.value(r))
	}
}

// must reports whether the part is mandatory in an object.
func (p part) must() bool {
	last := p.path[len(p.path)-1]
	return last == "containers" || p.subresource == "scale"
}

func word(r *rand.Rand) any   { return []any{"", "1", "2", "3"}[r.IntN(4)] }
func number(r *rand.Rand) any { return int64(r.IntN(4)) }

func words(r *rand.Rand) any {
	m := Object{}
	for _, name := range []string{"a", "b", "c"} {
		if r.IntN(3) == 0 {
			m[name] = word(r)
		}
	}
	return m
}

func some(element func(name string) any) func(r *rand.Rand) any {
	return func(r *rand.Rand) any {
		l := []any{}
		for _, name := range []string{"a", "b", "c"} {
			if r.IntN(2) == 0 {
				l = append(l, element(name))
			}
		}
		return l
	}
}

func containers(r *rand.Rand) any {
	l := []any{}
	for i, name := range []string{"app", "log", "net"} {
		if i > 0 && r.IntN(2) == 0 {
			continue
		}
		c := Object{"name": name, "image": name + ":" + []string{"1", "2"}[r.IntN(2)]}
		if r.IntN(2) == 0 {
			c["args"] = some(func(name string) any { return "-" + name })(r)
		}
		if r.IntN(2) == 0 {
			c["ports"] = some(func(name string) any {
				return Object{"containerPort": int64(80 + name[0]), "protocol": []any{"TCP", "UDP"}[r.IntN(2)], "name": name}
			})(r)
		}
		if r.IntN(2) == 0 {
			c["env"] = some(func(name string) any { return Object{"name": name, "value": word(r)} })(r)
		}
		l = append(l, c)
	}
	return l
}

func conditions(r *rand.Rand) any {
	return some(func(name string) any {
		return Object{"type": name, "status": []any{"True", "False"}[r.IntN(2)]}
	})(r)
}

// editList mixes elements of the previous and the wanted list. For an element that both have, by name, it takes either
// version.
func editList(r *rand.Rand, was any, want []any) []any {
	out := slices.Clone(want)
	for _, old := range listOf(was) {
		i := slices.IndexFunc(out, func(e any) bool { return nameOf(e) == nameOf(old) })
		switch {
		case i >= 0 && r.IntN(2) == 0:
			out[i] = old
		case i < 0 && r.IntN(2) == 0:
			out = append(out, old)
		}
	}
	return out
}

func listOf(v any) []any {
	l, _ := v.([]any)
	return l
}

func nameOf(element any) any {
	m, ok := element.(Object)
	if !ok {
		return element
	}
	if name, ok := m["name"]; ok {
		return name
	}
	return m["type"]
}

func get(o Object, path []string) any {
	var v any = o
	for _, name := range path {
		m, _ := v.(Object)
		v = m[name]
	}
	return v
}

func set(o Object, path []string, v any) {
	for _, name := range path[:len(path)-1] {
		m, ok := o[name].(Object)
		if !ok {
			m = Object{}
		} else {
			m = maps.Clone(m)
		}
		o[name] = m
		o = m
	}
	o[path[len(path)-1]] = v
}

func remove(o Object, path []string) {
	for _, name := range path[:len(path)-1] {
		m, ok := o[name].(Object)
		if !ok {
			return
		}
		o = m
	}
	delete(o, path[len(path)-1])
}
