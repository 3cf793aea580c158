package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
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
	{"status.listen", "status-listen", "host:port of the status page, /metrics, /healthz and /readyz, or off", func(c *Config) *string { return &c.Status.Listen }},
	{"log.level", "log-level", "debug, info, warn or error", func(c *Config) *string { return &c.Log.Level }},
	{"log.format", "log-format", "json, console or auto", func(c *Config) *string { return &c.Log.Format }},
}

// variable is the environment variable that overrides a setting.
func variable(key string) string {
	return "KUBEBRIDGE_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
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
	return Parse(path, text, flags)
}

// Parse is [Load] for a file whose text is at hand.
func Parse(path string, text []byte, flags *pflag.FlagSet) (*Config, error) {
	return parse(path, text, flags, os.LookupEnv)
}

func parse(path string, text []byte, flags *pflag.FlagSet, env func(string) (string, bool)) (*Config, error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, Errors{at(path, err)}
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return nil, Errors{path + ": the file is empty: it needs at least cluster, resources and sinks"}
	}
	c := defaults()
	p := problems{file: path, places: map[string]*token.Position{}, origins: map[string]string{}, anchors: map[string]ast.Node{}}
	if len(file.Docs) > 1 {
		p.addAt(file.Docs[1].Start.Position, "a second document begins: a configuration is one, remove the ---")
	}
	p.fits(file.Docs[0].Body, reflect.TypeFor[Config](), "")
	if err := p.errors(); err != nil {
		return nil, err
	}
	// A key that is really there twice the parser has refused; what is left is one
	// that wins over a merged one.
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict(), yaml.AllowDuplicateMapKey()).Decode(c); err != nil {
		return nil, Errors{at(path, err)}
	}
	if err := p.override(c, flags, env); err != nil {
		return nil, err
	}
	p.expand(reflect.ValueOf(c).Elem(), "", env)
	if len(p.list) == 0 {
		p.check(c)
	}
	if err := p.errors(); err != nil {
		return nil, err
	}
	return c, nil
}

// override binds each setting by hand: viper would lower-case keys and take
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

// at puts file, line and column before what the YAML library found, and leaves
// out the lines of the file that it would print: they may hold secrets.
func at(path string, err error) string {
	var positioned yaml.Error
	if !errors.As(err, &positioned) || positioned.GetToken() == nil {
		return path + ": " + strings.SplitN(err.Error(), "\n", 2)[0]
	}
	pos := positioned.GetToken().Position
	return fmt.Sprintf("%s:%d:%d: %s", path, pos.Line, pos.Column, positioned.GetMessage())
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
