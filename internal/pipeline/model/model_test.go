package model

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var (
	seed   = flag.Uint64("model.seed", 1, "the seed of the random runs")
	runs   = flag.Int("model.runs", 50, "how many random runs")
	from   = flag.Int("model.from", 0, "the first of the random runs")
	replay = flag.String("model.trace", "", "a file with a trace: only that is run, and told step by step")
	learn  = flag.String("model.learn", "", "a directory for the minimised traces of new failures")
)

// TestTrace runs one trace and prints what happens.
func TestTrace(t *testing.T) {
	if *replay == "" {
		t.Skip("no -model.trace")
	}
	text, err := os.ReadFile(*replay)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := parseTrace(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if p := run(t, tr, os.Stdout); len(p) > 0 {
		t.Error(describe(p))
	}
}

// TestRandom runs random traces. A failure counts as known if its minimised trace breaks
// the invariant of one of testdata/known and has at least its kinds of input.
func TestRandom(t *testing.T) {
	var known []failure
	for _, file := range knownFiles(t) {
		tr, invariant := knownTrace(t, file)
		known = append(known, failure{invariant: invariant, small: tr})
	}
	first, count := map[string]*failure{}, map[string]int{}
	for n := *from; n < *from+*runs; n++ {
		if *failsOnly {
			if len(run(t, draw(*seed, uint64(n)), nil)) > 0 {
				fmt.Printf("failing run %d\n", n)
			}
			continue
		}
		f := try(t, draw(*seed, uint64(n)))
		if f == nil {
			continue
		}
		f.run = n
		s := signature(f.invariant, f.small)
		if count[s]++; first[s] == nil || len(f.small.inputs) < len(first[s].small.inputs) && first[s].sound {
			first[s] = f
		}
	}
	for _, s := range sortedKeys(first) {
		f := first[s]
		t.Logf("%4d  %s: first in run %d, %d inputs", count[s], s, f.run, len(f.small.inputs))
		if slices.ContainsFunc(known, f.is) {
			continue
		}
		var steps strings.Builder
		problems := run(t, f.small, &steps)
		if *learn != "" {
			name := filepath.Join(*learn, strings.NewReplacer(" ", "-", ":", "").Replace(s)+".trace")
			text := fmt.Sprintf("# invariant: %s\n# run %d of seed %d\n%s", f.invariant, f.run, *seed, f.small)
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Error(err)
			}
		}
		t.Errorf("run %d: %s (fails again: %t)\n%s\n%s%s", f.run, s, f.sound, describe(problems), f.small, steps.String())
	}
}

// failure is a random run that failed, and what is left of it.
type failure struct {
	run       int
	invariant string
	small     *trace
	sound     bool // the minimised trace fails again
}

// is reports whether a failure may be a known one.
func (f *failure) is(known failure) bool {
	has := strings.Fields(f.small.kinds())
	needs := strings.Fields(known.small.kinds())
	return sameAs(f.invariant) == sameAs(known.invariant) && (len(needs) > 0 || len(has) == 0) &&
		!slices.ContainsFunc(needs, func(kind string) bool { return !slices.Contains(has, kind) })
}

// try runs a trace, and minimises it if it fails.
func try(t *testing.T, tr *trace) *failure {
	problems := run(t, tr, nil)
	if len(problems) == 0 {
		return nil
	}
	f := &failure{invariant: problems[0].invariant}
	fails := func(tr *trace) bool {
		p := run(t, tr, nil)
		return len(p) > 0 && p[0].invariant == f.invariant
	}
	f.small = tr.cut()
	if fails(f.small) {
		f.small = minimise(f.small, fails)
	}
	f.sound = fails(f.small)
	return f
}

func signature(invariant string, tr *trace) string { return sameAs(invariant) + ": " + tr.kinds() }

// sameAs is the invariant that a failure counts as: whether a copy is found to be wrong
// while something is in the way of others, or at the end, is one thing.
func sameAs(invariant string) string {
	if invariant == delayed {
		return drained
	}
	return invariant
}

func knownFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/known/*.trace")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestKnown runs the traces of defects that are not yet fixed. Each must fail with its
// invariant: one that no longer fails leaves the list.
func TestKnown(t *testing.T) {
	for _, file := range knownFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".trace"), func(t *testing.T) {
			tr, invariant := knownTrace(t, file)
			problems := run(t, tr, nil)
			switch {
			case len(problems) == 0:
				t.Errorf("it no longer fails (%s): remove it from the list", invariant)
			case problems[0].invariant != invariant:
				t.Errorf("it fails with %q, not %q:\n%s", problems[0].invariant, invariant, describe(problems))
			}
		})
	}
}

// knownTrace reads a trace and the invariant that it breaks.
func knownTrace(t *testing.T, file string) (*trace, string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(text), "\n")
	invariant, ok := strings.CutPrefix(head, "# invariant: ")
	if !ok {
		t.Fatalf("%s begins with %q, not with its invariant", file, head)
	}
	tr, err := parseTrace(string(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return tr, invariant
}
