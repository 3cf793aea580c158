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

// Code and clients are generated from the document: it must say what the program writes, and where.
func TestAsyncAPI(t *testing.T) {
	raw, err := os.ReadFile("asyncapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc asyncAPI
	if err := yaml.UnmarshalWithOptions(raw, &doc, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	if doc.AsyncAPI != "3.0.0" || doc.Info.Title == "" || doc.Info.Version == "" || doc.DefaultContentType != "application/cloudevents+json" {
		t.Errorf("the head is %+v", doc.Info)
	}
	got, want := map[string]string{}, map[string]string{}
	for typ := event.Added; typ <= event.Closed; typ++ {
		want[typ.String()] = typ.CloudEvent()
	}
	for name, m := range doc.Components.Messages {
		got[name] = m.Name
		if _, err := os.Stat(m.Payload.Ref); err != nil || m.Summary == "" {
			t.Errorf("message %s refers to %q: %v", name, m.Payload.Ref, err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("messages (-program +document):\n%s", diff)
	}
	for _, o := range doc.Operations {
		if _, known := doc.Channels[strings.TrimPrefix(o.Channel.Ref, "#/channels/")]; !known || o.Action != "send" {
			t.Errorf("an operation is %+v", o)
		}
	}

	events, err := os.ReadFile("events.md")
	if err != nil {
		t.Fatal(err)
	}
	carried := map[string]bool{}
	for name, c := range doc.Channels {
		documented := strings.NewReplacer("{cluster}", "<cluster>", "{group}", "<group>", "{resource}", "<resource>", "{type}", "<type>").Replace(c.Address)
		if !strings.Contains(string(events), "`"+c.Address+"`") && !strings.Contains(string(events), "`"+documented+"`") {
			t.Errorf("channel %s: events.md knows no %s", name, c.Address)
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
		for message, r := range c.Messages {
			if r.Ref != "#/components/messages/"+message {
				t.Errorf("channel %s: message %s refers to %q", name, message, r.Ref)
			}
			carried[message] = true
		}
	}
	if len(carried) != len(want) {
		t.Errorf("the channels carry %v", carried)
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
