package config

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/sink"
)

const keysPage = "../../docs/keys.md"

const keysHead = `# Every key

Every key of the configuration, in the order of the file, with its default. [configuration.md](configuration.md) explains what needs more than a line.
This page is written from the code by ` + "`go test ./internal/config -run Keys -update`" + `. Durations are written ` + "`30s`" + `, ` + "`24h`" + ` or ` + "`7d`" + `; sizes are a number of bytes, or ` + "`10Gi`" + `.
` + "`resources[]`" + ` stands for each entry of the list; ` + "`sinks[].resources`" + ` has the same keys.

| key | type | default | meaning |
|---|---|---|---|
`

// keys collects a row for every setting below typ. defaulted is the value of the setting if the file does not set it.
// It is invalid if that value is not known before the file is read.
type keys struct {
	comments map[string]string // by package.Type.Field
	rows     []string
	silent   []string // settings whose field has no comment
}

func (k *keys) walk(typ reflect.Type, defaulted reflect.Value, path string) {
	for f := range typ.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "" {
			continue
		}
		at := join(path, name)
		value := reflect.Value{}
		if defaulted.IsValid() {
			value = defaulted.FieldByIndex(f.Index)
		}
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner, value = inner.Elem(), reflect.Value{}
		}
		comment := forUsers(k.comments[typ.String()+"."+f.Name], typ)
		switch {
		case inner.Kind() == reflect.Slice && inner.Elem().Kind() == reflect.Struct:
			if comment == "" {
				k.silent = append(k.silent, at)
			}
			k.rows = append(k.rows, row(at, "list", "", comment))
			if at != "sinks[].resources" { // its keys are the same as those of resources
				k.walk(inner.Elem(), reflect.Value{}, at+"[]")
			}
		case inner.Kind() == reflect.Struct:
			k.walk(inner, value, at)
		default:
			if comment == "" {
				k.silent = append(k.silent, at)
			}
			k.rows = append(k.rows, row(at, typeName(inner), shown(value), comment))
		}
	}
}

func row(key, typ, without, meaning string) string {
	plain := strings.NewReplacer("|", `\|`, "<", `\<`, "*", `\*`, "_", `\_`) // the text must not become a table, a tag or emphasis
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", key, typ, without, plain.Replace(meaning))
}

func typeName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	case t == reflect.TypeFor[sink.Bytes]():
		return "size"
	case t.Kind() == reflect.Slice:
		return "list"
	case t.Kind() == reflect.Map:
		return "map"
	case t.Kind() == reflect.Bool:
		return "true, false"
	case t.Kind() == reflect.String:
		return "text"
	default:
		return "number"
	}
}

// shown returns a default as it would be written in the file. It returns nothing for a zero value, because only the
// comment explains what a zero value means.
func shown(v reflect.Value) string {
	if !v.IsValid() || v.IsZero() {
		return ""
	}
	return fmt.Sprintf("`%v`", v.Interface())
}

// fieldComments reads the comment of each field of each struct of a package.
func fieldComments(t *testing.T, into map[string]string, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					text := strings.Join(strings.Fields(f.Doc.Text()+" "+f.Comment.Text()), " ")
					for _, n := range f.Names {
						into[file.Name.Name+"."+spec.Name.Name+"."+n.Name] = text
					}
				}
			}
			return false
		})
	}
}

// The page of keys agrees with the code: it has every setting with its default, also after one is added, renamed or
// given another default. A setting without a comment is an error, because users could not use it.
func TestKeysAreDocumented(t *testing.T) {
	k := keys{comments: map[string]string{}}
	sinks, err := filepath.Glob("../../pkg/sink/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range append(sinks, ".") {
		fieldComments(t, k.comments, dir)
	}
	k.walk(reflect.TypeFor[Config](), reflect.ValueOf(*defaults()), "")
	if len(k.silent) > 0 {
		t.Errorf("no comment in the code says what these are: %s", strings.Join(k.silent, ", "))
	}
	if len(k.rows) < 50 {
		t.Errorf("only %d settings were found", len(k.rows))
	}
	want := keysHead + strings.Join(k.rows, "")
	if *update {
		if err := os.WriteFile(keysPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(keysPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the code has: go test ./internal/config -run Keys -update", keysPage)
	}
}
