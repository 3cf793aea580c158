package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const module = "github.com/kubebridge/kubebridge"

// packages are those of the program.
var packages = [...]string{"./cmd/bridge", "./internal/...", "./pkg/..."}

// function is a declared function of the module.
type function struct {
	file         string // within the module
	from, to     int    // lines
	name         string
	receiver     string          // the type, if it is a method
	callers      map[string]bool // packages that call it, or may do so through an interface
	callsPackage bool            // it calls another package of the module
}

func (f *function) pkg() string { return filepath.Dir(f.file) }

// isHelper reports whether f has at most so many lines, is called from its own package only, and calls no other package of
// the module. That is approximate: to name a function is to call it, and a call of an interface's method is one of every
// method of that name, and one of the package that declares the interface, if the module has it. Calls by other modules
// are not seen: what nothing calls is no helper.
func (f *function) isHelper(lines int) bool {
	return f.to-f.from < lines && !f.callsPackage && len(f.callers) == 1 && f.callers[f.pkg()]
}

// code is the functions of the module, by their full names.
type code struct {
	set       *token.FileSet
	root      string
	functions map[string]*function
	importer  types.Importer
	// dynamic has the packages that call a method of an interface, by the method's name.
	dynamic map[string]map[string]bool
}

// listed is a package as go list prints it.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

func readCode(root string) (*code, error) {
	c := &code{set: token.NewFileSet(), root: root, functions: map[string]*function{}, dynamic: map[string]map[string]bool{}}
	list := exec.Command("go", append([]string{"list", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles"}, packages[:]...)...)
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages of %s: %w", root, err)
	}
	exports := map[string]string{}
	var ours []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		if strings.HasPrefix(p.ImportPath, module+"/") {
			ours = append(ours, p)
		}
	}
	c.importer = importer.ForCompiler(c.set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	// All are declared before the calls are looked at.
	var calls []func()
	for _, p := range ours {
		called, err := c.declare(p)
		if err != nil {
			return nil, err
		}
		calls = append(calls, called)
	}
	for _, called := range calls {
		called()
	}
	for _, f := range c.functions {
		for pkg := range c.dynamic[f.name] {
			if f.receiver != "" {
				f.callers[pkg] = true
			}
		}
	}
	return c, nil
}

// declare adds a package's functions. The function that it returns adds what they call.
func (c *code) declare(p listed) (func(), error) {
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(c.set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	if _, err := (&types.Config{Importer: c.importer}).Check(p.ImportPath, c.set, files, info); err != nil {
		return nil, err
	}
	var functions []*ast.FuncDecl
	for _, file := range files {
		for _, d := range file.Decls {
			if d, ok := d.(*ast.FuncDecl); ok {
				functions = append(functions, d)
				if err := c.add(d, info.Defs[d.Name].(*types.Func)); err != nil {
					return nil, err
				}
			}
		}
	}
	return func() {
		for _, d := range functions {
			f := c.functions[info.Defs[d.Name].(*types.Func).FullName()]
			ast.Inspect(d, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					if called, ok := info.Uses[id].(*types.Func); ok {
						c.call(f, called.Origin())
					}
				}
				return true
			})
		}
	}, nil
}

func (c *code) add(d *ast.FuncDecl, f *types.Func) error {
	from, to := c.set.Position(d.Pos()), c.set.Position(d.End())
	file, err := filepath.Rel(c.root, from.Filename)
	if err != nil {
		return err
	}
	c.functions[f.FullName()] = &function{
		file: file, from: from.Line, to: to.Line, name: f.Name(), receiver: receiverOf(f), callers: map[string]bool{},
	}
	return nil
}

// call notes that f calls a function, of this module or not.
func (c *code) call(f *function, called *types.Func) {
	if called.Pkg() == nil || !strings.HasPrefix(called.Pkg().Path(), module+"/") {
		return
	}
	if strings.TrimPrefix(called.Pkg().Path(), module+"/") != f.pkg() {
		f.callsPackage = true
	}
	if g := c.functions[called.FullName()]; g != nil {
		g.callers[f.pkg()] = true
		return
	}
	if c.dynamic[called.Name()] == nil {
		c.dynamic[called.Name()] = map[string]bool{}
	}
	c.dynamic[called.Name()][f.pkg()] = true
}

// receiverOf returns the name of a method's type.
func receiverOf(f *types.Func) string {
	recv := f.Signature().Recv()
	if recv == nil {
		return ""
	}
	t := recv.Type()
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	return t.(*types.Named).Obj().Name()
}
