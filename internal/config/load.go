package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// Settings are the scalar settings that the environment (KUBEBRIDGE_CLUSTER,
// KUBEBRIDGE_LOG_LEVEL, …) and flags may override.
var settings = []struct {
	key, flag, usage string
	field            func(*Config) *string
}{
	{"name", "name", "name of this bridge", func(c *Config) *string { return &c.Name }},
	{"cluster", "cluster", "name of the cluster in every event", func(c *Config) *string { return &c.Cluster }},
	{"kubernetes.kubeconfig", "kubeconfig", "path of a kubeconfig file", func(c *Config) *string { return &c.Kubernetes.Kubeconfig }},
	{"kubernetes.context", "context", "context in the kubeconfig file", func(c *Config) *string { return &c.Kubernetes.Context }},
	{"checkpoint.file.path", "checkpoint-path", "directory of the checkpoints", func(c *Config) *string { return &c.Checkpoint.File.Path }},
	{"status.listen", "status-listen", "host:port of /metrics, /healthz and /readyz, or off", func(c *Config) *string { return &c.Status.Listen }},
	{"log.level", "log-level", "debug, info, warn or error", func(c *Config) *string { return &c.Log.Level }},
	{"log.format", "log-format", "json, console or auto", func(c *Config) *string { return &c.Log.Format }},
}

// AddFlags defines a flag for every setting that may be overridden.
func AddFlags(f *pflag.FlagSet) {
	for _, s := range settings {
		f.String(s.flag, "", s.usage+" (overrides "+s.key+")")
	}
}

// Errors are the mistakes found in a configuration, one line each.
type Errors []string

func (e Errors) Error() string { return strings.Join(e, "\n") }

// Load reads the file, overrides it from the environment and from flags (which
// may be nil), fills in defaults and checks everything. Mistakes come back as
// [Errors] that name file, line and column.
func Load(path string, flags *pflag.FlagSet) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return parse(path, text, flags, os.LookupEnv)
}

func parse(path string, text []byte, flags *pflag.FlagSet, env func(string) (string, bool)) (*Config, error) {
	c := defaults()
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, Errors{at(path, err)}
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return nil, Errors{path + ": the file is empty: it needs at least cluster, resources and sinks"}
	}
	err = yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(c)
	if err != nil {
		return nil, Errors{at(path, err)}
	}
	if err := override(c, flags, env); err != nil {
		return nil, err
	}
	p := problems{file: path, root: file}
	p.expand(reflect.ValueOf(c).Elem(), "$", env)
	if len(p.list) == 0 {
		p.check(c)
	}
	if len(p.list) > 0 {
		slices.SortStableFunc(p.list, func(a, b problem) int { return a.line - b.line })
		var out Errors
		for _, e := range p.list {
			out = append(out, e.text)
		}
		return nil, out
	}
	return c, nil
}

// override binds each setting by hand: viper would lower-case keys and take
// unknown ones.
func override(c *Config, flags *pflag.FlagSet, env func(string) (string, bool)) error {
	v := viper.New()
	for _, s := range settings {
		name := "KUBEBRIDGE_" + strings.ToUpper(strings.ReplaceAll(s.key, ".", "_"))
		if value, ok := env(name); ok {
			v.SetDefault(s.key, value)
		}
		if flags != nil && flags.Lookup(s.flag) != nil {
			if err := v.BindPFlag(s.key, flags.Lookup(s.flag)); err != nil {
				return fmt.Errorf("flag --%s: %w", s.flag, err)
			}
		}
		changed := flags != nil && flags.Changed(s.flag)
		if _, ok := env(name); ok || changed {
			value := v.GetString(s.key)
			if !changed {
				value, _ = env(name)
			}
			*s.field(c) = value
		}
	}
	return nil
}

// at puts file, line and column before what the YAML parser found.
func at(path string, err error) string {
	var positioned interface {
		GetToken() *token.Token
		GetMessage() string
	}
	if !errors.As(err, &positioned) || positioned.GetToken() == nil {
		return path + ": " + strings.SplitN(err.Error(), "\n", 2)[0]
	}
	t := positioned.GetToken()
	message := positioned.GetMessage()
	if name, found := strings.CutPrefix(message, "unknown field "); found {
		name = strings.Trim(name, `"`)
		message = fmt.Sprintf("unknown key %q%s", name, suggest(name))
	} else {
		message = typeMismatch(message)
	}
	return fmt.Sprintf("%s:%d:%d: %s", path, t.Position.Line, t.Position.Column, message)
}

var mismatch = regexp.MustCompile(`^cannot unmarshal (.+) into Go (?:struct field|value) (?:\S+ )?of type (.+)$`)

var notThat = regexp.MustCompile(`^(\w+) was used where (\w+) is expected$`)

var yamlWords = map[string]string{
	"string": "text", "int": "a number", "float": "a number", "bool": "true or false", "sequence": "a list",
	"mapping": "a map", "null": "nothing", "tag": "a tag", "anchor": "an anchor", "alias": "an alias",
}

// typeMismatch says in the file's words what the parser says in Go's.
func typeMismatch(message string) string {
	if m := notThat.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("expected %s, found %s", yamlWords[m[2]], yamlWords[m[1]])
	}
	m := mismatch.FindStringSubmatch(message)
	if m == nil {
		return message
	}
	words := map[string]string{
		"string": "text", "int": "a number", "int64": "a number", "uint64": "a number", "float64": "a number",
		"bool": "true or false", "time.Duration": "a duration such as 20s",
	}
	word := func(t string) string {
		if w, ok := words[t]; ok {
			return w
		}
		switch {
		case strings.HasPrefix(t, "[]"):
			return "a list"
		case strings.HasPrefix(t, "map["), strings.Contains(t, "."):
			return "a map"
		}
		return t
	}
	return fmt.Sprintf("expected %s, found %s", word(m[2]), word(m[1]))
}

// suggest names the known key nearest to a misspelt one.
func suggest(name string) string {
	best, distance := "", len(name)/2+1
	for _, key := range keys(reflect.TypeFor[Config](), map[reflect.Type]bool{}) {
		if d := editDistance(strings.ToLower(name), strings.ToLower(key)); d < distance {
			best, distance = key, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// keys are the names of all keys below a type.
func keys(t reflect.Type, seen map[reflect.Type]bool) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] {
		return nil
	}
	seen[t] = true
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		if tag := f.Tag.Get("yaml"); tag != "" {
			out = append(out, tag)
		}
		out = append(out, keys(f.Type, seen)...)
	}
	return out
}

func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

// problems gathers mistakes and finds their places.
type problems struct {
	file string
	root *ast.File
	list []problem
}

type problem struct {
	line int
	text string
}

// add notes a mistake at a YAML path, or at the nearest of its parents that is
// in the file.
func (p *problems) add(path, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	for at := path; at != "" && at != "$"; at = at[:max(strings.LastIndexAny(at, ".["), 0)] {
		yp, err := yaml.PathString(at)
		if err != nil {
			continue
		}
		node, err := yp.FilterFile(p.root)
		if err != nil || node == nil || node.GetToken() == nil {
			continue
		}
		pos := node.GetToken().Position
		p.list = append(p.list, problem{pos.Line, fmt.Sprintf("%s:%d:%d: %s: %s", p.file, pos.Line, pos.Column, strings.TrimPrefix(path, "$."), message)})
		return
	}
	p.list = append(p.list, problem{0, fmt.Sprintf("%s: %s: %s", p.file, strings.TrimPrefix(path, "$."), message)})
}

var reference = regexp.MustCompile(`\$\{(env|file):([^}]*)\}`)

// expand replaces ${env:NAME} and ${file:PATH} in every string.
func (p *problems) expand(v reflect.Value, path string, env func(string) (string, bool)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			p.expand(v.Elem(), path, env)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if tag := v.Type().Field(i).Tag.Get("yaml"); tag != "" {
				p.expand(v.Field(i), path+"."+tag, env)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			p.expand(v.Index(i), fmt.Sprintf("%s[%d]", path, i), env)
		}
	case reflect.String:
		v.SetString(reference.ReplaceAllStringFunc(v.String(), func(s string) string {
			m := reference.FindStringSubmatch(s)
			if m[1] == "env" {
				value, ok := env(m[2])
				if !ok {
					p.add(path, "the environment has no %s", m[2])
				}
				return value
			}
			text, err := os.ReadFile(m[2])
			if err != nil {
				p.add(path, "%v", err)
			}
			return strings.TrimRight(string(text), "\r\n")
		}))
	}
}
