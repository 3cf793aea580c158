package reconcile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var mutantsFlag = flag.String("explore.mutants", "",
	"TestMutants: all, a number N for every tenth change from the Nth on, or an expression that descriptions match; empty: none")

// mutant is one change to one function, with the function's text after the change. All changes are compiled into one
// test program. A flag of the program says which change is in force.
type mutant struct {
	file, function, what string
	text                 string // of the function, named function__number
}

func (m *mutant) String() string { return m.function + ": " + m.what }

// TestMutants changes the decisions of this package, one at a time, and fails if the tests do not find a
// change. The changes are made from the source: the bodies of two neighbouring cases are exchanged; a
// case, an if, a call, an assignment, a field or a part of a condition is left out; a condition is negated;
// a bound is moved. The tests are all of this package without TestExplore, TestPairs and TestCoverage. Changes that make
// no difference are listed in equivalents; TestMutants fails as well if the tests find one of those.
func TestMutants(t *testing.T) {
	if *mutantsFlag == "" { // it takes minutes
		return
	}
	files := sources(t)
	var list []mutant
	for _, f := range files {
		list = append(list, f.mutants()...)
	}
	list = distinct(list)
	program, compiled := build(t, files, list)
	found, same := 0, 0
	for i, m := range list {
		if !compiled[i] || !chosen(i, m.String()) {
			continue
		}
		by := findMutant(t, program, i)
		why, equivalent := equivalents[m.String()]
		switch {
		case by != "" && by != notEnding && equivalent: // on a busy machine, tests can time out
			t.Errorf("%s detects a mutant that equivalents lists: %s", by, m.String())
		case by != "" && !equivalent:
			found++
			t.Logf("%-90s %s", m.String(), by)
		case equivalent:
			same++
			t.Logf("%-90s no difference: %s", m.String(), why)
		default:
			t.Errorf("NOT FOUND: %s", m.String())
		}
	}
	t.Logf("%d changes found, %d make no difference", found, same)
	for what := range equivalents {
		if !slices.ContainsFunc(list, func(m mutant) bool { return m.String() == what }) {
			t.Errorf("equivalents lists a mutant that does not exist: %s", what)
		}
	}
}

func chosen(i int, what string) bool {
	if *mutantsFlag == "all" {
		return true
	}
	if n, err := strconv.Atoi(*mutantsFlag); err == nil {
		return i%10 == n%10
	}
	return regexp.MustCompile(*mutantsFlag).MatchString(what)
}

const notEnding = "a test that does not end"

// findMutant runs the tests with a change in force. It returns the name of the test that has failed, or "" if none has.
func findMutant(t *testing.T, program string, i int) string {
	t.Helper()
	for _, test := range []string{"-test.skip=^(TestExplore|TestPairs|TestWalk|TestCoverage|TestMutants)$", "-test.run=^TestWalk$"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, program, test, "-test.failfast", "-test.timeout=50s",
			fmt.Sprintf("-mutant=%d", i+1), "-explore.minimise=false", fmt.Sprintf("-explore.walks=%d", *walksFlag),
			fmt.Sprintf("-explore.writes=%d", *writesFlag), fmt.Sprintf("-explore.disturbances=%d", *disturbancesFlag))
		out, err := cmd.CombinedOutput()
		late := ctx.Err() != nil
		cancel()
		var exit *exec.ExitError
		switch {
		case err == nil:
			continue
		case !errors.As(err, &exit):
			t.Fatal(err)
		case bytes.Contains(out, []byte("panic: test timed out")), late:
			return notEnding
		}
		if m := regexp.MustCompile(`--- FAIL: (Test.*) \(`).FindAllSubmatch(out, -1); m != nil {
			return string(m[len(m)-1][1])
		}
		return "a panic"
	}
	return ""
}

// sourceFile is a file of this package.
type sourceFile struct {
	path string
	text []byte
	set  *token.FileSet
	tree *ast.File
}

func sources(t *testing.T) (list []*sourceFile) {
	t.Helper()
	for _, name := range []string{"batch.go", "collection.go", "core.go", "input.go", "inventory.go", "lists.go", "object.go", "restart.go"} {
		path, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		f := &sourceFile{path: path, set: token.NewFileSet()}
		if f.text, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		if f.tree, err = parser.ParseFile(f.set, path, f.text, parser.SkipObjectResolution); err != nil {
			t.Fatal(err)
		}
		list = append(list, f)
	}
	return list
}

// edit replaces a part of a file.
type edit struct {
	from, to token.Pos
	with     string
}

func (f *sourceFile) offset(p token.Pos) int { return f.set.Position(p).Offset }

func (f *sourceFile) between(from, to token.Pos) string {
	return string(f.text[f.offset(from):f.offset(to)])
}

func (f *sourceFile) of(n ast.Node) string { return f.between(n.Pos(), n.End()) }

// short returns the text of a node on one line, cut after 70 bytes.
func (f *sourceFile) short(n ast.Node) string {
	s := strings.Join(strings.Fields(f.of(n)), " ")
	if len(s) > 70 {
		s = s[:70] + "..."
	}
	return s
}

// helpers are the functions that decide nothing. TestMutants changes all others.
var helpers = strings.Fields("String MarshalText UnmarshalText cover newPending newSide sorted hashOf verdict eventRoom keepEvents takeBack copied")

// functions returns the functions of a file that are not helpers.
func (f *sourceFile) functions() (list []*ast.FuncDecl) {
	for _, d := range f.tree.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && !slices.Contains(helpers, fn.Name.Name) {
			list = append(list, fn)
		}
	}
	return list
}

// nameOf returns the name of a function. The name of a method includes its type.
func (f *sourceFile) nameOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	return strings.TrimPrefix(f.of(fn.Recv.List[0].Type), "*") + "." + fn.Name.Name
}

func (f *sourceFile) mutants() (list []mutant) {
	for _, fn := range f.functions() {
		add := func(what string, edits ...edit) {
			if strings.Contains(what, "coverage") || strings.Contains(what, "cover(") || strings.Contains(what, "row = ") || strings.Contains(what, "`row: ") {
				return
			}
			list = append(list, mutant{file: f.path, function: f.nameOf(fn), what: what, text: f.changed(fn, edits)})
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SwitchStmt:
				f.ofSwitch(n, add)
			case *ast.IfStmt:
				f.ofIf(n, add)
			case *ast.KeyValueExpr:
				add("without `"+f.short(n)+"`", f.element(n))
			case *ast.ReturnStmt:
				f.ofReturn(n, add)
			case *ast.BinaryExpr:
				if with, ok := neighbours[n.Op]; ok {
					add("`"+f.short(n)+"` with "+with, edit{n.OpPos, n.OpPos + token.Pos(len(n.Op.String())), with})
				}
				if n.Op == token.LAND || n.Op == token.LOR {
					add("without `"+f.short(n.Y)+"`", edit{n.X.End(), n.Y.End(), ""})
					add("without `"+f.short(n.X)+"`", edit{n.X.Pos(), n.Y.Pos(), ""})
				}
			case *ast.AssignStmt:
				f.ofAssignment(n, add)
			case *ast.ExprStmt, *ast.IncDecStmt, *ast.DeferStmt:
				add("without `"+f.short(n)+"`", edit{n.Pos(), n.End(), ""})
			}
			return true
		})
	}
	return list
}

type adder func(what string, edits ...edit)

func (f *sourceFile) ofSwitch(n *ast.SwitchStmt, add adder) {
	for i, s := range n.Body.List {
		c := s.(*ast.CaseClause)
		name := "default"
		if len(c.List) > 0 {
			name = f.between(c.List[0].Pos(), c.Colon)
		}
		add("without case `"+name+"`", edit{c.Pos(), c.End(), ""})
		if n.Tag == nil && len(c.List) > 0 {
			var parts []string
			for _, e := range c.List {
				parts = append(parts, "("+f.of(e)+")")
			}
			add("negated case `"+name+"`", edit{c.List[0].Pos(), c.Colon, "!(" + strings.Join(parts, "||") + ")"})
			for j, e := range c.List {
				if len(c.List) > 1 {
					rest := slices.Delete(slices.Clone(parts), j, j+1)
					add("case without `"+f.short(e)+"`", edit{c.List[0].Pos(), c.Colon, strings.Join(rest, ",")})
				}
			}
		}
		if i+1 < len(n.Body.List) {
			d := n.Body.List[i+1].(*ast.CaseClause)
			one, two := f.between(c.Colon+1, c.End()), f.between(d.Colon+1, d.End())
			if strings.TrimSpace(one) != strings.TrimSpace(two) {
				add("case `"+name+"` and the next one exchanged", edit{c.Colon + 1, c.End(), two + "\n"}, edit{d.Colon + 1, d.End(), one + "\n"})
			}
		}
	}
}

func (f *sourceFile) ofIf(n *ast.IfStmt, add adder) {
	cond := f.short(n.Cond)
	add("negated if `"+cond+"`", edit{n.Cond.Pos(), n.Cond.End(), "!(" + f.of(n.Cond) + ")"})
	if n.Else == nil {
		add("without if `"+cond+"`", edit{n.Pos(), n.End(), ""})
	}
}

// neighbours has, for each comparison, the one that differs from it only if both operands are equal.
var neighbours = map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}

// element returns the edit that leaves out an element of a list, with its comma.
func (f *sourceFile) element(n ast.Expr) edit {
	to := n.End()
	for i := f.offset(to); i < len(f.text) && strings.ContainsRune(" ,\n\t", rune(f.text[i])); i++ {
		to++
		if f.text[i] == ',' {
			break
		}
	}
	return edit{n.Pos(), to, ""}
}

// ofReturn adds the changes that return the opposite of a condition.
func (f *sourceFile) ofReturn(n *ast.ReturnStmt, add adder) {
	for _, r := range n.Results {
		switch r := r.(type) {
		case *ast.BinaryExpr, *ast.UnaryExpr:
			add("negated result `"+f.short(r)+"`", edit{r.Pos(), r.End(), "!(" + f.of(r) + ")"})
		}
	}
}

// ofAssignment adds the changes that leave out one assignment of a statement.
func (f *sourceFile) ofAssignment(n *ast.AssignStmt, add adder) {
	if n.Tok == token.DEFINE {
		return
	}
	if len(n.Lhs) == 1 {
		add("without `"+f.short(n)+"`", edit{n.Pos(), n.End(), ""})
		return
	}
	for i, l := range n.Lhs {
		if len(n.Lhs) != len(n.Rhs) {
			add("without the assignment to `"+f.short(l)+"`", edit{l.Pos(), l.End(), "_"})
			continue
		}
		left, right := []string{}, []string{}
		for j := range n.Lhs {
			if j != i {
				left, right = append(left, f.of(n.Lhs[j])), append(right, f.of(n.Rhs[j]))
			}
		}
		add("without `"+f.short(l)+" = "+f.short(n.Rhs[i])+"`",
			edit{n.Pos(), n.End(), strings.Join(left, ",") + " = " + strings.Join(right, ",")})
	}
}

// changed returns the text of a function with edits. The name of the function gets the suffix __NUMBER.
func (f *sourceFile) changed(fn *ast.FuncDecl, edits []edit) string {
	edits = append(edits, edit{fn.Name.Pos(), fn.Name.End(), fn.Name.Name + "__NUMBER"})
	slices.SortFunc(edits, func(a, b edit) int { return int(a.from - b.from) })
	var b strings.Builder
	at := fn.Pos()
	for _, e := range edits {
		b.WriteString(f.between(at, e.from))
		b.WriteString(e.with)
		at = e.to
	}
	b.WriteString(f.between(at, fn.End()))
	return b.String()
}

// distinct adds a number to a description that an earlier change has too.
func distinct(list []mutant) []mutant {
	times := map[string]int{}
	for i := range list {
		what := list[i].String()
		if times[what]++; times[what] > 1 {
			list[i].what += fmt.Sprintf(" (%d)", times[what])
		}
	}
	return list
}

// build compiles the tests with all changes. A function that is changed begins with a switch that calls the change in
// force. compiled has the changes that compile.
func build(t *testing.T, files []*sourceFile, list []mutant) (program string, compiled map[int]bool) {
	t.Helper()
	dir := t.TempDir()
	program, compiled = filepath.Join(dir, "mutants.test"), map[int]bool{}
	for i := range list {
		compiled[i] = true
	}
	for range 5 { // the compiler may not report all errors at once
		lines, overlay := writeMutants(t, dir, files, list, compiled)
		out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-gcflags=-e", "-overlay="+overlay, "-o", program, ".").CombinedOutput()
		if err == nil {
			return program, compiled
		}
		for _, m := range regexp.MustCompile(`(?m)^\S*?(\w+\.go):(\d+):`).FindAllSubmatch(out, -1) {
			line, _ := strconv.Atoi(string(m[2]))
			i, ok := lines[string(m[1])][line]
			if !ok {
				t.Fatalf("%s", out)
			}
			delete(compiled, i)
		}
	}
	t.Fatal("the changes do not compile")
	return "", nil
}

// writeMutants writes the files with all changes, and the overlay that replaces the source by them. lines has, by file and
// line, the change that the line belongs to.
func writeMutants(t *testing.T, dir string, files []*sourceFile, list []mutant, compiled map[int]bool) (lines map[string]map[int]int, overlay string) {
	t.Helper()
	lines = map[string]map[int]int{}
	replace := map[string]string{}
	for n, f := range files {
		var b strings.Builder
		at := f.tree.Pos()
		for _, fn := range f.functions() {
			b.WriteString(f.between(at, fn.Body.Lbrace+1))
			at = fn.Body.Lbrace + 1
			b.WriteString("switch *mutantInForce {")
			for i := range list {
				if compiled[i] && list[i].file == f.path && list[i].function == f.nameOf(fn) {
					fmt.Fprintf(&b, "case %d: %s;", i+1, forward(fn, i))
				}
			}
			b.WriteString("};")
		}
		b.WriteString(f.between(at, f.tree.End()) + "\n")
		base := filepath.Base(f.path)
		lines[base] = map[int]int{}
		for i := range list {
			if !compiled[i] || list[i].file != f.path {
				continue
			}
			from := strings.Count(b.String(), "\n")
			b.WriteString(strings.Replace(list[i].text, "__NUMBER", fmt.Sprintf("__%d", i), 1) + "\n")
			for line := from; line < strings.Count(b.String(), "\n"); line++ {
				lines[base][line+1] = i
			}
		}
		if n == 0 {
			b.WriteString("var mutantInForce = flag.Int(\"mutant\", 0, \"\")\n")
		}
		text := b.String()
		if n == 0 {
			text = strings.Replace(text, "package reconcile\n", "package reconcile;import \"flag\"\n", 1)
		}
		replace[f.path] = writeFile(t, filepath.Join(dir, base), []byte(text))
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	return lines, writeFile(t, filepath.Join(dir, "overlay.json"), text)
}

func writeFile(t *testing.T, path string, text []byte) string {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// forward returns the statement that calls a changed function instead of the original.
func forward(fn *ast.FuncDecl, i int) string {
	var args []string
	for _, p := range fn.Type.Params.List {
		for _, name := range p.Names {
			args = append(args, name.Name)
		}
	}
	call := fmt.Sprintf("%s__%d(%s)", fn.Name.Name, i, strings.Join(args, ", "))
	if fn.Recv != nil {
		call = fn.Recv.List[0].Names[0].Name + "." + call
	}
	if fn.Type.Results == nil {
		return call + "; return"
	}
	return "return " + call
}

// equivalents are the changes that make no difference to what consumers or the store get, with the reason.
var equivalents = map[string]string{
	"view.seen: without `known.UID != s.UID`":                               "the loop looks at the uids again; the condition saves its work",
	"view.seen: `len(doubts) > 0` with >=":                                  "likewise",
	"inventory.next: `keys[i] < key` with <=":                               "both are the same key",
	"pending.recycle: without `next.places = p.places`":                     "it saves allocations",
	"pending.recycle: without `clear(p.items)`":                             "it frees memory",
	"pending.recycle: without `clear(p.changes)`":                           "it frees memory",
	"Core.Step: without `!c.batch.dirty`":                                   "Core.dirty looks at it again; the condition saves the comparison",
	"Collection.recover: without case `!drafted`":                           "a draft that does not exist has nothing in doubt",
	"Collection.forget: `comparePublications(i.Object, *last) > 0` with >=": "both are the same publication",
}
