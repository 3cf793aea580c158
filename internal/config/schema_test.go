package config

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	generator "github.com/invopop/jsonschema"

	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/internal/bus/kafka"
	"github.com/kubebridge/kubebridge/internal/bus/nats"
	"github.com/kubebridge/kubebridge/pkg/sink"
	kafkasink "github.com/kubebridge/kubebridge/pkg/sink/kafka"
	natssink "github.com/kubebridge/kubebridge/pkg/sink/nats"
)

const (
	schemaFile = "../../docs/schemas/config.schema.json"
	// durationForm matches what [ParseDuration] accepts, except for negative durations, which no setting accepts.
	durationForm = `^\+?(0|[0-9]+d|([0-9]+d)? *(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h) *)+)$`
	bytesForm    = `^\+?[0-9]+(\.[0-9]+)?([kMGTP]|[KMGTP]i)?$`
)

// The schema is generated in this test from the structs, their comments, the defaults and the error messages, so that
// the program does not need its sources at run time.
func TestSchemaIsCurrent(t *testing.T) {
	made := makeSchema(t)
	if *update {
		if err := os.WriteFile(schemaFile, made, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(have), string(made)); diff != "" {
		t.Errorf("run go test ./internal/config -update (-published +structs):\n%s", diff)
	}
}

func makeSchema(t *testing.T) []byte {
	t.Helper()
	var comments generator.Reflector
	for _, dir := range []string{".", "../../pkg/sink"} {
		base := reflect.TypeFor[Config]().PkgPath()
		if err := comments.AddGoComments(base, dir, generator.WithFullComment()); err != nil {
			t.Fatal(err)
		}
	}
	s := (&generator.Reflector{
		Anonymous: true, DoNotReference: true, FieldNameTag: "yaml", RequiredFromJSONSchemaTags: true,
		Mapper: func(t reflect.Type) *generator.Schema {
			switch t {
			case reflect.TypeFor[time.Duration]():
				return &generator.Schema{Type: "string", Pattern: durationForm + "|" + reference.String()}
			case reflect.TypeFor[sink.Bytes]():
				return &generator.Schema{AnyOf: []*generator.Schema{
					{Type: "integer"}, {Type: "string", Pattern: bytesForm + "|" + reference.String()},
				}}
			}
			return nil
		},
		LookupComment: func(t reflect.Type, field string) string { return description(comments.CommentMap, t, field) },
	}).ReflectFromType(reflect.TypeFor[Config]())
	s.ID, s.Title = "https://kubebridge.io/schemas/config.schema.json", "kubebridge configuration"
	complete(t, s, reflect.ValueOf(everyDefault()), "")
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := (*jsontext.Value)(&text).Format(jsontext.PreserveRawStrings(false), jsontext.WithIndent("  ")); err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

var (
	seeAlso = regexp.MustCompile(`,? see \[[^\]]*\]`)
	docLink = regexp.MustCompile(`\[([A-Z]\w*)\]`)
)

// description returns the comment of a field, or else the comment of its type. Names of fields are replaced by their
// keys in the file.
func description(comments map[string]string, t reflect.Type, field string) string {
	if t.Kind() != reflect.Struct {
		return ""
	}
	// A block of internal/bus is the type of pkg/sink with other methods.
	name := func(t reflect.Type) string {
		return strings.Replace(t.PkgPath(), "/internal/bus/", "/pkg/sink/", 1) + "." + t.Name()
	}
	text := comments[name(t)+"."+field]
	if f, ok := t.FieldByName(field); ok && text == "" {
		for t = f.Type; t.Kind() == reflect.Pointer; {
			t = t.Elem()
		}
		text = comments[name(t)]
		if rest, ok := strings.CutPrefix(text, t.Name()+" "); ok {
			text = "`" + f.Tag.Get("yaml") + "` " + rest
		}
	}
	return forUsers(text, t)
}

// forUsers returns a comment on a field of t with the names of fields replaced by their keys in the file.
func forUsers(text string, t reflect.Type) string {
	text = seeAlso.ReplaceAllString(strings.Join(strings.Fields(text), " "), "")
	text = docLink.ReplaceAllString(strings.ReplaceAll(text, "nil:", "none:"), "$1")
	if t.Kind() == reflect.Struct {
		for f := range t.Fields() {
			text = regexp.MustCompile(`\b`+f.Name+`\b`).ReplaceAllString(text, "`"+f.Tag.Get("yaml")+"`")
		}
	}
	return text
}

// everyDefault returns a configuration that contains every setting with a default.
func everyDefault() *Config {
	c := defaults()
	all := Sink{
		Resources: []Resource{{Redact: []Redaction{{}}}},
		Kafka:     &kafka.Config{DeadLetter: &kafkasink.DeadLetter{}},
		NATS:      &nats.Config{DeadLetter: &natssink.DeadLetter{}, Embedded: &natssink.Embedded{}},
	}
	for f := range reflect.TypeFor[Sink]().Fields() { // a new block for each kind of bus
		if v := reflect.ValueOf(&all).Elem().FieldByIndex(f.Index); f.Type.Implements(reflect.TypeFor[bus.Config]()) && v.IsNil() {
			v.Set(reflect.New(f.Type.Elem()))
		}
	}
	(&problems{}).sink("", &all)
	c.Resources, c.Sinks, c.Redact = all.Resources, []Sink{all}, all.Resources[0].Redact
	return c
}

// required has the keys that a map must have. If there are several lists, one of them is enough. Keys that the
// environment or a flag can set are not required in the file.
var required = map[string][][]string{
	"":                           {{"sinks"}},
	"resources[]":                {{"resource"}},
	"sinks[].resources[]":        {{"resource"}},
	"sinks[].kafka":              {{"brokers"}},
	"sinks[].nats":               {{"url"}, {"embedded"}},
	"sinks[].nats.embedded":      {{"dir"}},
	"sinks[].nats.embedded.tls":  {{"cert", "key"}},
	"sinks[].nats.embedded.leaf": {{"url"}},
	"sinks[].file":               {{"path"}},
	"sinks[].http":               {{"url"}},
}

// complete adds to s, the schema of the value at path, everything that the structs do not express. value has the
// defaults. If it is invalid, there are no defaults.
func complete(t *testing.T, s *generator.Schema, value reflect.Value, path string) {
	for value.Kind() == reflect.Pointer {
		value = value.Elem()
	}
	switch s.Type {
	case "object":
		one := required[path]
		if path == "sinks[]" {
			for _, b := range (&Sink{}).blocks() {
				one = append(one, []string{b.kind})
			}
		}
		if len(one) == 1 {
			s.Required = one[0]
		} else {
			for _, keys := range one {
				s.OneOf = append(s.OneOf, &generator.Schema{Required: keys})
			}
		}
		if path == "sinks[]" {
			s.Required = []string{"name"}
		}
		for p := s.Properties.Oldest(); p != nil; p = p.Next() {
			complete(t, p.Value, fieldByKey(value, p.Key), join(path, p.Key))
		}
		return
	case "array":
		var first reflect.Value
		if value.IsValid() && value.Len() > 0 {
			first = value.Index(0)
		}
		complete(t, s.Items, first, path+"[]")
		if path == "sinks" || strings.HasSuffix(path, ".types") || strings.HasSuffix(path, ".brokers") {
			s.MinItems = new(uint64(1))
		}
		shorts := map[string]string{"resources": "The resource alone, without options.", "redact": "A path, or the name of a preset."}
		if text, ok := shorts[path[strings.LastIndex(path, ".")+1:]]; ok {
			if s.Items.Type == "string" { // the patterns of a rule
				return
			}
			short := &generator.Schema{Type: "string", Description: text}
			s.Items = &generator.Schema{AnyOf: []*generator.Schema{short, s.Items}}
		}
		return
	case "string":
		if values := valuesAt(t, path); len(values) > 0 {
			s.AnyOf = []*generator.Schema{{Enum: values}, {Pattern: reference.String()}}
		}
	}
	switch {
	case !value.IsValid() || value.IsZero() && s.Type != "boolean":
	default:
		s.Default = value.Interface()
		if text, ok := s.Default.(fmt.Stringer); ok {
			s.Default = text.String()
		}
	}
	if s.Type == "integer" || s.Type == "boolean" {
		s.AnyOf = []*generator.Schema{{Type: s.Type}, {Type: "string", Pattern: reference.String()}}
		s.Type = ""
	}
}

func fieldByKey(v reflect.Value, key string) reflect.Value {
	if v.IsValid() {
		for f := range v.Type().Fields() {
			if f.Tag.Get("yaml") == key {
				return v.FieldByIndex(f.Index)
			}
		}
	}
	return reflect.Value{}
}

var choice = regexp.MustCompile(`"\?" is not (?:one of|known: set(?: one of)?) (.+)$`)

// valuesAt returns the valid values at path, as the error message for an invalid value lists them. It returns none if
// any value is valid.
func valuesAt(t *testing.T, path string) []any {
	t.Helper()
	var doc any = "?"
	keys := strings.Split(path, ".")
	for i := len(keys) - 1; i >= 0; i-- {
		key, list := strings.CutSuffix(keys[i], "[]")
		if list {
			doc = []any{doc}
		}
		doc = map[string]any{key: doc}
	}
	text, err := yaml.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	_, err = parse("test", text, nil, testEnv)
	at := ": " + strings.ReplaceAll(path, "[]", "[0]") + ": "
	for line := range strings.Lines(err.Error()) {
		if m := choice.FindStringSubmatch(strings.TrimSpace(line)); m != nil && strings.Contains(line, at) {
			var values []any
			for _, v := range strings.Split(strings.ReplaceAll(m[1], " or ", ", "), ", ") {
				values = append(values, v)
			}
			return values
		}
	}
	return nil
}
