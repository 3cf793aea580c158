package reconcile

import (
	"cmp"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// visit is how a state was first reached.
type visit struct {
	from   uint64
	action string
}

// explore visits every state that is reachable from w, breadth first, up to limit states. failure has the shortest
// sequence of actions to a failure; "": there is none. closed says that no other state is reachable.
func explore(w *world, limit int) (states, depth int, closed bool, failure string) {
	start := w.hash()
	visited, drained := map[uint64]visit{start: {}}, map[uint64]struct{}{}
	frontier := []*world{w}
	for ; len(frontier) > 0; depth++ {
		var next []*world
		for _, x := range frontier {
			from := x.hash()
			for _, a := range x.actions() {
				y := x.clone()
				a.do(y)
				h := y.hash()
				if _, ok := visited[h]; ok && y.failed == "" {
					continue
				}
				visited[h] = visit{from, a.name}
				if y.failed == "" {
					d := y.clone()
					if d.drain(drained); d.failed != "" {
						y.failed = "after draining: " + d.failed
					}
				}
				if y.failed != "" {
					return len(visited), depth, false, y.failed + "\n" + way(visited, h, start)
				}
				next = append(next, y)
			}
			if len(visited) >= limit {
				return len(visited), depth, false, ""
			}
		}
		frontier = next
	}
	return len(visited), depth, true, ""
}

func way(visited map[uint64]visit, h, start uint64) string {
	var steps []string
	for h != start {
		v := visited[h]
		steps = append(steps, v.action)
		h = v.from
	}
	slices.Reverse(steps)
	return strings.Join(steps, "\n")
}

// drain performs everything that happens without a write or a disturbance. drained has the states from which this is
// known to end well.
func (w *world) drain(drained map[uint64]struct{}) {
	w.writes, w.disturbances = 0, 0
	var way []uint64
	for range 500 {
		h := w.hash()
		_, known := drained[h]
		way = append(way, h)
		list := w.actions()
		if len(list) == 0 && !known {
			w.drained()
		}
		if len(list) == 0 && w.failed == "" || known {
			for _, h := range way {
				drained[h] = struct{}{}
			}
			return
		}
		if len(list) == 0 {
			return
		}
		list[0].do(w)
		if w.failed != "" {
			return
		}
	}
	w.fail("drained: there are still possible actions after the maximum number of steps")
}

// hash returns the hash of a state. Two states that differ only in the numbers of their runs, and not in the order of
// these, have the same hash.
func (w *world) hash() uint64 {
	d := &dump{}
	d.world(w)
	return xxhash.Sum64(d.rank())
}

func sortedSlots[V any](m map[Slot]V) []Slot {
	var list []Slot
	for slot := range m {
		list = append(list, slot)
	}
	slices.SortFunc(list, func(a, b Slot) int { return cmp.Or(cmp.Compare(a.Collection, b.Collection), cmp.Compare(a.Key, b.Key)) })
	return list
}

var (
	statesFlag       = flag.Int("explore.states", 300, "how many states of each world are explored")
	writesFlag       = flag.Int("explore.writes", 2, "writes to the cluster")
	disturbancesFlag = flag.Int("explore.disturbances", 2, "disturbances of a way")
	minimiseFlag     = flag.Bool("explore.minimise", true, "leave out of a failing walk what it does not need")
)

// worlds returns the configurations that a walk changes between, by the name of what they test.
func worlds() map[string][]map[string]Properties {
	selections := func(list ...string) map[string]Properties {
		m := map[string]Properties{}
		for i := 0; i+1 < len(list); i += 2 {
			m[list[i]] = Properties{Selection: list[i+1]}
		}
		return m
	}
	everything := selections("x", "")
	return map[string][]map[string]Properties{
		"compacted": {
			{"x": {Tombstones: true}},
			{"x": {Tombstones: true, Shape: "hidden"}},
			{"x": {Tombstones: true, Route: "elsewhere"}},
			{},
		},
		"filter":    {everything, {"x": {Filter: "1"}}},
		"ignore":    {everything, {"x": {Filter: ignoring}}},
		"join":      {selections("x", "1", "y", "2"), everything},
		"overlap":   {selections("x", "1", "y", "12"), selections("x", "12", "y", "")},
		"removed":   {everything, {}},
		"rename":    {selections("x", "1"), selections("y", "1")},
		"route":     {everything, {"x": {Route: "elsewhere"}}},
		"selection": {everything, selections("x", "1")},
		"shape":     {everything, {"x": {Shape: "hidden"}}},
		"skip":      {{"x": {Skip: true}}, {"x": {Skip: true, Selection: "1"}}},
		"types": {
			everything,
			{"x": {Types: event.Types(0).Without(event.Modified)}},
			{"x": {Types: event.Types(0).Without(event.Deleted)}},
			{"x": {Types: event.Types(0).Without(event.Added)}},
		},
		"swap": {selections("x", "1", "y", "2"), selections("x", "2", "y", "1")},
	}
}

// inWorlds calls f for every world and mode. fresh makes a world. The world has objects if start is odd; start/2 chooses
// its first configuration.
func inWorlds(t *testing.T, f func(t *testing.T, fresh func(start int) *world)) {
	t.Helper()
	all := worlds()
	for _, name := range sorted(all) {
		for _, m := range everyMode {
			t.Run(name+"/"+m.String(), func(t *testing.T) {
				f(t, func(start int) *world {
					configs, first := all[name], start/2%len(all[name])
					w := newWorld(m, *writesFlag, *disturbancesFlag, append(slices.Clone(configs[first:]), configs[:first]...)...)
					w.coverage, w.core.coverage = covered, covered
					if start%2 == 1 {
						w.cluster.uids = 2
						w.cluster.write(map[string]*thing{"a": {uid: 1, group: 1}})
						w.cluster.write(map[string]*thing{"b": {uid: 2, group: 2}})
					}
					return w
				})
			})
		}
	}
}

func TestExplore(t *testing.T) {
	inWorlds(t, func(t *testing.T, fresh func(start int) *world) {
		states, depth, _, failure := explore(fresh(0), *statesFlag)
		t.Logf("%d states, depth %d", states, depth)
		if failure != "" {
			t.Fatal(failure)
		}
	})
}

var (
	pairStatesFlag = flag.Int("explore.pairstates", 50, "how many states of each pair of kinds of disturbances are explored")
	pairsFlag      = flag.String("explore.pairs", "", "only pairs whose name contains this")
)

// TestPairs explores each pair of kinds of disturbances in each mode. The worlds are small: many of
// them are explored until no state is new.
func TestPairs(t *testing.T) {
	closures, worlds, total, deepest := 0, 0, 0, 0
	for i, one := range kinds {
		for _, two := range kinds[i:] {
			for _, m := range everyMode {
				name := one + "," + two + "/" + m.String()
				if !strings.Contains(name, *pairsFlag) {
					continue
				}
				t.Run(name, func(t *testing.T) {
					w := pairWorld(m, one, two)
					states, depth, closed, failure := explore(w, *pairStatesFlag)
					t.Logf("%d states, depth %d, closed: %t", states, depth, closed)
					if failure != "" {
						t.Fatal(failure)
					}
					if worlds++; closed {
						closures++
					}
					total, deepest = total+states, max(deepest, depth)
				})
			}
		}
	}
	t.Logf("%d worlds, %d of them to closure; %d states, depth up to %d", worlds, closures, total, deepest)
}

// pairWorld is a world of one collection, two writes and two disturbances of the two kinds.
func pairWorld(m mode, one, two string) *world {
	configs := []map[string]Properties{{"x": {}}}
	if one == "configure" || two == "configure" {
		configs = oneFilter
	}
	w := newWorld(m, 2, 2, configs...)
	w.coverage, w.core.coverage = covered, covered
	w.kinds = map[string]bool{one: true, two: true}
	w.narrow, w.plain = true, len(configs) == 1
	return w
}

func TestWalk(t *testing.T) {
	inWorlds(t, func(t *testing.T, start func(start int) *world) {
		for seed := range *walksFlag {
			kinds := disturbanceKinds(seed)
			fresh := func() *world {
				w := start(seed)
				w.kinds = kinds
				return w
			}
			way, failure := walk(fresh(), rand.New(rand.NewPCG(uint64(seed), 1)), seed%5 == 0)
			if failure != "" {
				if *minimiseFlag {
					way, failure = shorten(fresh, way, failure)
				}
				t.Fatalf("walk %d: %s\n%s", seed, failure, strings.Join(way, "\n"))
			}
		}
	})
}

// kinds are the kinds of disturbances: the first words of their names. The return of a resource is of the kind remove.
var kinds = []string{
	"restart", "refuse", "reject", "crash", "configure", "expire", "restore", "rewrite", "overtake", "reset", "break", "confirm", "resync", "verify",
	"change", "drift", "remove",
}

// kindOf is the kind of an action.
func kindOf(name string) string {
	kind, _, _ := strings.Cut(name, " ")
	if kind == "return" {
		return "remove"
	}
	return kind
}

// disturbanceKinds returns the kinds of disturbances in a walk: all of them (nil) in every third walk, otherwise two, so
// that these two are combined more often. In half of the latter walks, one of the two is an edit of the configuration.
func disturbanceKinds(seed int) map[string]bool {
	if seed%3 == 0 {
		return nil
	}
	r := rand.New(rand.NewPCG(uint64(seed), 2))
	one, two := kinds[r.IntN(len(kinds))], kinds[r.IntN(len(kinds))]
	if seed%3 == 1 {
		one = "configure"
	}
	return map[string]bool{one: true, two: true}
}

// covered counts how often the tests use each cell of the tables of Phase and Sighting.
var covered = &coverage{}

var walksFlag = flag.Int("explore.walks", 50, "random walks through each world")

// walk performs at most 200 random actions, and then drains the world. With checks, it also tries, in each state, inputs
// that must have no effect.
func walk(w *world, r *rand.Rand, checks bool) (way []string, failure string) {
	for range 200 {
		list := w.actions()
		if len(list) == 0 {
			break
		}
		if checks {
			if w.useless(); w.failed != "" {
				return way, w.failed
			}
		}
		a := pick(list, r)
		way = append(way, a.name)
		a.do(w)
		if w.failed != "" {
			return way, w.failed
		}
	}
	w.drain(map[uint64]struct{}{})
	return way, w.failed
}

// pick chooses a random action. Disturbances are rarer than writes, and writes are rarer than the program's own steps, so
// that disturbances happen while the program has work to do. All kinds of disturbances are equally likely.
func pick(list []action, r *rand.Rand) action {
	groups, kinds := [3][]action{}, [3][]string{}
	for _, a := range list {
		kind := kindOf(a.name)
		g := 2
		switch kind {
		case "read", "side", "stream", "audit", "seal", "deliver", "resume":
			g = 0
		case "create", "write", "delete":
			g = 1
		}
		groups[g] = append(groups[g], a)
		if !slices.Contains(kinds[g], kind) {
			kinds[g] = append(kinds[g], kind)
		}
	}
	g := [...]int{0, 0, 0, 0, 0, 0, 1, 1, 1, 2}[r.IntN(10)]
	if len(groups[g]) == 0 {
		g = slices.IndexFunc(groups[:], func(g []action) bool { return len(g) > 0 })
	}
	kind := kinds[g][r.IntN(len(kinds[g]))]
	list = slices.DeleteFunc(groups[g], func(a action) bool { return kindOf(a.name) != kind })
	return list[r.IntN(len(list))]
}

// shorten removes the actions from a way that a failure of the same kind does not need.
func shorten(fresh func() *world, way []string, failure string) ([]string, string) {
	kind, _, _ := strings.Cut(failure, ":")
	for again := true; again; {
		again = false
		for i := range way {
			shorter := slices.Delete(slices.Clone(way), i, i+1)
			w := fresh()
			if !follow(w, shorter) {
				continue
			}
			if w.failed == "" {
				w.drain(map[uint64]struct{}{})
			}
			if k, _, _ := strings.Cut(w.failed, ":"); w.failed != "" && k == kind {
				way, failure, again = shorter, w.failed, true
				break
			}
		}
	}
	return way, failure
}

// follow performs the actions of a way until one fails, and reports whether each of them was possible.
func follow(w *world, way []string) bool {
	for _, name := range way {
		list := w.actions()
		i := slices.IndexFunc(list, func(a action) bool { return a.name == name })
		if i < 0 {
			return false
		}
		list[i].do(w)
		if w.failed != "" {
			return true
		}
	}
	return true
}
