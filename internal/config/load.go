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

	"github.com/kubebridge/kubebridge/internal/base/textfile"
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
	{"status.listen", "status-listen", "host:port of the status page, /metrics, /healthz and /readyz, or off", func(c *Config) *string { return &c.Status.Listen }},
	{"log.level", "log-level", "debug, info, warn or error", func(c *Config) *string { return &c.Log.Level }},
	{"log.format", "log-format", "json, console or auto", func(c *Config) *string { return &c.Log.Format }},
}

// variable is the environment variable that overrides a setting.
func variable(key string) string {
	return "KUBEBRIDGE_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// AddFlags defines a flag for every setting that may be overridden, or for those settings that are named only.
func AddFlags(f *pflag.FlagSet, only ...string) {
	for _, s := range settings {
		if len(only) == 0 || slices.Contains(only, s.key) {
			f.String(s.flag, "", s.usage+" (overrides "+s.key+")")
		}
	}
}

// Errors are the mistakes found in a configuration, one line each.
type Errors []string

func (e Errors) Error() string { return strings.Join(e, "\n") }

// Part is the part of a configuration that a command uses. Of the rest, references are not replaced and values are not checked: who
// runs the command need not have the passwords of the bridge.
type Part int

// The parts.
const (
	Whole          Part = iota
	WithoutSecrets      // all but passwords and tokens
	Process             // what says where the bridge runs, and how it is reached
)

// has reports whether the setting at a path belongs to the part.
func (part Part) has(path string) bool {
	switch part {
	case WithoutSecrets:
		return !strings.HasSuffix(path, ".password") && !strings.HasSuffix(path, ".token")
	case Process:
		key, _, _ := strings.Cut(path, ".")
		return slices.Contains([]string{"name", "cluster", "kubernetes", "checkpoint", "status", "admin"}, key)
	}
	return true
}

// LoadPart reads the file, overrides it from the environment and from flags (which may be nil), fills in defaults and
// checks the part that a command uses. Mistakes come back as [Errors] that name file, line and column.
func LoadPart(path string, flags *pflag.FlagSet, part Part) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w: give its path with -c or in KUBEBRIDGE_CONFIG", err)
	}
	return ParsePart(path, text, flags, part)
}

// Parse is [ParsePart] for [Whole].
func Parse(path string, text []byte, flags *pflag.FlagSet) (*Config, error) {
	return ParsePart(path, text, flags, Whole)
}

// ParsePart is [LoadPart] for the text of a file.
func ParsePart(path string, text []byte, flags *pflag.FlagSet, part Part) (*Config, error) {
	return parsePart(path, text, flags, part, os.LookupEnv)
}

func parsePart(path string, text []byte, flags *pflag.FlagSet, part Part, env func(string) (string, bool)) (*Config, error) {
	text, err := textfile.Decode(text)
	if err != nil {
		return nil, Errors{path + ": " + err.Error()}
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, Errors{syntax(path, err, text)}
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return nil, Errors{path + ": the file is empty: it needs at least cluster, resources and sinks"}
	}
	p := problems{
		file: path, part: part, places: map[string]*token.Position{}, origins: map[string]string{}, anchors: map[string]ast.Node{}, scalars: map[string]string{},
	}
	if len(file.Docs) > 1 {
		p.addAt(file.Docs[1].Start.Position, "a second document begins: a configuration is one, remove the ---")
	}
	p.fits(file.Docs[0].Body, reflect.TypeFor[Config](), "")
	if err := p.errors(); err != nil {
		return nil, err
	}
	c, err := p.decode(text, flags, env)
	if err != nil {
		return nil, err
	}
	if len(p.list) == 0 {
		p.check(c)
		p.security(c)
		if len(p.references) > 0 {
			if err := p.withhold(text, flags, env); err != nil {
				return nil, err
			}
		}
	}
	if err := p.errors(); err != nil {
		return nil, err
	}
	c.places, c.warnings = p.entryPlaces(c), inOrder(p.weak)
	c.digest, err = p.digest(text, flags, env)
	return c, err
}

// decode reads the file's settings, overrides them and replaces references.
func (p *problems) decode(text []byte, flags *pflag.FlagSet, env func(string) (string, bool)) (*Config, error) {
	c := defaults()
	// The parser has rejected keys that are written twice. The remaining duplicates are keys
	// that override merged keys.
	options := []yaml.DecodeOption{yaml.Strict(), yaml.AllowDuplicateMapKey()}
	for _, s := range scalars() {
		options = append(options, s.ignore)
	}
	if err := yaml.NewDecoder(bytes.NewReader(text), options...).Decode(c); err != nil {
		return nil, Errors{at(p.file, err)}
	}
	if err := p.override(c, flags, env); err != nil {
		return nil, err
	}
	p.expand(reflect.ValueOf(c).Elem(), "", env)
	if c.Status.Listen == "" {
		c.Status.Listen = "127.0.0.1:8080"
		if host, _ := env("KUBERNETES_SERVICE_HOST"); host != "" { // in a pod, the kubelet's probes come from outside
			c.Status.Listen = ":8080"
		}
	}
	return c, nil
}

// entryPlaces returns the places of the entries of resources in the file.
func (p *problems) entryPlaces(c *Config) map[string]string {
	all := map[string]string{}
	note := func(path string, list []Resource) {
		for i := range list {
			at := fmt.Sprintf("%s[%d]", path, i)
			all[at] = p.place(at)
		}
	}
	note("resources", c.Resources)
	for i := range c.Sinks {
		note(fmt.Sprintf("sinks[%d].resources", i), c.Sinks[i].Resources)
	}
	return all
}

// override binds each setting by hand, because viper would lower-case keys and accept
// unknown ones. An empty variable counts as unset.
func (p *problems) override(c *Config, flags *pflag.FlagSet, env func(string) (string, bool)) error {
	v := viper.New()
	for _, s := range settings {
		name := variable(s.key)
		if value, _ := env(name); value != "" {
			v.SetDefault(s.key, value)
			p.origins[s.key] = name
		}
		if flags != nil && flags.Changed(s.flag) {
			if err := v.BindPFlag(s.key, flags.Lookup(s.flag)); err != nil {
				return fmt.Errorf("flag --%s: %w", s.flag, err)
			}
			p.origins[s.key] = "--" + s.flag
		}
		if v.IsSet(s.key) {
			*s.field(c) = v.GetString(s.key)
		}
	}
	return nil
}

// at puts file, line and column before the YAML library's error, and removes
// the lines of the file that the error quotes, because they may hold secrets.
func at(path string, err error) string {
	var positioned yaml.Error
	if !errors.As(err, &positioned) || positioned.GetToken() == nil {
		return path + ": " + strings.SplitN(err.Error(), "\n", 2)[0]
	}
	pos := positioned.GetToken().Position
	message := positioned.GetMessage()
	for _, known := range []struct{ part, hint string }{
		{"'\t'", "indent with spaces, not with tabs"},
		{"mapping value is not allowed", "keys of one map begin in one column, and a text that holds \": \" is put in quotes"},
	} {
		if strings.Contains(message, known.part) {
			message += ": " + known.hint
		}
	}
	return fmt.Sprintf("%s:%d:%d: %s", path, pos.Line, pos.Column, message)
}

// syntax is [at] for a text that is no YAML.
func syntax(path string, err error, text []byte) string {
	message := at(path, err)
	var positioned yaml.Error
	if !errors.As(err, &positioned) || positioned.GetToken() == nil {
		return message
	}
	lines := bytes.Split(text, []byte("\n"))
	if i := positioned.GetToken().Position.Line - 1; i < len(lines) && bare.Match(lines[i]) {
		message += ": within {} and [], put a reference in quotes: \"${env:NAME}\""
	}
	return message
}

var (
	bare      = regexp.MustCompile(`(^|[\s,:\[{])\$\{(env|file):`)
	reference = regexp.MustCompile(`\$\{(env|file):([^}]*)\}`)
	here      = regexp.MustCompile("^" + reference.String())
	braces    = regexp.MustCompile(`^\$\{([^}]*)\}?`)
	shell     = regexp.MustCompile(`^\$([A-Z_][A-Z0-9_]+)\b`)
	secretKey = regexp.MustCompile(`(^|\.)(password|token|url)$`)
	envName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// expand replaces ${env:NAME} and ${file:PATH} in every value, and sets those that are no texts.
func (p *problems) expand(v reflect.Value, path string, env func(string) (string, bool)) {
	if s, ok := scalarOf(v.Type()); ok {
		p.setScalar(v, s, path, env)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			p.expand(v.Elem(), path, env)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if tag := v.Type().Field(i).Tag.Get("yaml"); tag != "" {
				p.expand(v.Field(i), join(path, tag), env)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			p.expand(v.Index(i), fmt.Sprintf("%s[%d]", path, i), env)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(v.MapIndex(key))
			p.expand(value, join(path, key.String()), env)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		if written := v.String(); strings.Contains(written, "$") {
			v.SetString(p.interpolate(path, written, env))
			if v.String() == "" {
				p.warn(path, isEmpty, written)
			}
		}
	}
}

// interpolate returns a value with its references replaced. A dollar sign is literal, except at the start of a text
// that a shell or another program would replace: "${" anywhere, and "$NAME" in capitals that does not follow a letter,
// digit or dollar sign. There a second dollar sign makes it literal: "$${", "$$NAME". Any other text of that form is a
// mistake, because it would be sent as it is written.
func (p *problems) interpolate(path, value string, env func(string) (string, bool)) string {
	var out strings.Builder
	for i := 0; i < len(value); {
		rest := value[i:]
		word := i == 0 || !isWord(value[i-1])
		switch {
		case strings.HasPrefix(rest, "$${"):
			out.WriteString("${")
			i += len("$${")
		case word && rest[0] == '$' && shell.MatchString(rest[1:]): // $$NAME
			name := shell.FindString(rest[1:])
			out.WriteString(name)
			i += 1 + len(name)
		case here.MatchString(rest):
			m := here.FindStringSubmatch(rest)
			out.WriteString(p.lookUp(path, m[1], m[2], env))
			i += len(m[0])
		case braces.MatchString(rest):
			m := braces.FindStringSubmatch(rest)
			p.misspelt(path, value, m[0], m[1], env)
			i += len(m[0])
		case word && shell.MatchString(rest):
			m := shell.FindStringSubmatch(rest)
			p.misspelt(path, value, m[0], m[1], env)
			i += len(m[0])
		default:
			out.WriteByte(value[i])
			i++
		}
	}
	return out.String()
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '$'
}

func (p *problems) lookUp(path, kind, name string, env func(string) (string, bool)) string {
	written := "${" + kind + ":" + name + "}"
	if p.asWritten || !p.part.has(path) {
		return written
	}
	if p.references == nil {
		p.references = map[string][]string{}
	}
	p.references[path] = append(p.references[path], written)
	if kind == "env" {
		value, ok := env(name)
		if !ok {
			p.add(path, "the environment has no %s", name)
		}
		return p.noteEmpty(written, value)
	}
	text, err := textfile.Read(name)
	if err != nil {
		p.add(path, "%v", err)
	}
	return p.noteEmpty(written, strings.TrimRight(text, "\r\n"))
}

// noteEmpty returns the value of a reference. Messages about its setting then say that it is empty.
func (p *problems) noteEmpty(written, value string) string {
	if value == "" {
		p.empty = append(p.empty, written)
	}
	return value
}

// misspelt records a text that looks like a reference and is not one. It does not print a name that may be a part of a
// secret.
func (p *problems) misspelt(path, value, form, name string, env func(string) (string, bool)) {
	_, exists := env(name)
	reference := exists || form == value && strings.HasPrefix(form, "${")
	if !envName.MatchString(name) || secretKey.MatchString(path) && !reference {
		p.add(path, "it holds $NAME or ${...}, which is not replaced: did you mean ${env:NAME}? If the dollar sign is meant, write $$ in its place")
		return
	}
	p.add(path, "%s is not replaced: did you mean ${env:%s}? If the dollar sign is meant, write $$ in its place", form, name)
}
