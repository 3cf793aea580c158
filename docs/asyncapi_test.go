package docs

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
)

type ref struct {
	Ref string `yaml:"$ref"`
}

// asyncAPI is as much of an AsyncAPI 3.0 document as this one needs; what else it holds is an error.
type asyncAPI struct {
	AsyncAPI string `yaml:"asyncapi"`
	Info     struct {
		Title, Version, Description string
		License                     struct{ Name string }
	}
	DefaultContentType string `yaml:"defaultContentType"`
	Channels           map[string]struct {
		Address, Description string
		Parameters           map[string]struct {
			Description string
			Enum        []string
		}
		Messages map[string]ref
		Bindings map[string]any
	}
	Operations map[string]struct {
		Action  string
		Channel ref
	}
	Components struct {
		Messages map[string]struct {
			Name, Summary string
			Payload       ref
		}
	}
}

func readAsyncAPI(t *testing.T) *asyncAPI {
	t.Helper()
	raw, err := os.ReadFile("asyncapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc asyncAPI
	if err := yaml.UnmarshalWithOptions(raw, &doc, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	return &doc
}

// Code and clients are generated from the document: it must say what the program writes.
func TestAsyncAPI(t *testing.T) {
	doc := readAsyncAPI(t)
	if doc.AsyncAPI != "3.0.0" || doc.Info.Title == "" || doc.Info.Version == "" || doc.DefaultContentType != "application/cloudevents+json" {
		t.Errorf("the head is %+v", doc.Info)
	}
	messages, known := map[string]string{}, map[string]string{}
	for typ := event.Added; typ <= event.Lost; typ++ {
		known[typ.String()] = typ.CloudEvent()
	}
	for name, m := range doc.Components.Messages {
		messages[name] = m.Name
		if _, err := os.Stat(m.Payload.Ref); err != nil || m.Summary == "" {
			t.Errorf("message %s refers to %q: %v", name, m.Payload.Ref, err)
		}
	}
	if diff := cmp.Diff(known, messages); diff != "" {
		t.Errorf("messages (-program +document):\n%s", diff)
	}
	for _, o := range doc.Operations {
		if _, exists := doc.Channels[strings.TrimPrefix(o.Channel.Ref, "#/channels/")]; !exists || o.Action != "send" {
			t.Errorf("an operation is %+v", o)
		}
	}
	carried := map[string]bool{}
	for name, c := range doc.Channels {
		for message, r := range c.Messages {
			if r.Ref != "#/components/messages/"+message {
				t.Errorf("channel %s: message %s refers to %q", name, message, r.Ref)
			}
			carried[message] = true
		}
	}
	if len(carried) != len(known) {
		t.Errorf("the channels carry %v", carried)
	}
}

// It must also say where the program writes: a client that subscribes elsewhere receives nothing.
func TestAsyncAPIAddresses(t *testing.T) {
	doc := readAsyncAPI(t)
	events, err := os.ReadFile("events.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range doc.Channels {
		_, object, _ := strings.Cut(c.Address, "{namespace}.{name}")
		template := "`" + strings.TrimSuffix(c.Address, object) + "`"
		if object != "" { // appended to the default
			template += ", and `" + object + "`"
		}
		if !strings.Contains(string(events), template) && !strings.Contains(string(events), strings.NewReplacer("{", "<", "}", ">").Replace(template)) {
			t.Errorf("channel %s: events.md does not have %s", name, template)
		}
		var parameters []string
		for _, part := range strings.Split(c.Address, ".") {
			if strings.HasPrefix(part, "{") {
				parameters = append(parameters, strings.Trim(part, "{}"))
			}
		}
		slices.Sort(parameters)
		if diff := cmp.Diff(parameters, slices.Sorted(maps.Keys(c.Parameters))); diff != "" {
			t.Errorf("channel %s: parameters (-address +document):\n%s", name, diff)
		}
	}
	if got := doc.Channels["natsObject"].Address; got != shape.DefaultSubject {
		t.Errorf("the subject of an object is %s, want the default %s", got, shape.DefaultSubject)
	}
	if got := doc.Channels["natsObjectOfEntry"].Address; got != shape.DefaultSubject+".{entry}" {
		t.Errorf("the subject of an object of an entry is %s", got)
	}
	subject, err := shape.ParseTemplate(shape.DefaultSubject, shape.SubjectNames)
	if err != nil {
		t.Fatal(err)
	}
	values := shape.Values{Cluster: "cluster", Group: "group", Resource: "resource", Namespace: "namespace", Entry: "entry"}
	got, want := strings.NewReplacer("{", "", "}", "").Replace(doc.Channels["natsCollection"].Address), subject.EntryCollectionSubject(values, "kind")
	if got != want {
		t.Errorf("the subject of a collection is %s, the program's is %s", got, want)
	}
	for where, file := range map[string]string{"kafkaTopic": "../pkg/sink/kafka/config.go", "natsObject": "../pkg/sink/nats/config.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(source), `"`+doc.Channels[where].Address+`"`) {
			t.Errorf("%s is not the default of %s", doc.Channels[where].Address, file)
		}
	}
}
