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
	mutants   = flag.Bool("model.mutants", false, "run TestMutants, which builds the package once for each change in testdata/mutants.txt")
	failsOnly = flag.Bool("model.fails", false, "print only the numbers of the random runs that fail")
)

// mutant is a change to the source.
type mutant struct {
	what, file string
	old, with  string
}

// TestMutants reports which of the changes in testdata/mutants.txt the random runs
// find: those with which at least two runs fail that pass without them.
func TestMutants(t *testing.T) {
	if !*mutants {
		t.Skip("takes a build for each change: make mutants")
	}
	list := readMutants(t)
	before := failing(t, nil)
	t.Logf("without a change, %d of %d runs fail", len(before), *runs)
	for _, m := range list {
		t.Run(m.what, func(t *testing.T) {
			var fresh []string
			for n := range failing(t, &m) {
				if !before[n] {
					fresh = append(fresh, n)
				}
			}
			t.Logf("%d runs fail that passed before", len(fresh))
			if len(fresh) < 2 {
				t.Errorf("not found: %s (%s)", m.what, m.file)
			}
		})
	}
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

// failing returns the numbers of the random runs that fail with a change, by number. A
// run that ends the process counts as a failure of every run.
func failing(t *testing.T, m *mutant) map[string]bool {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"test", "-count=1", "-run=^TestRandom$", "-timeout=20m", "-v"}
	if m != nil {
		file := filepath.Join(root, m.file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(text), m.old) != 1 {
			t.Fatalf("%s has this %d times, not once:\n%s", m.file, strings.Count(string(text), m.old), m.old)
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
		args = append(args, "-vet=off", "-overlay="+overlay)
	}
	args = append(args, ".", "-model.fails", fmt.Sprintf("-model.runs=%d", *runs), fmt.Sprintf("-model.seed=%d", *seed))
	out, err := exec.Command("go", args...).CombinedOutput()
	found := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "failing run "); ok {
			found[n] = true
		}
	}
	if err != nil && strings.Contains(string(out), "[build failed]") {
		t.Fatalf("the change does not compile:\n%s", out)
	}
	if err != nil {
		for n := range *runs {
			found[fmt.Sprint(n)] = true
		}
	}
	return found
}
