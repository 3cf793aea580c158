package model

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// input is one event of a run: its kind, with numbers that are its arguments.
type input struct {
	op   string
	args []int
}

func (in input) String() string {
	s := in.op
	for _, a := range in.args {
		s += " " + strconv.Itoa(a)
	}
	return s
}

// trace is a run's setup and inputs.
type trace struct {
	setup  setup
	inputs []input
	most   int // number of inputs that are given before the run ends; 0: all that apply
	// applied has the inputs that could be given in the last run.
	applied map[int]bool
}

// cut returns the trace without inputs that could not be given.
func (t *trace) cut() *trace {
	out := &trace{setup: t.setup}
	for i, in := range t.inputs {
		if t.applied[i] {
			out.inputs = append(out.inputs, in)
		}
	}
	return out
}

// String is the text that parseTrace reads.
func (t *trace) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "page %d\n", t.setup.page)
	if t.setup.notation != numbers {
		fmt.Fprintf(&b, "versions %s\n", t.setup.notation)
	}
	if t.setup.buffer != noBuffer {
		fmt.Fprintf(&b, "buffer %d\n", t.setup.buffer)
	}
	if t.setup.standby {
		fmt.Fprintln(&b, "standby")
	}
	for _, s := range t.setup.sinks {
		letters := "truncate"
		if s.dead {
			letters = "dead-letter"
		}
		window := ""
		if s.window {
			window = " window"
		}
		fmt.Fprintf(&b, "sink %s %s %d%s  # %s\n", s.mode, letters, s.preset, window, presets[s.preset])
	}
	for _, in := range t.inputs {
		fmt.Fprintln(&b, in)
	}
	return b.String()
}

// parseTrace parses a trace. A # begins a comment.
func parseTrace(text string) (*trace, error) {
	t := &trace{}
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		switch f[0] {
		case "page":
			t.setup.page, _ = strconv.Atoi(f[1])
			continue
		case "buffer":
			n, _ := strconv.Atoi(f[1])
			t.setup.buffer = diskSize(n)
			continue
		case "standby":
			t.setup.standby = true
			continue
		case "versions":
			t.setup.notation = notation(f[1])
			continue
		case "sink":
			s := sinkSetup{dead: f[2] == "dead-letter", window: len(f) > 4 && f[4] == "window"}
			for m := range 3 {
				if delivery(m).String() == f[1] {
					s.mode = delivery(m)
				}
			}
			s.preset, _ = strconv.Atoi(f[3])
			t.setup.sinks = append(t.setup.sinks, s)
			continue
		}
		if _, known := ops[f[0]]; !known {
			return nil, fmt.Errorf("line %d: unknown input %q", n+1, f[0])
		}
		in := input{op: f[0]}
		for _, a := range f[1:] {
			v, err := strconv.Atoi(a)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", n+1, err)
			}
			in.args = append(in.args, v)
		}
		if want := len(ops[f[0]].args); len(in.args) != want {
			return nil, fmt.Errorf("line %d: %s takes %d numbers", n+1, f[0], want)
		}
		t.inputs = append(t.inputs, in)
	}
	return t, nil
}

// kinds returns the kinds of input in a trace, and the features of its configurations and buses, sorted. They identify
// a defect.
func (t *trace) kinds() string {
	var out []string
	add := func(kinds ...string) {
		for _, k := range kinds {
			if k != "" && k != "write" && k != "time" && !slices.Contains(out, k) {
				out = append(out, k)
			}
		}
	}
	if t.setup.notation != numbers {
		add("+" + string(t.setup.notation))
	}
	if t.setup.buffer != noBuffer {
		add("+buffer")
	}
	if t.setup.standby {
		add("+standby")
	}
	for _, s := range t.setup.sinks {
		add(s.features()...)
	}
	for _, in := range t.inputs {
		switch k := ops[in.op].kind; {
		case in.op == "edit":
			add(k, feature(properties[in.args[2]].name))
		case in.op == "entry-added":
			add(k, several)
		case in.op == "entry-removed":
			add(k, "+removed")
		case k != "":
			add(k)
		default:
			add(in.op)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// several is the feature of a configuration with several entries.
const several = "+several"

// feature returns the name of a property of an entry in a list of kinds. The selection by label is no feature.
func feature(property string) string {
	if property == "labels" {
		return ""
	}
	return "+" + property
}

// features returns the features of a sink and its first configuration.
func (s *sinkSetup) features() (out []string) {
	if s.mode == intents {
		out = append(out, "+intents")
	}
	if s.window {
		out = append(out, "+window")
	}
	c := presets[s.preset]
	if len(c) > 1 {
		out = append(out, several)
	}
	for _, e := range c {
		for _, p := range properties {
			changed := e
			if p.set(&changed, 0); changed != e {
				out = append(out, feature(p.name))
			}
		}
	}
	return out
}

// op is a kind of input.
type op struct {
	kind   string // the name of the kind in trace.kinds; "": the name of the op
	weight int
	args   []int // each argument is less than its number here
	causes bool  // the input may open a gap
	// obstructs says that the bridge may be unable to find out what became of objects: requests for one object, or for
	// the past, are not answered, or are answered from another history.
	obstructs bool
	apply     func(w *world, a []int) bool
}

var objectKeys = func() (out [][2]string) {
	for _, n := range names {
		for _, ns := range namespaces {
			out = append(out, [2]string{ns, n})
		}
	}
	return out
}()

// properties are the properties of an entry that an edit may change. Their values count from 0.
var properties = []struct {
	name   string
	values int
	set    func(e *entry, v int)
}{
	{"labels", 7, func(e *entry, v int) { e.x = set(v + 1) }},
	{"filter", 2, func(e *entry, v int) { e.filter = v == 1 }},
	{"types", 3, func(e *entry, v int) { e.types = []string{"", "md", "ad"}[v] }},
	{"metadataOnly", 2, func(e *entry, v int) { e.metadata = v == 1 }},
	{"excludeNamespaces", 2, func(e *entry, v int) { e.exclude = v == 1 && !e.team }},
	{"namespaceSelector", 2, func(e *entry, v int) { e.team = v == 1; e.exclude = e.exclude && !e.team }},
	{"version", 2, func(e *entry, v int) { e.version = []string{"", "v2"}[v] }},
	{"topic", 2, func(e *entry, v int) { e.topic = v }},
	{"snapshot", 2, func(e *entry, v int) { e.skip = v == 1 }},
}

var ops = opsTable()

func opsTable() map[string]op {
	sinkOf := func(w *world, n int) *sinkWorld { return w.sinks[n%len(w.sinks)] }
	// edited gives a sink another configuration. A running bridge receives it at once.
	edited := func(w *world, s *sinkWorld, c config) bool {
		if s.config.equal(c) {
			return false
		}
		s.previous, s.config = s.config, c
		w.trace("      %s: %s", s.name, c)
		if w.process != nil {
			w.judges[slices.Index(w.sinks, s)].inEffect(c)
			w.process.edit(s)
		}
		return true
	}
	busFault := func(set func(b *bus)) func(w *world, a []int) bool {
		return func(w *world, a []int) bool {
			sinkOf(w, a[0]).bus.set(set)
			return true
		}
	}
	arm := func(set func(a *armed, n int)) func(w *world, a []int) bool {
		return func(w *world, a []int) bool {
			sinkOf(w, a[0]).bus.set(func(b *bus) { set(&b.armed, a[1]) })
			return true
		}
	}
	return map[string]op{
		"put": {kind: "write", weight: 30, args: []int{6, 3, 2, 2}, apply: func(w *world, a []int) bool {
			k := objectKeys[a[0]]
			return w.locked(func(c *cluster) bool {
				return c.put(k[0], k[1], func(o *object) { o.x, o.keep, o.big = a[1], a[2] == 1, a[3] == 1 })
			})
		}},
		"delete": {kind: "write", weight: 10, args: []int{6}, apply: func(w *world, a []int) bool {
			k := objectKeys[a[0]]
			return w.locked(func(c *cluster) bool { return c.remove(k[0] + "/" + k[1]) })
		}},
		"expire": {kind: "write", weight: 2, args: []int{3}, apply: func(w *world, a []int) bool { return expire(w, a[0]) }},
		// A part of the deletions of one resourceVersion is delivered before the watch or the process ends.
		"expire-part": {kind: "write", weight: 4, args: []int{3, 2, 2}, apply: func(w *world, a []int) bool {
			if w.process == nil || w.api.most >= 0 || !expire(w, a[0]) {
				return false
			}
			w.frames(a[1] + 1)
			w.pump()
			w.frames(-1)
			if a[2] == 1 && w.process != nil {
				w.bury()
			}
			w.api.cut(io.EOF)
			return true
		}},
		// Several writes wait for the bus, so that one batch has them all.
		"burst": {kind: "write", weight: 8, args: []int{2, 6, 3, 4}, apply: func(w *world, a []int) bool {
			return w.burst(sinkOf(w, a[0]).bus, a[1:], 0)
		}},
		// The bus also rejects a record after the first one of the burst.
		"burst-refused": {kind: "record", weight: 8, causes: true, args: []int{2, 6, 3, 4, 4}, apply: func(w *world, a []int) bool {
			return w.burst(sinkOf(w, a[0]).bus, a[1:], 2+a[4])
		}},
		"relabel": {kind: "write", weight: 10, args: []int{3, 3}, apply: func(w *world, a []int) bool {
			return a[0] != a[1] && w.locked(func(c *cluster) bool {
				moved := false
				live := c.live()
				for _, k := range sortedKeys(live) {
					if o := live[k]; o.x == a[0] {
						moved = c.put(o.namespace, o.name, func(o *object) { o.x = a[1] }) || moved
					}
				}
				return moved
			})
		}},
		"bookmark": {weight: 4, apply: func(w *world, _ []int) bool { w.api.bookmarks(); return true }},
		"forget": {weight: 6, causes: true, apply: func(w *world, _ []int) bool {
			w.forget()
			w.api.cut(io.EOF)
			return true
		}},
		"cut": {kind: "api", weight: 3, apply: func(w *world, _ []int) bool { w.api.cut(io.EOF); return true }},
		"api-restart": {kind: "api", weight: 2, causes: true, obstructs: true, apply: func(w *world, _ []int) bool {
			w.api.restart()
			return true
		}},
		"deny": {kind: "api", weight: 3, causes: true, obstructs: true, args: []int{2}, apply: func(w *world, a []int) bool {
			w.api.mu.Lock()
			w.api.denied = []int{http403, http500}[a[0]]
			w.api.mu.Unlock()
			w.api.cut(io.EOF)
			return true
		}},
		"allow": {kind: "api", weight: 3, apply: func(w *world, _ []int) bool {
			w.api.mu.Lock()
			defer w.api.mu.Unlock()
			was := w.api.denied
			w.api.denied = 0
			return was != 0
		}},
		"brief": {kind: "api", weight: 2, causes: true, obstructs: true, args: []int{4}, apply: func(w *world, a []int) bool {
			w.api.mu.Lock()
			w.api.brief = a[0] + 1
			w.api.mu.Unlock()
			w.api.cut(io.EOF)
			return true
		}},
		"hold-list": {kind: "hold", weight: 8, causes: true, args: []int{7, 3}, apply: func(w *world, a []int) bool {
			w.api.hold(heldList+set(a[0]+1).selector(), a[1])
			return true
		}},
		"hold-watch": {kind: "hold", weight: 8, causes: true, args: []int{7}, apply: func(w *world, a []int) bool {
			w.api.hold(heldWatch+set(a[0]+1).selector(), 0)
			return true
		}},
		"hold-past": {kind: "hold", weight: 3, causes: true, obstructs: true, args: []int{2}, apply: func(w *world, a []int) bool {
			w.api.hold(heldPast, a[0])
			return true
		}},
		"release": {kind: "hold", weight: 6, apply: func(w *world, _ []int) bool {
			w.api.mu.Lock()
			defer w.api.mu.Unlock()
			any := len(w.api.held) > 0
			w.api.held = map[string]int{}
			return any
		}},
		"restore": {weight: 4, causes: true, obstructs: true, args: []int{5}, apply: func(w *world, a []int) bool {
			return w.restore(a[0]+1, 0)
		}},
		// Undone writes are written again with other bodies at the same resourceVersions, except for the last write.
		"restore-rewritten": {kind: "restore", weight: 3, causes: true, obstructs: true, args: []int{4}, apply: func(w *world, a []int) bool {
			return w.restore(a[0]+2, a[0]+1)
		}},
		// This input is only used in handwritten traces, so that the seeds of random traces keep their meaning.
		"restore-bumped": {causes: true, obstructs: true, args: []int{5}, apply: func(w *world, a []int) bool {
			if !w.locked(func(c *cluster) bool { return c.restoreWith(a[0]+1, 1000) }) {
				return false
			}
			w.restored = w.step
			w.api.restart()
			return true
		}},
		"crd-delete": {kind: "crd", weight: 2, causes: true, obstructs: true, apply: func(w *world, _ []int) bool {
			if !w.locked(func(c *cluster) bool {
				if c.crd == "" {
					return false
				}
				c.removeAll("")
				return true
			}) {
				return false
			}
			w.pump()
			w.locked(func(c *cluster) bool { c.crd = ""; return true })
			w.api.cut(io.EOF)
			w.api.definitionChanged()
			return true
		}},
		"crd-create": {kind: "crd", weight: 3, causes: true, obstructs: true, apply: func(w *world, _ []int) bool {
			if !w.locked(func(c *cluster) bool {
				if c.crd != "" {
					return false
				}
				c.crd = c.uid("crd")
				return true
			}) {
				return false
			}
			w.forget()
			w.api.definitionChanged()
			return true
		}},
		// This input is only used in handwritten traces.
		"group":           {kind: "crd", causes: true, obstructs: true, args: []int{2}, apply: func(w *world, a []int) bool { return w.serveGroup(a[0] == 1) }},
		"version-dropped": {kind: "version", weight: 1, causes: true, obstructs: true, apply: func(w *world, _ []int) bool { return w.serveSecond(false) }},
		"version-served":  {kind: "version", weight: 2, causes: true, obstructs: true, apply: func(w *world, _ []int) bool { return w.serveSecond(true) }},
		"space-leaves":    {kind: "space", weight: 2, causes: true, args: []int{2}, apply: func(w *world, a []int) bool { return w.label(a[0], false) }},
		"space-joins":     {kind: "space", weight: 3, causes: true, args: []int{2}, apply: func(w *world, a []int) bool { return w.label(a[0], true) }},
		"space-deleted": {kind: "space", weight: 1, causes: true, args: []int{2}, apply: func(w *world, a []int) bool {
			n := namespaces[a[0]]
			was := w.cluster.spaces[n]
			if was.uid == "" {
				return false
			}
			w.locked(func(c *cluster) bool { c.removeAll(n); return true })
			w.pump()
			w.locked(func(c *cluster) bool { c.next(); c.spaces[n] = space{}; return true })
			w.api.spaceChanged(n, was, space{})
			return true
		}},
		"space-created": {kind: "space", weight: 2, causes: true, args: []int{2}, apply: func(w *world, a []int) bool { return w.createSpace(a[0], true) }},
		// This input is only used in handwritten traces.
		"space-created-other": {kind: "space", causes: true, args: []int{2}, apply: func(w *world, a []int) bool { return w.createSpace(a[0], false) }},
		"edit": {kind: "edit", weight: 12, causes: true, args: []int{2, 3, len(properties), 8}, apply: func(w *world, a []int) bool {
			s := sinkOf(w, a[0])
			if a[1] >= len(s.config) {
				return false
			}
			c := slices.Clone(s.config)
			p := properties[a[2]]
			p.set(&c[a[1]], a[3]%p.values)
			return edited(w, s, c)
		}},
		"edit-back": {kind: "edit", weight: 8, causes: true, args: []int{2}, apply: func(w *world, a []int) bool {
			s := sinkOf(w, a[0])
			return edited(w, s, s.previous)
		}},
		"entry-added": {kind: "edit", weight: 2, causes: true, args: []int{2, 7}, apply: func(w *world, a []int) bool {
			s := sinkOf(w, a[0])
			return len(s.config) < 3 && edited(w, s, append(slices.Clone(s.config), entry{name: s.config.freeName(), x: set(a[1] + 1)}))
		}},
		"entry-removed": {kind: "edit", weight: 3, causes: true, args: []int{2, 3}, apply: func(w *world, a []int) bool {
			s := sinkOf(w, a[0])
			return a[1] < len(s.config) && edited(w, s, slices.Delete(slices.Clone(s.config), a[1], a[1]+1))
		}},
		"stop": {kind: "process", weight: 3, apply: func(w *world, _ []int) bool { return w.halt() }},
		"kill": {kind: "process", weight: 4, causes: true, apply: func(w *world, _ []int) bool {
			if w.process == nil {
				return false
			}
			w.bury()
			return true
		}},
		// These inputs are given only to bridges with a disk buffer, so that the seeds of other runs keep their meaning.
		"disk": {causes: true, args: []int{3}, apply: func(w *world, a []int) bool {
			return w.disk != nil && w.disk.fails.Swap(diskFault(a[0])) != diskFault(a[0])
		}},
		"power-failure": {kind: "process", causes: true, args: []int{3}, apply: func(w *world, a []int) bool {
			if w.process == nil || w.disk == nil {
				return false
			}
			w.disk.crash([]int{0, 50, 90}[a[0]])
			w.bury()
			return true
		}},
		// Like Kafka's delivery, it can change while the bridge is stopped. This input is only used in handwritten traces and by TestRandomWithDelivery, so that
		// the seeds of other runs keep their meaning.
		"delivery": {kind: "edit", args: []int{2}, apply: func(w *world, a []int) bool {
			s := sinkOf(w, a[0])
			if w.process != nil || w.standby != nil || s.mode == log {
				return false
			}
			s.mode, s.mayRepeat = transaction+intents-s.mode, true
			w.trace("      %s: %s", s.name, s.mode)
			return true
		}},
		"start": {kind: "process", weight: 12, apply: func(w *world, _ []int) bool { return w.start() }},
		"start-back": {kind: "edit", weight: 3, causes: true, args: []int{2}, apply: func(w *world, a []int) bool {
			if w.process != nil {
				return false
			}
			s := sinkOf(w, a[0])
			s.config, s.previous = s.previous, s.config
			return w.start()
		}},
		"crash-before-write":  {kind: "process", weight: 3, causes: true, args: []int{2, 3}, apply: arm(func(a *armed, n int) { a.crashBeforeWrite = 1 + n })},
		"crash-after-write":   {kind: "process", weight: 5, causes: true, args: []int{2, 3}, apply: arm(func(a *armed, n int) { a.crashAfterWrite = 1 + n })},
		"crash-before-commit": {kind: "process", weight: 3, causes: true, args: []int{2, 3}, apply: arm(func(a *armed, n int) { a.crashBeforeCommit = 1 + n })},
		"crash-after-commit":  {kind: "process", weight: 3, causes: true, args: []int{2, 3}, apply: arm(func(a *armed, n int) { a.crashAfterCommit = 1 + n })},
		"lose-answer":         {kind: "bus", weight: 2, args: []int{2, 1}, apply: arm(func(a *armed, _ int) { a.loseAnswer = true })},
		"fail-commit":         {kind: "bus", weight: 2, args: []int{2, 1}, apply: arm(func(a *armed, _ int) { a.failCommit = true })},
		"refuse-record": {kind: "record", weight: 4, causes: true, args: []int{2, 4}, apply: func(w *world, a []int) bool {
			sinkOf(w, a[0]).bus.set(func(b *bus) { b.armed.refuse = a[1] + 1 })
			return true
		}},
		"refuse-route": {kind: "route", weight: 6, causes: true, args: []int{2, 2, 4}, apply: func(w *world, a []int) bool {
			sinkOf(w, a[0]).bus.set(func(b *bus) { b.refused[topic(a[1])] = a[2] })
			return true
		}},
		"heal-routes": {kind: "route", weight: 5, causes: true, args: []int{2}, apply: busFault(func(b *bus) { b.refused = map[string]int{} })},
		"bus-stops":   {kind: "bus", weight: 2, args: []int{2}, apply: busFault(func(b *bus) { b.stopped = true })},
		"bus-blocks":  {kind: "bus", weight: 2, args: []int{2}, apply: busFault(func(b *bus) { b.blocked = true })},
		"bus-heals":   {kind: "bus", weight: 4, args: []int{2}, apply: busFault(func(b *bus) { b.stopped, b.blocked = false, false })},
		"bus-emptied": {kind: "emptied", weight: 1, causes: true, args: []int{2}, apply: func(w *world, a []int) bool {
			time.Sleep(1000 * apart) // runs are numbered by milliseconds
			sinkOf(w, a[0]).empty()
			return true
		}},
		"limit": {kind: "record", weight: 3, args: []int{2, 2}, apply: func(w *world, a []int) bool {
			sinkOf(w, a[0]).bus.set(func(b *bus) { b.limit = a[1] * 3000 })
			return true
		}},
		"resync": {weight: 3, causes: true, args: []int{2}, apply: func(w *world, a []int) bool {
			if w.process == nil {
				return false
			}
			s := sinkOf(w, a[0])
			w.judges[slices.Index(w.sinks, s)].resets = w.step
			w.resyncs++
			p := w.process
			go p.resync(s)
			return true
		}},
		"reset": {weight: 1, causes: true, args: []int{2}, apply: func(w *world, a []int) bool {
			if w.process != nil {
				return false
			}
			s := sinkOf(w, a[0])
			time.Sleep(1000 * apart) // runs are numbered by milliseconds
			s.askReset()
			s.reset = true
			return true
		}},
		"second": {kind: "time", weight: 4, apply: func(w *world, _ []int) bool { time.Sleep(time.Second); return true }},
		"sleep": {kind: "time", weight: 10, args: []int{3}, apply: func(w *world, a []int) bool {
			w.sleep([]time.Duration{10 * time.Second, time.Minute, 3 * time.Minute}[a[0]])
			return true
		}},
		"settle": {kind: "time", weight: 4, apply: func(w *world, _ []int) bool {
			w.sleep(4 * time.Minute)
			w.caughtUp(delayed)
			return true
		}},
	}
}

const (
	http403 = 403
	http500 = 500
)

// expire deletes the objects with a label, all of them at one resourceVersion.
func expire(w *world, x int) bool {
	return w.locked(func(c *cluster) bool {
		var keys []string
		for k, o := range c.live() {
			if o.x == x {
				keys = append(keys, k)
			}
		}
		slices.Sort(keys)
		return c.remove(keys...)
	})
}

// burst puts up to five objects while the bus does not answer: the objects begin at index a[0] and the labels at a[1].
// refuse is as in armed.
func (w *world) burst(b *bus, a []int, refuse int) bool {
	if b.stopped || b.blocked {
		return false
	}
	b.set(func(b *bus) { b.blocked = true })
	put := false
	for i := range a[2] + 2 {
		k := objectKeys[(a[0]+i)%len(objectKeys)]
		put = w.locked(func(c *cluster) bool {
			return c.put(k[0], k[1], func(o *object) { o.x, o.keep, o.big = (a[1]+i)%3, true, false })
		}) || put
	}
	w.pump()
	b.set(func(b *bus) { b.blocked, b.armed.refuse = false, max(refuse, b.armed.refuse) })
	return put
}

// frames lets watches get n more frames; -1: no limit.
func (w *world) frames(n int) {
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	w.api.most = n
}

// restore undoes writes, and writes the first ones again with other bodies. again is their number.
func (w *world) restore(undone, again int) bool {
	changes := w.cluster.now().changes
	if !w.locked(func(c *cluster) bool { return c.restore(undone) }) {
		return false
	}
	for _, j := range w.judges {
		j.restored(w.cluster.now().rv)
	}
	w.restored = w.step
	w.locked(func(c *cluster) bool {
		for _, ch := range changes[len(changes)-undone:][:again] {
			if o := ch.after; o != nil {
				c.put(o.namespace, o.name, func(other *object) { other.x, other.keep = (o.x+1)%3, o.keep })
			} else {
				c.remove(ch.before.key())
			}
		}
		return true
	})
	w.api.restart()
	return true
}

// serveSecond begins or ends to serve the resource in version v2, too. The server ends the watches of every version.
func (w *world) serveSecond(on bool) bool {
	if w.cluster.second == on || w.cluster.crd == "" {
		return false
	}
	w.locked(func(c *cluster) bool { c.second = on; return true })
	w.forget()
	w.api.cut(io.EOF)
	w.api.definitionChanged()
	return true
}

// serveGroup makes the API server serve the group of the definition, or forget it until later.
func (w *world) serveGroup(on bool) bool {
	if w.api.unknown != on {
		return false
	}
	w.locked(func(*cluster) bool { w.api.unknown = !on; return true })
	w.api.cut(io.EOF)
	w.api.definitionChanged()
	return true
}

// createSpace creates a namespace, with or without the label that selectors select by.
func (w *world) createSpace(n int, team bool) bool {
	name := namespaces[n]
	if w.cluster.spaces[name].uid != "" {
		return false
	}
	is := space{}
	w.locked(func(c *cluster) bool {
		is = space{uid: c.uid("ns"), team: team, rv: c.next()}
		c.spaces[name] = is
		return true
	})
	w.api.spaceChanged(name, space{}, is)
	return true
}

// label adds the label that selectors select by to a namespace, or removes it.
func (w *world) label(n int, team bool) bool {
	name := namespaces[n]
	was := w.cluster.spaces[name]
	if was.uid == "" || was.team == team {
		return false
	}
	is := was
	w.locked(func(c *cluster) bool {
		is.team, is.rv = team, c.next()
		c.spaces[name] = is
		return true
	})
	w.api.spaceChanged(name, was, is)
	return true
}

// draw draws a random trace.
func draw(seed, n uint64) *trace {
	r := rand.New(rand.NewPCG(seed, n))
	t := &trace{setup: setup{page: 1 + r.IntN(3)}}
	for range 1 + r.IntN(4)/3 {
		s := sinkSetup{mode: delivery(r.IntN(3)), dead: r.IntN(3) == 0, preset: r.IntN(len(presets))}
		s.window = r.IntN(2) == 0 && s.mode == intents
		t.setup.sinks = append(t.setup.sinks, s)
	}
	var all []string
	total := 0
	for _, name := range sortedKeys(ops) {
		all, total = append(all, name), total+ops[name].weight
	}
	// A run has few kinds of disturbances, so that they coincide more than once.
	chosen := map[string]bool{}
	for range 3 + r.IntN(6) {
		name := pick(r, all, total)
		chosen[name], chosen[ops[name].kind] = true, true
	}
	t.most = 6 + r.IntN(25)
	for len(t.inputs) < 4*t.most {
		name := pick(r, all, total)
		if k := ops[name].kind; k != "write" && k != "time" && !chosen[name] && !chosen[k] && r.IntN(8) > 0 {
			continue
		}
		in := input{op: name}
		for _, below := range ops[name].args {
			in.args = append(in.args, r.IntN(below))
		}
		if name == "put" && r.IntN(4) > 0 {
			in.args[3] = 0
		}
		t.inputs = append(t.inputs, in)
	}
	return t
}

func pick(r *rand.Rand, names []string, total int) string {
	n := r.IntN(total)
	for _, name := range names {
		if n -= ops[name].weight; n < 0 {
			return name
		}
	}
	return names[0]
}

// minimise makes a trace smaller, and its setup simpler, as long as it fails in the same way.
func minimise(t *trace, fails func(*trace) bool) *trace {
	t = shorten(t, fails)
	simple := simplify(t, fails)
	if simple == t {
		return t
	}
	return shorten(simple, fails)
}

// shorten removes inputs from a trace.
func shorten(t *trace, fails func(*trace) bool) *trace {
	for size := len(t.inputs) / 2; size >= 1; {
		shorter := false
		for at := 0; at+size <= len(t.inputs); {
			try := &trace{setup: t.setup, inputs: slices.Delete(slices.Clone(t.inputs), at, at+size)}
			if fails(try) {
				t, shorter = try, true
			} else {
				at += size
			}
		}
		if !shorter || size > 1 {
			size /= 2
		}
		if shorter && size == 0 {
			size = 1
		}
	}
	return t
}

// simplify removes sinks from a trace, and features from the remaining sinks.
func simplify(t *trace, fails func(*trace) bool) *trace {
	for i := range t.setup.sinks {
		if len(t.setup.sinks) == 1 {
			break
		}
		try := &trace{setup: t.setup, inputs: t.inputs}
		try.setup.sinks = slices.Delete(slices.Clone(t.setup.sinks), i, i+1)
		if fails(try) {
			t = try
			break
		}
	}
	for i := range t.setup.sinks {
		with := func(change func(s *sinkSetup)) bool {
			try := &trace{setup: t.setup, inputs: t.inputs}
			try.setup.sinks = slices.Clone(t.setup.sinks)
			change(&try.setup.sinks[i])
			if try.setup.sinks[i] == t.setup.sinks[i] || !fails(try) {
				return false
			}
			t = try
			return true
		}
		with(func(s *sinkSetup) { s.window = false })
		with(func(s *sinkSetup) { s.dead = false })
		if !t.setup.sinks[i].window && !with(func(s *sinkSetup) { s.mode = transaction }) {
			with(func(s *sinkSetup) { s.mode = min(s.mode, log) })
		}
		for _, preset := range simplest[:slices.Index(simplest, t.setup.sinks[i].preset)] {
			if with(func(s *sinkSetup) { s.preset = preset }) {
				break
			}
		}
	}
	return t
}
