package model

import (
	"bytes"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/pkg/shape"
)

func redacted(e *edited) { e.options.Redact = []shape.Rule{{Paths: []string{"spec.padding"}}} }

// An edit that hides more holds for a collection of which the plan cannot say yet what becomes of it: it is not read until that is known, as after a
// restart. Otherwise values would be published in clear for as long as a group is not discovered or namespaces may not be listed.
func TestEditsOfUndecidedCollections(t *testing.T) {
	for name, c := range map[string]struct {
		base, make func(e *edited)
		fails      func(s *server, fails bool) // what makes the plan undecided; nil: the edit itself
		decided    func(e *edited)             // after the edit; nil: nothing
		want       string                      // from the edit on
	}{
		"the name of the entry may mean another resource later": {
			base: func(e *edited) { e.plan.Resource = "*." + group },
			make: func(e *edited) {
				e.beside, e.plan.Resource = []plan.Entry{{Resource: "*." + group}}, "thing"
				redacted(e)
			},
			decided: func(e *edited) { e.plan.Resource = resource + "." + group },
			want:    "reset on one",
		},
		"the group is not discovered": {
			make:  redacted,
			fails: func(s *server, fails bool) { s.stale = fails },
			want:  "reset on one",
		},
		"the namespaces may not be listed": {
			base:  selected,
			make:  func(e *edited) { e.plan.NamespaceSelector = "team in (a,c)"; redacted(e) },
			fails: func(s *server, fails bool) { s.spaceless = fails },
			want:  "reset on one",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, undone := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					base, next := unedited(c.base), unedited(c.base)
					c.make(next)
					w := newEditWorld(t, transaction, base)
					w.frames(-1)
					fails := func(fails bool) {
						if c.fails != nil {
							w.locked(func(*cluster) bool { c.fails(w.api, fails); return true })
							w.sleep(5 * time.Minute)
						}
					}
					fails(true)
					w.put("n1", "before")
					if said := w.said(); said != "added before" {
						t.Errorf("before the edit: %q", said)
					}
					w.edit(next)
					w.put("n1", "secret")
					if said := w.said(); said != "" {
						t.Errorf("while it is not decided what becomes of the collection: %q", said)
					}
					want := c.want
					switch {
					case undone:
						want = "added secret"
						w.edit(base)
					case c.decided != nil:
						c.decided(next)
						w.edit(next)
					}
					read := w.read
					fails(false)
					w.settles()
					if said := w.said(); said != want {
						t.Errorf("once it is decided: %q, want %q", said, want)
					}
					for _, m := range w.sink.bus.messages[read:] {
						if !undone && bytes.Contains(m.Value, []byte(bigBody)) {
							t.Errorf("in clear: %s %s", m.short(), m.Name)
						}
					}
					w.end()
				})
			}
		})
	}
}

// A collection is not closed before what replaces it has synced, also if it is not known yet which collections that are: consumers would have nothing
// meanwhile.
func TestReplacedByUndecidedCollections(t *testing.T) {
	for name, c := range map[string]struct {
		make    func(e *edited)
		fails   func(s *server, fails bool) // what makes the plan undecided; nil: the edit itself
		decided func(e *edited)             // after the edit; nil: nothing
	}{
		"the namespaces may not be listed": {
			make:  func(e *edited) { e.plan.Name, e.plan.NamespaceSelector = "x", "team=a" },
			fails: func(s *server, fails bool) { s.spaceless = fails },
		},
		"the group is not discovered": {
			make:  func(e *edited) { e.plan.Name = "x" },
			fails: func(s *server, fails bool) { s.stale = fails },
		},
		"the group of a pattern is not discovered": {
			make:  func(e *edited) { e.plan.Name, e.plan.Resource = "x", "*."+group },
			fails: func(s *server, fails bool) { s.stale = fails },
		},
		"the name of the entry may mean another resource later": {
			make: func(e *edited) {
				e.plan.Name, e.plan.Resource, e.beside = "x", "thing", []plan.Entry{{Resource: "*." + group}}
			},
			decided: func(e *edited) { e.plan.Resource = resource + "." + group },
		},
		"the version is not served": {
			make:    func(e *edited) { e.plan.Name, e.plan.Resource = "x", resource+".v3."+group },
			decided: func(e *edited) { e.plan.Resource = resource + "." + group },
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, restarts := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					base, next := unedited(nil), unedited(nil)
					c.make(next)
					w := newEditWorld(t, transaction, base)
					fails := func(fails bool) {
						if c.fails != nil {
							w.locked(func(*cluster) bool { c.fails(w.api, fails); return true })
							w.sleep(5 * time.Minute)
						}
					}
					fails(true)
					w.edit(next)
					w.settles()
					if restarts {
						w.halt()
						w.starts(next)
					}
					if said := w.said(); said != "" {
						t.Errorf("before it is known what replaces the collection: %q", said)
					}
					if c.decided != nil {
						c.decided(next)
						w.edit(next)
					}
					fails(false)
					w.settles()
					if said := w.said(); said != "reset on one, closed on one" {
						t.Errorf("once it is known: %q", said)
					}
					w.end()
				})
			}
		})
	}
}

// put writes an object with a long value, and waits until the bridge has nothing left to do.
func (w *editWorld) put(namespace, name string) {
	w.locked(func(c *cluster) bool { return c.put(namespace, name, func(o *object) { o.keep, o.big = true, true }) })
	w.pump()
	w.settles()
}

// forbidden answers a request that the bridge has no right for.
var forbidden = status(http.StatusForbidden, "Forbidden", "namespaces is forbidden")
