package pipeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape/patch"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// modulus is the filter of the model: spec is no multiple of it.
func modulus(n int) CollectionOptions {
	return CollectionOptions{
		Filter: fmt.Sprintf("int(object.data.spec) %% %d != 0", n), Ignore: []string{"data.noise"}, Before: true, Patch: true,
	}
}

// copied is what a consumer has of an object.
type copied struct {
	rv    int
	alive bool
	body  []byte
}

// sinkOf is the bus as what a sink can be: plain, readable, or one with the store.
func sinkOf(kind string, b *bus, store checkpoint.Store) sink.Sink {
	switch kind {
	case "log":
		return logBus{b}
	case "transactional":
		return atomicBus{b, store}
	default:
		return b
	}
}

func specOf(body []byte) int {
	var o struct{ Data struct{ Spec string } }
	if err := json.Unmarshal(body, &o); err != nil {
		return -1
	}
	n, _ := strconv.Atoi(o.Data.Spec)
	return n
}

// follow keeps a copy as a consumer does and fails where an event does not fit it:
// a patch that does not lead to the object, a change of nothing that matters. Where
// repeats come, what is not newer is passed over, and a patch is for who has its base.
func follow(t rapidOrT, records []event.Record, repeats bool) (objects map[string]copied, synced bool) {
	objects = map[string]copied{}
	ids := map[string]bool{}
	for _, r := range records {
		e, err := event.Parse(r.Value)
		if err != nil {
			t.Fatalf("%s: %v", r.Value, err)
		}
		again := ids[e.ID]
		ids[e.ID] = true
		switch {
		case e.Type == event.Gap:
			synced = false
			if e.Report.Reset {
				clear(objects)
			}
			continue
		case e.Type == event.Synced:
			synced = true
			continue
		case again && repeats:
			continue
		case again:
			t.Fatalf("%s comes twice:\n%s", e.ID, dump(records))
		}
		had, rv := objects[e.UID], 0
		rv, _ = strconv.Atoi(e.ResourceVersion)
		if e.Type == event.Deleted {
			had.alive = false
			had.rv = max(had.rv, rv)
			objects[e.UID] = had
			continue
		}
		if rv < had.rv || rv == had.rv && had.alive {
			if !repeats || rv < had.rv && had.alive {
				t.Fatalf("%s is older than %d:\n%s", e.ID, had.rv, dump(records))
			}
			continue
		}
		if !repeats && had.alive != (e.Type == event.Modified) {
			t.Fatalf("%s of an object that is there: %t:\n%s", e.ID, had.alive, dump(records))
		}
		if !repeats && e.Type == event.Modified && specOf(e.Object) == specOf(had.body) {
			t.Fatalf("%s changes nothing that matters:\n%s", e.ID, dump(records))
		}
		if e.Base == strconv.Itoa(had.rv) || !repeats && e.Base != "" {
			if !sameJSON(e.Before, had.body) {
				t.Fatalf("%s: before is %s, and was %s:\n%s", e.ID, e.Before, had.body, dump(records))
			}
			if got, err := patch.Apply(had.body, e.Patch); err != nil || !sameJSON(got, e.Object) {
				t.Fatalf("%s: the patch %s makes %s of %s (%v), and the object is %s", e.ID, e.Patch, got, had.body, err, e.Object)
			}
		}
		objects[e.UID] = copied{rv, true, bytes.Clone(e.Object)}
	}
	return objects, synced
}

// passing reports whether a consumer's copy is what passes the filter now.
func (c *cluster) passing(objects map[string]copied, n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	alive := 0
	for _, o := range objects {
		if o.alive {
			alive++
		}
	}
	for _, ch := range c.alive {
		if ch.spec%n == 0 {
			continue
		}
		alive--
		if o := objects[ch.uid]; !o.alive || specOf(o.body) != ch.spec {
			return false
		}
	}
	return alive == 0
}

func mutateWith(t *rapid.T, c *cluster) {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
	spec, noise := rapid.IntRange(0, 6).Draw(t, "spec"), rapid.IntRange(0, 9).Draw(t, "noise")
	c.mu.Lock()
	was, alive := c.alive[name]
	c.mu.Unlock()
	switch {
	case !alive:
		c.doWith(source.Added, name, spec, noise)
	case rapid.IntRange(0, 3).Draw(t, "delete") == 0:
		c.doWith(source.Deleted, name, was.spec, noise)
	case rapid.Bool().Draw(t, "only noise"):
		c.doWith(source.Modified, name, was.spec, noise)
	default:
		c.doWith(source.Modified, name, spec, noise)
	}
}

// TestShapedCrashesLoseNothing is TestCrashesLoseNothing with a filter that changes
// between lives, ignored changes and differences: consumers must end with what passes
// the filter, hear of nothing that does not matter, and find that every patch leads
// from what they were told last to what they are told now.
func TestShapedCrashesLoseNothing(t *testing.T) {
	for _, kind := range []string{"plain", "log", "transactional"} {
		t.Run(kind, func(t *testing.T) {
			checkInBubble(t, func(t *rapid.T) {
				c, b := newCluster(), &bus{}
				store, err := file.OpenMem(identity)
				if err != nil {
					t.Fatalf("open: %v", err)
				}
				defer func() {
					if err := store.Close(); err != nil {
						t.Fatalf("close: %v", err)
					}
				}()
				s := sinkOf(kind, b, store)
				lives := rapid.IntRange(1, 5).Draw(t, "lives")
				for i := range lives {
					n := rapid.IntRange(2, 3).Draw(t, "filter")
					for range rapid.IntRange(0, 10).Draw(t, "changes") {
						mutateWith(t, c)
					}
					switch rapid.IntRange(0, 2).Draw(t, "history") {
					case 0:
						c.compact()
					case 1:
						c.otherReplica()
					}
					b.crashed = make(chan struct{})
					b.crashAfter = 0
					if i < lives-1 {
						b.crashAfter = rapid.IntRange(1, 4).Draw(t, "crash after")
					}
					live := rapid.IntRange(0, 6).Draw(t, "live changes")
					drawPaces(t, c, b)
					lane := newTestLane(s, store)
					runLifeOf(t, c, lane, []Wanted{{Target: configMaps, Options: modulus(n)}}, b.crashed, func() bool {
						if live > 0 {
							live--
							mutateWith(t, c)
							return false
						}
						b.mu.Lock()
						defer b.mu.Unlock()
						objects, synced := follow(t, b.records, kind == "plain")
						return synced && c.passing(objects, n) && (i < lives-1 || leftIntents(t, store) == 0)
					})
				}
				follow(t, b.records, kind == "plain")
			})
		})
	}
}

// TestFilterThatComesBack kills a lane in the list that a changed filter begins, after
// each of its writes: the filter from before, or a list for another reason, must find
// what left and what entered.
func TestFilterThatComesBack(t *testing.T) {
	for _, kind := range []string{"plain", "log", "transactional"} {
		for crashAfter := range 5 {
			for _, last := range []int{2, 3} {
				t.Run(fmt.Sprintf("%s/%d/%d", kind, crashAfter+1, last), func(t *testing.T) {
					c, b := newCluster(), &bus{}
					store, err := file.OpenMem(identity)
					if err != nil {
						t.Fatalf("open: %v", err)
					}
					defer func() {
						if err := store.Close(); err != nil {
							t.Errorf("close: %v", err)
						}
					}()
					for name, spec := range map[string]int{"a": 2, "b": 3, "c": 5, "d": 6} {
						c.doWith(source.Added, name, spec, 0)
					}
					live := func(filter, crashAfter int) {
						b.crashed, b.crashAfter = make(chan struct{}), crashAfter
						wanted := []Wanted{{Target: configMaps, Options: modulus(filter)}}
						runLifeOf(t, c, newTestLane(sinkOf(kind, b, store), store), wanted, b.crashed, func() bool {
							if crashAfter > 0 { // it needs something to write
								c.doWith(source.Modified, "c", 12-c.alive["c"].spec, 0) // 7, 5, 7 …
								return false
							}
							b.mu.Lock()
							defer b.mu.Unlock()
							objects, synced := follow(t, b.records, kind == "plain")
							return synced && c.passing(objects, filter)
						})
					}
					live(3, 0)
					c.doWith(source.Modified, "b", 3, 1)
					live(2, crashAfter+1)
					live(last, 0)
					for name, spec := range map[string]int{"a": 2, "b": 3, "c": 5, "d": 6} {
						c.doWith(source.Deleted, name, spec, 2)
					}
					live(last, 0)
				})
			}
		}
	}
}
