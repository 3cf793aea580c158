package main

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/kubebridge/kubebridge"

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

// report prints the functions and types, by package. share is how much longer the changes took than the quiet time.
func report(root string, idle, busy map[block]uint64, share float64) error {
	functions, types := map[string][]string{}, map[string]map[string]bool{}
	parsed := map[string]*ast.File{}
	set := token.NewFileSet()
	seen := map[string]bool{}
	for b, count := range busy {
		if float64(count)-float64(idle[b])*share < changes {
			continue
		}
		file := parsed[b.file]
		if file == nil {
			var err error
			if file, err = parser.ParseFile(set, filepath.Join(root, b.file), nil, 0); err != nil {
				return err
			}
			parsed[b.file] = file
		}
		f := enclosing(set, file, b)
		if f == nil {
			continue
		}
		pkg := filepath.Dir(b.file)
		name, receiver := nameOf(f)
		if seen[pkg+" "+name] {
			continue
		}
		seen[pkg+" "+name] = true
		functions[pkg] = append(functions[pkg], name)
		if receiver != "" {
			if types[pkg] == nil {
				types[pkg] = map[string]bool{}
			}
			types[pkg][receiver] = true
		}
	}
	total, typed := 0, 0
	for _, pkg := range slices.Sorted(maps.Keys(functions)) {
		slices.Sort(functions[pkg])
		total, typed = total+len(functions[pkg]), typed+len(types[pkg])
		fmt.Printf("%s: %d functions, %d types with methods among them\n\t%s\n", pkg, len(functions[pkg]), len(types[pkg]), strings.Join(functions[pkg], "\n\t"))
	}
	fmt.Printf("%d functions, %d types in %d packages\n", total, typed, len(functions))
	return nil
}

// enclosing returns the declared function that a block is in.
func enclosing(set *token.FileSet, file *ast.File, b block) *ast.FuncDecl {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if ok && set.Position(f.Pos()).Line <= b.from && b.to <= set.Position(f.End()).Line {
			return f
		}
	}
	return nil
}

// nameOf returns a function's name, with its receiver's type if it is a method.
func nameOf(f *ast.FuncDecl) (name, receiver string) {
	if f.Recv == nil {
		return f.Name.Name, ""
	}
	t := f.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "." + f.Name.Name, x.Name
		default:
			return f.Name.Name, ""
		}
	}
}
