package main

import (
	"bufio"
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// inOrder has the packages in the order of docs/architecture.md, "The life of an event"; others come behind.
var inOrder = [...]string{
	"pkg/source", "pkg/source/discovery", "internal/base/scan", "internal/core/feed", "internal/core/loop", "internal/core/encode", "pkg/shape", "internal/core/reconcile",
	"pkg/event", "internal/core/delivery", "pkg/sink/kafka",
}

// apart are the files that an event's reader need not follow, by the beginnings of their names.
var apart = [...]struct{ what, file string }{
	{"observers: status, metrics, log", "internal/bridge/"},
	{"observers: status, metrics, log", "internal/operate/status/"},
	{"observers: status, metrics, log", "internal/operate/recent/"},
	{"the checkpoint's changes", "internal/core/durable/"},
	{"the checkpoint's changes", "pkg/checkpoint/"},
	{"the checkpoint's changes", "pkg/sink/kafka/store"},
}

// shown is up to how many lines the helpers have that the list leaves out.
const shown = 10

// block is a block of code: a file of the module, and the lines from and to.
type block struct {
	file     string
	from, to int
}

// readBlocks reads a profile as go tool covdata writes it: "file:line.column,line.column statements count".
func readBlocks(path string) (map[block]uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	counts := map[block]uint64{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		file, rest, ok := strings.Cut(lines.Text(), ":")
		fields := strings.Fields(rest)
		if !ok || len(fields) != 3 {
			continue // the mode
		}
		from, to, _ := strings.Cut(fields[0], ",")
		count, err := strconv.ParseUint(fields[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		b := block{strings.TrimPrefix(file, module+"/"), line(from), line(to)}
		counts[b] = max(counts[b], count)
	}
	return counts, nil
}

func line(place string) int {
	text, _, _ := strings.Cut(place, ".")
	n, _ := strconv.Atoi(text)
	return n
}

// report prints how many functions and types there are of each kind, and their lists. A function is of the kind of its block
// that runs most often: one that has a loop over the events of a batch is per event.
func report(c *code, blocks map[block]uint64, perEvent, perChange func(block) bool) {
	byFile := map[string][]*function{}
	for _, f := range c.functions {
		byFile[f.file] = append(byFile[f.file], f)
	}
	event, change := map[*function]bool{}, map[*function]bool{}
	for b := range blocks {
		for _, f := range byFile[b.file] {
			if f.from <= b.from && b.to <= f.to {
				event[f] = event[f] || perEvent(b)
				change[f] = change[f] || perChange(b)
			}
		}
	}
	var events, batches, follow []*function
	others := map[string][]*function{}
	for _, f := range c.functions {
		what := f.apart()
		switch {
		case event[f] && what == "":
			events, follow = append(events, f), append(follow, f)
		case event[f]:
			events, others[what] = append(events, f), append(others[what], f)
		case change[f]:
			batches = append(batches, f)
		}
	}
	count("per batch or wake-up", batches)
	count("per event", events)
	for _, what := range slices.Sorted(maps.Keys(others)) {
		count("  "+what, others[what])
	}
	count("  to follow, from the watch to Kafka", follow)
	for _, lines := range []int{5, shown, 20} {
		count(fmt.Sprintf("    without helpers of at most %d lines", lines), without(follow, lines))
	}
	list(fmt.Sprintf("to follow, without helpers of at most %d lines", shown), without(follow, shown))
	for _, what := range slices.Sorted(maps.Keys(others)) {
		list(what, others[what])
	}
	list("per batch or wake-up", batches)
}

// apart says what f belongs to if an event's reader need not follow it.
func (f *function) apart() string {
	for _, a := range apart {
		if strings.HasPrefix(f.file, a.file) {
			return a.what
		}
	}
	return ""
}

func without(functions []*function, lines int) []*function {
	return slices.DeleteFunc(slices.Clone(functions), func(f *function) bool { return f.isHelper(lines) })
}

// count prints how many functions there are, and how many types have them as methods.
func count(what string, functions []*function) {
	types := map[string]bool{}
	for _, f := range functions {
		if f.receiver != "" {
			types[f.pkg()+"."+f.receiver] = true
		}
	}
	fmt.Printf("%-42s %4d functions %4d types\n", what, len(functions), len(types))
}

// list prints functions by package, file and line.
func list(title string, functions []*function) {
	fmt.Printf("\n%s\n", title)
	place := func(f *function) int {
		if i := slices.Index(inOrder[:], f.pkg()); i >= 0 {
			return i
		}
		return len(inOrder)
	}
	slices.SortFunc(functions, func(a, b *function) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a.file, b.file), cmp.Compare(a.from, b.from))
	})
	pkg := ""
	for _, f := range functions {
		if f.pkg() != pkg {
			pkg = f.pkg()
			fmt.Println("\t" + pkg)
		}
		name := f.name
		if f.receiver != "" {
			name = f.receiver + "." + name
		}
		fmt.Printf("\t\t%s (%s:%d)\n", name, strings.TrimPrefix(f.file, pkg+"/"), f.from)
	}
}
