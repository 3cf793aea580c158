package apiserver

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// childVariable is set in the process that runs the suites.
const childVariable = "KUBEBRIDGE_STORAGE_SUITES"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	var tests []testing.InternalTest
	for _, name := range slices.Sorted(maps.Keys(suites)) {
		tests = append(tests, testing.InternalTest{Name: name, F: suites[name]})
	}
	testing.Main(regexp.MatchString, tests, nil, nil) // it ends the process
}

// result is that of a test in the other process.
type result struct {
	verdict string // pass, fail or skip; "": it has not ended
	output  strings.Builder
}

// runSuites runs the suites in a process of its own, because a subtest that is expected to fail would fail all tests around it.
func runSuites(t *testing.T) map[string]*result {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.v=test2json")
	cmd.Env = append(os.Environ(), childVariable+"=1")
	out, err := cmd.CombinedOutput()
	if _, ended := err.(*exec.ExitError); err != nil && !ended {
		t.Fatal(err)
	}
	events := exec.CommandContext(t.Context(), "go", "tool", "test2json")
	events.Stdin = bytes.NewReader(out)
	text, err := events.Output()
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]*result{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var e struct{ Action, Test, Output string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if results[e.Test] == nil {
			results[e.Test] = &result{}
		}
		switch e.Action {
		case "output":
			results[e.Test].output.WriteString(e.Output)
		case "pass", "fail", "skip":
			results[e.Test].verdict = e.Action
		}
	}
	return results
}

// expected returns the entry of differences for a test.
func expected(t *testing.T, name string) (pattern string, found bool) {
	t.Helper()
	for pattern := range differences {
		ok, err := path.Match(pattern, name)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			return pattern, true
		}
	}
	return "", false
}

// ownErrors matches messages of a test in its output, which does not have those of its subtests.
var ownErrors = regexp.MustCompile(`(?m)^ +\w+_tests?\.go:\d+:`)

// TestStorage: what clients read from `bridge serve` must have the guarantees that the API server's storages have: consistent lists and pages,
// the meaning of resourceVersions, the order of watches, and their bookmarks.
func TestStorage(t *testing.T) {
	results := runSuites(t)
	used := map[string]bool{}
	differs := map[string]bool{} // tests with a subtest in differences
	for name := range results {
		if pattern, found := expected(t, name); found {
			used[pattern] = true
			for parent := path.Dir(name); parent != "."; parent = path.Dir(parent) {
				differs[parent] = true
			}
		}
	}
	for pattern := range differences {
		if !used[pattern] {
			t.Errorf("differences has %q, which is not the name of a subtest", pattern)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(results)) {
		r := results[name]
		_, differ := expected(t, name)
		switch {
		case name == "":
		case differ && r.verdict != "fail":
			t.Errorf("differences has %q, but its verdict is %q", name, r.verdict)
		case differ, r.verdict == "pass":
		case r.verdict == "fail" && differs[name] && !ownErrors.MatchString(r.output.String()):
		default:
			t.Errorf("%s: %q\n%s", name, r.verdict, r.output.String())
		}
	}
	for name := range suites {
		if results[name] == nil {
			t.Errorf("%s was not run\n%s", name, results[""].output.String())
		}
	}
}

// TestListed: a function that a new version of the package has must be called, or listed with the reason.
func TestListed(t *testing.T) {
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "k8s.io/apiserver/pkg/storage/testing").Output()
	if err != nil {
		t.Fatal(err)
	}
	exported := map[string]bool{}
	files := token.NewFileSet()
	sources, err := os.ReadDir(strings.TrimSpace(string(dir)))
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		if !strings.HasSuffix(source.Name(), ".go") || strings.HasSuffix(source.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, path.Join(strings.TrimSpace(string(dir)), source.Name()), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Run") {
				exported[f.Name.Name] = true
			}
		}
	}
	called := map[string]bool{}
	file, err := parser.ParseFile(files, "suites_test.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && fmt.Sprint(s.X) == "storagetesting" {
			called[s.Sel.Name] = true
		}
		return true
	})
	for name := range exported {
		if reason, listed := notCalled[name]; called[name] == listed || listed && reason == "" {
			t.Errorf("%s: called: %t, in notCalled: %t with the reason %q", name, called[name], listed, reason)
		}
	}
	for name := range notCalled {
		if !exported[name] {
			t.Errorf("notCalled has %s, which the package does not have", name)
		}
	}
	if len(exported) < 50 {
		t.Errorf("the package has %d functions only", len(exported))
	}
}
