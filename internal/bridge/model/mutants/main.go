// Mutants reports which of the changes in testdata/mutants.txt the model of the pipeline
// finds: make mutants. It makes one change at a time and builds and runs the model with it.
// A change is found if a random run fails with it that passes without it, or if a trace of testdata/traces does.
// A change that the list says makes no difference must not be found.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	pkg  = "internal/bridge/model"
	list = pkg + "/testdata/mutants.txt"
)

// options are the flags.
type options struct {
	seed uint64
	runs int
	name string
}

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "the seed of the random runs")
	flag.IntVar(&o.runs, "runs", 1000, "how many random runs")
	flag.StringVar(&o.name, "name", "", "only the changes whose description has this")
	flag.Parse()
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run is the whole program, in the root of the repository.
func (o options) run() error {
	mutants, err := read(o.name)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out, err := o.goTest("", "^TestRandom$", "-model.fails")
	if err != nil {
		return fmt.Errorf("without a change: %w\n%s", err, out)
	}
	failing := after(out, "failing run ")
	skip := filepath.Join(dir, "failing")
	if err := os.WriteFile(skip, []byte(strings.Join(failing, "\n")), 0o600); err != nil {
		return err
	}
	fmt.Printf("without a change, %d of %d runs fail\n", len(failing), o.runs)
	wrong := 0
	for _, m := range mutants {
		overlay, err := m.overlay(dir)
		if err != nil {
			return fmt.Errorf("%s: %w", m.what, err)
		}
		out, err := o.goTest(overlay, "^TestTraces$|^TestRandom$", "-model.first", "-model.skip="+skip)
		if strings.Contains(out, "[build failed]") {
			return fmt.Errorf("%s: the change does not compile:\n%s", m.what, out)
		}
		how, found := o.verdict(out, err != nil)
		switch {
		case found && m.same != "":
			wrong++
			how += "; BUT LISTED AS NO DIFFERENCE"
		case !found && m.same == "":
			wrong++
			how = "NOT FOUND"
		case !found:
			how = "no difference: " + m.same
		}
		fmt.Printf("%s (%s): %s\n", m.what, m.file, how)
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d changes are not found, or found and listed as no difference", wrong, len(mutants))
	}
	return nil
}

// verdict reads from a test's output what has found a change.
func (o options) verdict(out string, failed bool) (how string, found bool) {
	random, fixed, begun := after(out, "failed: "), after(out, "--- FAIL: TestTraces/"), after(out, "run ")
	switch {
	case len(random) > 0:
		return fmt.Sprintf("found: %s; fixed traces that fail: %d", random[0], len(fixed)), true
	case failed && len(begun) > 0 && begun[len(begun)-1] != fmt.Sprint(o.runs-1):
		return fmt.Sprintf("found: the process ends in run %s; fixed traces that fail: %d", begun[len(begun)-1], len(fixed)), true
	case len(fixed) > 0:
		return "found by fixed traces only: " + strings.Join(fixed, ", "), true
	}
	return "", false
}

// goTest runs tests of the model, with the change that an overlay makes.
func (o options) goTest(overlay, tests string, flags ...string) (string, error) {
	args := []string{"test", "-count=1", "-run=" + tests, "-timeout=20m", "-v", "-vet=off"}
	if overlay != "" {
		args = append(args, "-overlay="+overlay)
	}
	args = append(args, "./"+pkg, fmt.Sprintf("-model.runs=%d", o.runs), fmt.Sprintf("-model.seed=%d", o.seed))
	out, err := exec.Command("go", append(args, flags...)...).CombinedOutput() //nolint:gosec // the arguments are this program's own
	return string(out), err
}

// after returns what follows a prefix in the lines of a text.
func after(text, prefix string) (out []string) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), prefix); ok {
			out = append(out, rest)
		}
	}
	return out
}

// mutant is a change to the source.
type mutant struct {
	what, file string
	same       string // why it makes no difference; "": it does
	old, with  string
}

// read reads the changes whose description has a name.
func read(name string) (mutants []mutant, err error) {
	text, err := os.ReadFile(list)
	if err != nil {
		return nil, err
	}
	var all []mutant
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if key == "what:" {
			all = append(all, mutant{what: value})
			continue
		}
		if len(all) == 0 {
			continue
		}
		switch m := &all[len(all)-1]; key {
		case "file:":
			m.file = value
		case "same:":
			m.same = value
		case "-":
			m.old += value + "\n"
		case "+":
			m.with += value + "\n"
		}
	}
	for _, m := range all {
		if strings.Contains(m.what, name) {
			mutants = append(mutants, m)
		}
	}
	if len(mutants) == 0 {
		return nil, errors.New(list + ": no change has this in its description: " + name)
	}
	return mutants, nil
}

// overlay makes the change in a copy of the file, for go's -overlay.
func (m *mutant) overlay(dir string) (string, error) {
	file, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return "", fmt.Errorf("%s has this %d times, not once:\n%s", m.file, n, m.old)
	}
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), m.old, m.with, 1)), 0o600); err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, replace, 0o600)
}
