package model

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/kubebridge/kubebridge/internal/core/durable"
	bridgestatus "github.com/kubebridge/kubebridge/internal/operate/status"
)

type roundTripper = http.RoundTripper

// world is one run.
type world struct {
	step     int
	cluster  *cluster
	api      *server
	sinks    []*sinkWorld
	judges   []*judge
	process  *process
	disk     *disk
	board    *board   // of the leader election; nil: there is one bridge
	standby  *process // of the leader election
	spare    *disk    // of the standby
	problems []problem
	causes   []int // steps that may cause a gap
	// disturbed is the last step in which anything else happened that may cause a gap than an edit, a stop or a kill: a takeover by a
	// standby, too.
	disturbed int
	resyncs   int // number of requested resyncs
	restored  int // the step of the last restore
	// obstructed says that the bridge may be unable to find out what became of objects.
	obstructed bool
	out        io.Writer
	logger     *zap.Logger
}

func (w *world) trace(format string, args ...any) {
	if w.out != nil {
		fmt.Fprintf(w.out, format+"\n", args...)
	}
}

// lastHistory is the index of the present history.
func (c *cluster) lastHistory() int { return len(c.histories) - 1 }

// caused reports whether anything that may open a gap has happened since a step.
func (w *world) caused(since int) bool {
	return slices.ContainsFunc(w.causes, func(step int) bool { return step >= since })
}

// hindered reports whether anything hinders an entry of a sink.
func (w *world) hindered(s *sinkWorld, e entry) bool {
	b := s.bus
	if w.process == nil || b.stopped || b.blocked || b.refuses(topic(e.topic)) || w.api.down || w.api.unknown || w.api.denied != 0 {
		return true
	}
	if e.version == "v2" && !w.cluster.second {
		return true // the entry waits for a version that is served
	}
	if w.judges[slices.Index(w.sinks, s)].hadRefused(e) {
		return true
	}
	labels := e.x.selector()
	return w.api.isHeld(heldList+labels) || w.api.isHeld(heldWatch+labels) || w.api.isHeld(heldPast)
}

// setup is the initial state of a run.
type setup struct {
	page     int    // objects per page of a list
	crowd    int    // objects with x=1 that exist from the start
	first    config // of the sinks; nil: their presets
	sinks    []sinkSetup
	notation notation // of resourceVersions
	buffer   diskSize
	standby  bool // there is a standby, which has a disk buffer, too
}

type sinkSetup struct {
	mode   delivery
	dead   bool // the sink has dead letters; else it truncates
	window bool // the bus drops repeats
	preset int  // index in presets
}

// presets are the configurations with which runs begin.
var presets = []config{
	{{x: all}},
	{{x: 2}, {x: 4}},
	{{x: 1}, {x: 2}, {x: 4}},
	{{x: 3}},
	{{x: all, team: true}},
	{{x: all, exclude: true}},
	{{x: 6, filter: true}},
	{{x: all, skip: true}},
	{{x: all, types: "md"}},
	{{x: 3}, {x: 4, topic: 1}},
	{{x: 2, verify: true}, {x: 5}},
	{{x: 3}, {x: 4}},
	{{x: 2}, {x: 5}},
	{{x: 3, filter: true}, {x: 4, filter: true}},
	{{x: all, team: true, filter: true}},
}

// simplest has the indexes of presets in the order in which they are tried to simplify a failure.
var simplest = []int{0, 3, 5, 4, 7, 8, 6, 14, 1, 11, 12, 2, 9, 10, 13}

// run runs a trace in a bubble, and returns the broken invariants.
func run(t *testing.T, tr *trace, out io.Writer) (problems []problem) {
	tr.applied = map[int]bool{}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(&tr.setup, out)
		for i, in := range tr.inputs {
			if w.give(in) {
				tr.applied[i] = true
			}
			if len(w.problems) > 0 || tr.most > 0 && len(tr.applied) == tr.most {
				break
			}
		}
		if len(w.problems) == 0 {
			w.finish()
		}
		w.end()
		problems = w.problems
	})
	return problems
}

func newWorld(s *setup, out io.Writer) *world {
	c := newCluster()
	c.crowd(s.crowd)
	w := &world{cluster: c, out: out, logger: zap.NewNop(), restored: -1, disturbed: -1, disk: newDisk(s.buffer)}
	if out != nil {
		w.logger = zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "m", LevelKey: "l", EncodeLevel: zapcore.CapitalLevelEncoder}),
			zapcore.AddSync(prefixed{out}), zap.DebugLevel))
	}
	w.api = &server{cluster: c, pageSize: s.page, held: map[string]int{}, sent: map[string]int{}, refusals: map[string]refusal{}, burst: 1 + s.crowd, most: -1, notation: s.notation}
	for i, ss := range s.sinks {
		sw := &sinkWorld{name: fmt.Sprintf("s%d", i), mode: ss.mode, mayRepeat: ss.mode == intents, dead: ss.dead, window: ss.window, bus: newBus(), store: newMemory(), config: presets[ss.preset].named()}
		if s.first != nil {
			sw.config = s.first.named()
		}
		sw.previous = sw.config
		w.sinks = append(w.sinks, sw)
		w.judges = append(w.judges, newJudge(w, sw))
		sw.bus.written = func(message) {}
		w.trace("sink %s: %s %s", sw.name, sw.mode, sw.config)
	}
	if s.standby {
		w.board, w.spare = &board{}, newDisk(s.buffer)
	}
	w.start()
	w.pump()
	return w
}

// disturbs reports whether an input may open a gap, and is neither an edit nor a kill.
func disturbs(name string) bool {
	return ops[name].causes && ops[name].kind != "edit" && name != "kill"
}

type prefixed struct{ w io.Writer }

func (p prefixed) Write(b []byte) (int, error) {
	fmt.Fprintf(p.w, "        | %s", b)
	return len(b), nil
}

// apart is the time between two inputs. It is an odd number, so that timers of whole seconds that different inputs
// have started do not end at the same time. Otherwise the scheduler would decide which one comes first.
const apart = 1_703 * time.Nanosecond

// give applies an input and waits until everything is idle.
func (w *world) give(in input) bool {
	op := ops[in.op]
	time.Sleep(apart)
	w.step++
	process, before := w.process, []received{}
	for _, j := range w.judges {
		before = append(before, j.received())
	}
	if !op.apply(w, in.args) {
		w.step--
		return false
	}
	w.trace("%d > %s", w.step, in)
	for i, j := range w.judges {
		if op.kind == "time" && process != nil && w.process == process {
			j.flushed = before[i] // what was sent before is in the disk buffer now
		}
	}
	w.obstructed = w.obstructed || op.obstructs
	if op.causes {
		w.causes = append(w.causes, w.step)
	}
	if disturbs(in.op) || w.disk != nil && w.disk.fails.Load() != nothingFails {
		w.disturbed = w.step
	}
	w.pump()
	return true
}

// pump answers requests and writes frames, one at a time, until nothing is left to do without letting time pass.
func (w *world) pump() {
	w.rollback()
	for {
		synctest.Wait()
		if !w.api.step() {
			break
		}
	}
	w.crashed()
	for _, j := range w.judges {
		j.judgeNew()
		j.records()
	}
	if w.process != nil && !w.process.dead() {
		if err := w.process.endedBy(); err != nil {
			w.problems = append(w.problems, problem{endedAlone, fmt.Sprintf("step %d: the bridge ended: %v", w.step, err)})
			w.process = nil
		}
	}
	if w.standby != nil {
		if err := w.standby.endedBy(); err != nil {
			w.problems = append(w.problems, problem{endedAlone, fmt.Sprintf("step %d: the standby ended: %v", w.step, err)})
			w.standby = nil
		}
	}
}

// sleep lets time pass. It begins with small steps, because the first retries follow each other quickly.
func (w *world) sleep(d time.Duration) {
	for passed := time.Duration(0); passed < d; {
		beat := 5 * time.Second
		if passed < 15*time.Second {
			beat = time.Second
		}
		time.Sleep(beat)
		w.pump()
		for _, s := range w.sinks {
			s.store.sync()
		}
		for _, j := range w.judges {
			asking := w.process != nil && !j.s.bus.stopped && !j.s.bus.blocked
			j.asked = j.asked || asking && passed >= 15*time.Second
			j.stored = j.stored || asking && passed >= 2*time.Minute && !w.api.down && w.api.denied == 0 && len(w.api.held) == 0
		}
		if passed += beat; passed%time.Minute == 0 {
			w.api.bookmarks()
			w.pump()
		}
	}
	for _, j := range w.judges {
		waits := w.process == nil && w.disk != nil // what was recorded before waits for the next process
		if !j.s.bus.stopped && !j.s.bus.blocked && !waits {
			j.rested = w.step
		}
	}
}

// crashed ends a process that was killed by an armed crash.
func (w *world) crashed() {
	if w.process == nil || !w.process.dead() {
		return
	}
	w.trace("the bridge was killed")
	w.bury()
}

// bury waits for the remaining goroutines of a killed process.
func (w *world) bury() {
	p := w.process
	w.process = nil
	p.kill()
	w.disk.crash(100)
	w.causes = append(w.causes, w.step)
	for _, j := range w.judges {
		j.crashes = w.step
		j.forgets()
	}
	w.api.mu.Lock()
	w.api.dead = true
	w.api.mu.Unlock()
	if w.standby != nil {
		w.api.interrupt()
	}
	w.api.drop()
	w.api.cut(io.EOF)
	for _, s := range w.sinks {
		s.bus.set(func(*bus) {})
	}
	p.stop()
	<-p.done
	for _, s := range w.sinks {
		s.store.crash()
	}
	w.api.mu.Lock()
	w.api.dead, w.api.waiting, w.api.watches, w.api.refusals = false, nil, nil, map[string]refusal{}
	w.api.mu.Unlock()
}

func (w *world) start() bool {
	if w.process != nil {
		return false
	}
	if w.standby != nil {
		w.process = w.promote()
	} else {
		p, err := start(w.api, w.sinks, w.disk, w.board, w.logger)
		if err != nil {
			panic(err)
		}
		w.process = p
		if w.board != nil {
			p.candidate.grant()
		}
	}
	if w.board != nil {
		w.standBy()
	}
	for i, s := range w.sinks {
		w.judges[i].inEffect(s.config)
		if s.reset {
			s.reset = false
			w.judges[i].resets = w.step
		}
	}
	return true
}

// halt stops the bridge gracefully.
func (w *world) halt() bool {
	if w.process == nil {
		return false
	}
	p := w.process
	p.stop()
	for range 30 {
		w.pumpUntil(p)
		select {
		case <-p.done:
			w.process = nil
			for _, j := range w.judges {
				j.forgets()
			}
			return true
		default:
		}
		time.Sleep(time.Second)
	}
	return false
}

// rollback records whether the bridge can find out about a restore.
func (w *world) rollback() {
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	for _, j := range w.judges {
		j.follow(w.cluster.now().rv)
	}
}

// pumpUntil is pump for a process that is stopping.
func (w *world) pumpUntil(p *process) {
	w.process = nil
	w.pump()
	w.process = p
}

// finish removes all faults, and checks the final copies of consumers.
func (w *world) finish() {
	time.Sleep(apart)
	w.step++
	w.trace("%d > everything heals", w.step)
	w.causes = append(w.causes, w.step)
	w.heal()
	w.start()
	w.pump()
	w.sleep(4 * time.Minute)
	w.caughtUp(drained)
	w.counted()
	if len(w.problems) == 0 {
		w.restart()
	}
	if len(w.problems) > 0 {
		return
	}
	time.Sleep(apart)
	w.step++
	w.trace("%d > the API server forgets: everything is listed again", w.step)
	w.causes = append(w.causes, w.step)
	w.locked(func(c *cluster) bool { return c.next() > 0 }) // a watch from the newest resourceVersion would continue
	w.forget()
	for _, j := range w.judges {
		clear(j.rollback.overtaken)
	}
	w.api.cut(io.EOF)
	w.pump()
	w.sleep(3 * time.Minute)
	w.caughtUp(drained)
	for _, j := range w.judges {
		if len(w.problems) == 0 {
			j.agree()
		}
	}
}

// restart stops the bridge and starts it again while nothing is waiting. The bridge then has nothing to publish,
// unless it notices only now that etcd was restored.
func (w *world) restart() {
	time.Sleep(apart)
	w.step++
	w.trace("%d > the bridge is stopped and started again", w.step)
	if !w.halt() {
		w.problems = append(w.problems, problem{atRest, fmt.Sprintf("step %d: the bridge does not stop", w.step)})
		return
	}
	var before []map[string][]byte // one for each sink
	for _, s := range w.sinks {
		before = append(before, s.store.settled())
	}
	w.start()
	w.pump()
	w.sleep(time.Minute)
	for i, j := range w.judges {
		j.rests(before[i])
	}
}

func (w *world) caughtUp(invariant string) {
	for _, j := range w.judges {
		j.caughtUp(invariant)
	}
}

// counted checks the number of objects in the status: while nothing is waiting, it equals that of the inventory.
func (w *world) counted() {
	report := w.process.bridge.Status()
	for _, j := range w.judges {
		i := slices.IndexFunc(report.Sinks, func(s bridgestatus.Sink) bool { return s.Name == j.s.name })
		if i < 0 {
			j.wrong(counts, "the status does not have it")
			continue
		}
		store := &lifeStore{memory: j.s.store}
		state, err := durable.Load(store)
		if err != nil {
			j.wrong(counts, "%v", err)
			continue
		}
		if len(state.Drafts) > 0 {
			j.wrong(settled, "the checkpoint has the drafts %v", state.Drafts)
		}
		for slot, list := range state.Intents {
			for _, i := range list { // a watch need not see the object again: then the next list settles the intent
				if i.Run < state.Records[slot.Collection].Run {
					j.wrong(settled, "the checkpoint has the intent %v of %v, and a list has settled it", i, slot)
				}
			}
		}
		for _, c := range report.Sinks[i].Collections {
			stored, err := durable.Count(store, c.ID, state.Records[c.ID].Incarnation)
			switch {
			case err != nil:
				j.wrong(counts, "%v", err)
			case c.Objects == nil && c.State == bridgestatus.Watching:
				j.wrong(counts, "the status has no number of objects of %s", c.ID)
			case c.Objects != nil && *c.Objects != stored:
				j.wrong(counts, "the status has %d objects of %s, and the inventory %d", *c.Objects, c.ID, stored)
			}
		}
	}
}

func (w *world) heal() {
	w.serveGroup(true)
	w.api.mu.Lock()
	w.api.down, w.api.denied, w.api.brief = false, 0, 0
	w.api.held = map[string]int{}
	w.api.mu.Unlock()
	if w.disk != nil {
		w.disk.fails.Store(nothingFails)
	}
	for _, s := range w.sinks {
		s.bus.set(func(b *bus) {
			b.stopped, b.blocked, b.refused, b.limit, b.armed = false, false, map[string]int{}, 0, armed{}
		})
	}
}

func (w *world) forget() {
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	w.api.forgotten = w.cluster.now().rv
}

// end stops all goroutines, so that the bubble can be closed.
func (w *world) end() {
	if w.process != nil {
		w.heal()
		w.bury()
	}
	if w.standby != nil {
		w.endStandby()
	}
	w.api.cut(io.EOF)
	synctest.Wait()
}

// locked changes the cluster while it is locked.
func (w *world) locked(f func(c *cluster) bool) bool {
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	return f(w.cluster)
}

func describe(problems []problem) string {
	var lines []string
	for _, p := range problems {
		lines = append(lines, "["+p.invariant+"] "+p.text)
	}
	return strings.Join(lines, "\n")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
