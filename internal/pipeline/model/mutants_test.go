package model

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var (
	mutants    = flag.Bool("model.mutants", false, "run TestMutants, which builds the package once for each change in testdata/mutants.txt")
	mutantName = flag.String("model.mutant", "", "only the changes whose description has this")
	failsOnly  = flag.Bool("model.fails", false, "print only the numbers of the random runs that fail")
)

// mutant is a change to the source.
type mutant struct {
	what, file string
	old, with  string
}

// TestMutants reports which of the changes in testdata/mutants.txt the model finds. One is
// found if a random run fails with it that passes without it, and the minimised failure
// is not a known one; or if a fixed trace of testdata/known has another outcome.
func TestMutants(t *testing.T) {
	if !*mutants { // each takes a build
		return
	}
	var list []mutant
	for _, m := range readMutants(t) {
		if strings.Contains(m.what, *mutantName) {
			list = append(list, m)
		}
	}
	skip := filepath.Join(t.TempDir(), "failing")
	out, err := goTest(t, nil, "^TestRandom$", "-model.fails")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	before := after(out, "failing run ")
	if err := os.WriteFile(skip, []byte(strings.Join(before, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Logf("without a change, %d of %d runs fail", len(before), *runs)
	for _, m := range list {
		t.Run(m.what, func(t *testing.T) {
			out, err := goTest(t, &m, "^TestKnown$|^TestRandom$", "-model.first", "-model.skip="+skip)
			random, fixed := after(out, "not known: "), after(out, "--- FAIL: TestKnown/")
			last := after(out, "run ")
			switch {
			case strings.Contains(out, "[build failed]"):
				t.Fatalf("the change does not compile:\n%s", out)
			case len(random) > 0:
				t.Logf("found: %s; fixed traces that change: %d", random[0], len(fixed))
			case err != nil && len(last) > 0 && last[len(last)-1] != fmt.Sprint(*runs-1):
				t.Logf("found: the process ends in run %s; fixed traces that change: %d", last[len(last)-1], len(fixed))
			case len(fixed) > 0:
				t.Logf("found by fixed traces only: %s", strings.Join(fixed, ", "))
			default:
				t.Errorf("not found: %s (%s)", m.what, m.file)
			}
		})
	}
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

func readMutants(t *testing.T) (list []mutant) {
	t.Helper()
	text, err := os.ReadFile("testdata/mutants.txt")
	if err != nil {
		t.Fatal(err)
	}
	var m *mutant
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		key, value, _ := strings.Cut(line, " ")
		switch key {
		case "what:":
			list = append(list, mutant{what: value})
			m = &list[len(list)-1]
		case "file:":
			m.file = value
		case "-":
			m.old += value + "\n"
		case "+":
			m.with += value + "\n"
		}
	}
	return list
}

// goTest runs tests of this package, with a change to the source.
func goTest(t *testing.T, m *mutant, tests string, flags ...string) (string, error) {
	t.Helper()
	args := []string{"test", "-count=1", "-run=" + tests, "-timeout=20m", "-v", "-vet=off"}
	if m != nil {
		args = append(args, "-overlay="+m.overlay(t))
	}
	args = append(args, ".", fmt.Sprintf("-model.runs=%d", *runs), fmt.Sprintf("-model.seed=%d", *seed))
	out, err := exec.Command("go", append(args, flags...)...).CombinedOutput()
	return string(out), err
}

// overlay makes the change in a copy of the file, for go's -overlay.
func (m *mutant) overlay(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, m.file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		t.Fatalf("%s has this %d times, not once:\n%s", m.file, n, m.old)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), m.old, m.with, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}
