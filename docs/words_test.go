package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// retired is a word that is not used any more.
type retired struct {
	word, instead string
	lower         string
	pattern       *regexp.Regexp
	allowed       map[string]bool // path prefixes; true: the word is there
}

func retiredWords(t *testing.T) []*retired {
	t.Helper()
	raw, err := os.ReadFile("words.txt")
	if err != nil {
		t.Fatal(err)
	}
	var list []*retired
	for line := range strings.Lines(string(raw)) {
		left, right, ok := strings.Cut(strings.TrimSpace(line), " | ")
		switch {
		case strings.HasPrefix(line, "#"):
		case !ok:
			t.Fatalf("words.txt: %q has no reason", line)
		case strings.HasPrefix(line, " "):
			list[len(list)-1].allowed[left] = false
		default:
			list = append(list, &retired{left, right, strings.ToLower(left), regexp.MustCompile(`(?i)\b` + regexp.QuoteMeta(left) + `\b`), map[string]bool{}})
		}
	}
	return list
}

// Readers learn one word for one thing; the words in words.txt have another meaning elsewhere, or none.
func TestWords(t *testing.T) {
	words := retiredWords(t)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel("..", path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && name != "." || d.Name() == "testdata" || d.Name() == "var" || d.Name() == "bin" || name == "docs/adr"):
			return fs.SkipDir // decisions keep the words of their time
		case !d.IsDir() && name != "docs/words.txt":
			checkWords(t, words, name, prose(t, path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range words {
		for prefix, used := range w.allowed {
			if !used {
				t.Errorf("words.txt allows %q in %s, which does not have it", w.word, prefix)
			}
		}
	}
}

// line is a part of a file that people read.
type line struct {
	number int
	text   string
}

func checkWords(t *testing.T, words []*retired, name string, lines []line) {
	t.Helper()
	for _, l := range lines {
		lower := strings.ToLower(l.text)
		for _, w := range words { // most lines contain no such word: Contains is much faster
			if strings.Contains(lower, w.lower) && w.pattern.MatchString(l.text) && !w.allows(name) {
				t.Errorf("%s:%d: %q: write %s", name, l.number, w.word, w.instead)
			}
		}
	}
}

func (w *retired) allows(name string) bool {
	for prefix := range w.allowed {
		if strings.HasPrefix(name, prefix) {
			w.allowed[prefix] = true
			return true
		}
	}
	return false
}

// prose is what people read of a file: pages, comments and values of charts and configurations whole; of Go its comments, strings and names.
func prose(t *testing.T, path string) (lines []line) {
	t.Helper()
	switch filepath.Ext(path) {
	case ".md", ".yaml", ".tpl", ".sh", ".py":
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for text := range strings.Lines(string(raw)) {
			n++
			lines = append(lines, line{n, text})
		}
	case ".go":
		return proseOfGo(t, path)
	}
	return lines
}

func proseOfGo(t *testing.T, path string) (lines []line) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Comments {
		for _, c := range group.List {
			lines = append(lines, line{files.Position(c.Pos()).Line, c.Text})
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.BasicLit:
			if x.Kind == token.STRING {
				lines = append(lines, line{files.Position(x.Pos()).Line, x.Value})
			}
		case *ast.Ident:
			lines = append(lines, line{files.Position(x.Pos()).Line, x.Name})
		}
		return true
	})
	return lines
}
