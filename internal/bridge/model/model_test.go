package model

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

var (
	seed   = flag.Uint64("model.seed", 1, "the seed of the random runs")
	runs   = flag.Int("model.runs", 50, "how many random runs; with -short a fifth of them")
	from   = flag.Int("model.from", 0, "the first of the random runs")
	replay = flag.String("model.trace", "", "files with traces (a pattern), which TestTraces runs instead of testdata/traces and prints step by step")
	learn  = flag.String("model.learn", "", "a directory for the minimised traces of new failures")
	skip   = flag.String("model.skip", "", "a file with numbers of random runs to leave out")
	abc    = flag.Bool("model.letters", false, "the random runs have resourceVersions that are no numbers, and no restores")
	first  = flag.Bool("model.first", false, "stop at the first failure")
	fails  = flag.Bool("model.fails", false, "print only the numbers of the random runs that fail")
)

// TestMain lets one goroutine run at a time. With several, the scheduler would decide which events are in one batch.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}

// TestRandom runs random traces. None may fail.
func TestRandom(t *testing.T) {
	if *fails {
		printFailing(t)
		return
	}
	random(t, drawn)
}

// TestRandomWithBuffer runs random traces in which the bridge has a disk buffer, and buses are away for long.
func TestRandomWithBuffer(t *testing.T) {
	random(t, func(n int) *trace {
		tr := drawn(n)
		tr.setup.buffer = diskSize(1 + n%2)
		if n%4 == 0 { // nothing else disturbs, so that no frame may be skipped: see everyFrame
			tr.inputs = slices.DeleteFunc(tr.inputs, func(in input) bool { return disturbs(in.op) })
		}
		addOutages(tr, rand.New(rand.NewPCG(*seed, uint64(n))))
		return tr
	})
}

// TestRandomWithStandby runs such traces with a standby, which takes over when the bridge is to start again, and buffers until then. The dead
// bridge's disk is that of the next standby.
func TestRandomWithStandby(t *testing.T) {
	random(t, func(n int) *trace {
		tr := drawn(n)
		tr.setup.buffer, tr.setup.standby = diskSize(1+n%2), true
		addOutages(tr, rand.New(rand.NewPCG(*seed, uint64(n))))
		return tr
	})
}

// TestRandomWithDelivery runs such traces in which the delivery of sinks changes between at least once and exactly once, mostly after a crash.
func TestRandomWithDelivery(t *testing.T) {
	random(t, func(n int) *trace {
		tr, r := drawn(n), rand.New(rand.NewPCG(*seed, uint64(n)))
		for i := range tr.setup.sinks {
			tr.setup.sinks[i].mode = []delivery{transaction, intents}[r.IntN(2)]
		}
		for range 1 + r.IntN(3) {
			sink := r.IntN(2)
			end := []input{{"second", nil}, {"crash-after-commit", []int{sink, r.IntN(2)}}, {"crash-after-write", []int{sink, 0}}, {"refuse-route", []int{sink, r.IntN(2), 0}}}[r.IntN(4)]
			doubt := []input{{"entry-added", []int{sink, r.IntN(7)}}, {"forget", nil}, {"resync", []int{sink}}, {"put", []int{r.IntN(6), r.IntN(3), 1, 0}}}[r.IntN(4)]
			stop := []input{{"kill", nil}, {"stop", nil}}[r.IntN(2)]
			edit := []input{end, doubt, {"second", nil}, stop, {"delivery", []int{sink}}, {"heal-routes", []int{sink}}, {"start", nil}}
			tr.inputs = slices.Insert(tr.inputs, r.IntN(min(tr.most, len(tr.inputs)+1)), edit...)
			tr.most += len(edit)
		}
		return tr
	})
}

func random(t *testing.T, drawn func(n int) *trace) {
	t.Helper()
	left, found, count := leftOut(t), map[string]*failure{}, map[string]int{}
	end := *from + *runs
	if testing.Short() {
		end = *from + *runs/5
	}
	for n := *from; n < end; n++ {
		if left[fmt.Sprint(n)] {
			continue
		}
		if *first {
			fmt.Printf("run %d\n", n) // for readers of the output if the process ends
		}
		f := try(t, drawn(n))
		if f == nil {
			continue
		}
		f.run = n
		if *first && f.sound {
			fmt.Printf("failed: run %d: %s\n", n, signature(f.invariant, f.small))
			report(t, f)
			return
		}
		s := signature(f.invariant, f.small)
		if count[s]++; found[s] == nil || len(f.small.inputs) < len(found[s].small.inputs) && found[s].sound {
			found[s] = f
		}
	}
	for _, s := range sortedKeys(found) {
		f := found[s]
		t.Logf("%4d  %s: run %d, %d inputs", count[s], s, f.run, len(f.small.inputs))
		report(t, f)
	}
}

// drawn returns the nth random run that the flags request.
func drawn(n int) *trace {
	tr := draw(*seed, uint64(n))
	if *abc {
		tr.setup.notation = letters
		tr.inputs = slices.DeleteFunc(tr.inputs, func(in input) bool { return in.op == "restore" })
	}
	return tr
}

// addOutages adds outages of buses after which sinks are behind, and what happens meanwhile.
func addOutages(t *trace, r *rand.Rand) {
	for range 1 + r.IntN(3) {
		sink := r.IntN(2)
		outage := []input{{"bus-stops", []int{sink}}, {"put", []int{r.IntN(6), r.IntN(3), 1, 0}}, {"second", nil}, {"second", nil}, {"second", nil}}
		for range r.IntN(7) {
			outage = append(outage, []input{
				{"put", []int{r.IntN(6), r.IntN(3), 1, 0}},
				{"delete", []int{r.IntN(6)}},
				{"kill", nil},
				{"start", nil},
				{"second", nil},
				{"forget", nil},
				{"sleep", []int{0}},
				{"relabel", []int{r.IntN(3), r.IntN(3)}},
				{"bus-heals", []int{sink}},
				{"disk", []int{r.IntN(3)}},
				{"power-failure", []int{r.IntN(3)}},
				{"edit", []int{sink, r.IntN(3), r.IntN(2), r.IntN(8)}}, // the selection or the filter
				{"edit", []int{sink, r.IntN(3), r.IntN(2), r.IntN(8)}},
				{"edit", []int{sink, r.IntN(3), 4, r.IntN(2)}}, // excludeNamespaces
				{"edit-back", []int{sink}},
				{"start-back", []int{sink}},
			}[r.IntN(16)])
		}
		if r.IntN(2) == 0 {
			outage = append([]input{{"sleep", []int{0}}}, outage...)
			outage = append(outage, editedBehind(sink, r)...)
		}
		t.inputs = slices.Insert(t.inputs, r.IntN(min(t.most, len(t.inputs)+1)), outage...)
		t.most += len(outage)
	}
}

// editedBehind returns an edit of the selection or the filter of a sink that is behind, with or without a restart, and the end of the outage.
func editedBehind(sink int, r *rand.Rand) []input {
	put := func() input { return input{"put", []int{r.IntN(6), r.IntN(3), r.IntN(2), 0}} }
	inputs := []input{put(), put()}
	restart := []input{{"kill", nil}, {"stop", nil}, {"second", nil}}[r.IntN(3)]
	edit := input{"edit", []int{sink, r.IntN(2), r.IntN(2), r.IntN(8)}}
	if r.IntN(2) == 0 {
		inputs = append(inputs, edit, put(), restart)
	} else {
		inputs = append(inputs, restart, edit)
	}
	return append(inputs, input{"start", nil}, put(), input{"second", nil}, input{"bus-heals", []int{sink}}, input{"sleep", []int{0}})
}

// printFailing prints the numbers of the random runs that fail.
func printFailing(t *testing.T) {
	for n := *from; n < *from+*runs; n++ {
		if len(run(t, drawn(n), nil)) > 0 {
			fmt.Printf("failing run %d\n", n)
		}
	}
}

// leftOut returns the numbers of the runs to leave out.
func leftOut(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	if *skip == "" {
		return out
	}
	text, err := os.ReadFile(*skip)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range strings.Fields(string(text)) {
		out[n] = true
	}
	return out
}

// report reports a failure.
func report(t *testing.T, f *failure) {
	t.Helper()
	var steps strings.Builder
	problems := run(t, f.small, &steps)
	if len(problems) == 0 { // the failure depends on chance: only the problems of the first attempt are known
		problems = f.problems
	}
	s := signature(f.invariant, f.small)
	if *learn != "" {
		name := filepath.Join(*learn, strings.NewReplacer(" ", "-", ":", "").Replace(s)+".trace")
		text := fmt.Sprintf("# invariant: %s\n# run %d of seed %d\n%s", f.invariant, f.run, *seed, f.small)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Error(err)
		}
	}
	t.Errorf("run %d: %s (fails again: %t)\n%s\n%s%s", f.run, s, f.sound, describe(problems), f.small, steps.String())
}

// failure is a random run that failed, with its minimised trace.
type failure struct {
	run       int
	problems  []problem // of the whole trace
	invariant string
	small     *trace
	sound     bool // the minimised trace fails again
}

// try runs a trace, and minimises it if it fails.
func try(t *testing.T, tr *trace) *failure {
	problems := run(t, tr, nil)
	if len(problems) == 0 {
		return nil
	}
	f := &failure{problems: problems, invariant: problems[0].invariant}
	fails := func(tr *trace) bool {
		p := run(t, tr, nil)
		return len(p) > 0 && p[0].invariant == f.invariant
	}
	f.small = tr.cut()
	if fails(f.small) {
		f.small = minimise(f.small, fails)
	}
	f.sound = true
	for range 3 {
		f.sound = f.sound && fails(f.small)
	}
	return f
}

func signature(invariant string, tr *trace) string { return sameAs(invariant) + ": " + tr.kinds() }

// sameAs returns the invariant that a failure counts as. A wrong copy is the same failure at the end as while
// something hinders other collections.
func sameAs(invariant string) string {
	if invariant == delayed {
		return drained
	}
	return invariant
}

func traceFiles(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("no file matches %s", pattern)
	}
	return files
}

// TestTraces runs traces that once broke an invariant, or that random runs do not draw. A trace may begin with an
// invariant that it breaks.
func TestTraces(t *testing.T) {
	pattern, steps := "testdata/*/*.trace", io.Writer(nil)
	if *replay != "" {
		pattern, steps = *replay, os.Stdout
	}
	for _, file := range traceFiles(t, pattern) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".trace"), func(t *testing.T) {
			tr, invariant := readTrace(t, file)
			problems := run(t, tr, steps)
			switch {
			case outcome(problems) != invariant:
				t.Errorf("the first invariant that it breaks is %q, not %q:\n%s", outcome(problems), invariant, describe(problems))
			case steps != nil:
				t.Log(describe(problems))
			}
		})
	}
}

// TestSameOutcome runs random traces twice. If the outcomes differed, a failure could not be minimised, and a known
// defect would look like another one.
func TestSameOutcome(t *testing.T) {
	for n := range uint64(40) {
		if a, b := run(t, draw(2, n), nil), run(t, draw(2, n), nil); outcome(a) != outcome(b) {
			t.Errorf("run %d of seed 2: %q first, then %q", n, outcome(a), outcome(b))
		}
	}
}

// outcome returns the invariant that is broken first, or "" if none is.
func outcome(problems []problem) string {
	if len(problems) == 0 {
		return ""
	}
	return problems[0].invariant
}

// readTrace reads a trace and the invariant that it breaks, or "" if it names none.
func readTrace(t *testing.T, file string) (*trace, string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(text), "\n")
	invariant, _ := strings.CutPrefix(head, "# invariant: ")
	if invariant == head {
		invariant = ""
	}
	tr, err := parseTrace(string(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return tr, invariant
}
