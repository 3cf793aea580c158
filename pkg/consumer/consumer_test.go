package consumer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
)

func golden(t testing.TB, name string) []byte {
	t.Helper()
	return readFile(t, filepath.Join("../event/testdata", name+".json"))
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// An event is the same event in every format, from either bus.
func TestDecodeFormats(t *testing.T) {
	files, err := filepath.Glob("../event/testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("golden files: %v, %v", files, err)
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		want, wantErr := consumer.Decode(consumer.Message{Value: golden(t, name)})
		for _, format := range []string{"binary", "plain"} {
			head, value, ok := bytes.Cut(readFile(t, filepath.Join("../event/testdata", format, name+".txt")), []byte("\n\n"))
			if !ok {
				t.Fatalf("%s of %s has no empty line", format, name)
			}
			for bus, prefix := range map[string]string{"Kafka": "ce_", "NATS": "ce-"} {
				m := consumer.Message{Value: bytes.TrimSpace(value), Headers: map[string]string{"content-type": "application/json"}}
				for line := range strings.Lines(string(head)) {
					name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
					if bus == "NATS" {
						value = strings.ReplaceAll(strings.ReplaceAll(value, "%", "%25"), ":", "%3A")
					}
					m.Headers[prefix+name] = value
				}
				got, err := consumer.Decode(m)
				if errors.Is(wantErr, consumer.ErrNoEvent) { // a dead letter
					if !errors.Is(err, consumer.ErrNoEvent) {
						t.Errorf("%s, %s, %s: %v, want %v", name, format, bus, err, wantErr)
					}
					continue
				}
				if err := errors.Join(err, wantErr); err != nil {
					t.Fatalf("%s, %s, %s: %v", name, format, bus, err)
				}
				if !json.Valid(got.Data) {
					t.Errorf("%s, %s, %s: data is %s", name, format, bus, got.Data)
				}
				want := *want
				if format == "plain" { // only the object: its data is put together again, without what changed
					want.Data, want.Before, want.Patch, want.Base, want.ChangedBy = got.Data, nil, nil, "", nil
				}
				if diff := cmp.Diff(&want, got); diff != "" {
					t.Errorf("%s, %s, %s (-structured +got):\n%s", name, format, bus, diff)
				}
			}
		}
	}
}

// What is no part of the copy must neither change it nor stop who reads on.
func TestDecodeRefuses(t *testing.T) {
	for name, x := range map[string]struct {
		m    consumer.Message
		want error
	}{
		"tombstone":    {consumer.Message{Topic: "k8s"}, consumer.ErrNoEvent},
		"dead letter":  {consumer.Message{Value: golden(t, "dead-letter")}, consumer.ErrNoEvent},
		"text":         {consumer.Message{Value: []byte("hello")}, event.ErrNotEvent},
		"other type":   {consumer.Message{Value: []byte(`{"specversion":"1.0","type":"com.example.order","id":"7"}`)}, event.ErrUnknownType},
		"broken value": {consumer.Message{Value: []byte("{}"), Headers: map[string]string{"ce-specversion": "%"}}, event.ErrNotEvent},
	} {
		if e, err := consumer.Decode(x.m); !errors.Is(err, x.want) || e != nil {
			t.Errorf("%s: got %v, %v; want %v", name, e, err, x.want)
		}
	}
}

// Of two headers that say what an object is called, none is taken: which one it would be
// was chance.
func TestDecodeRefusesTwoSpellings(t *testing.T) {
	head, value, _ := bytes.Cut(readFile(t, "../event/testdata/binary/added.txt"), []byte("\n\n"))
	m := consumer.Message{Value: bytes.TrimSpace(value), Headers: map[string]string{}}
	for line := range strings.Lines(string(head)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		m.Headers["ce_"+name] = value
	}
	e, err := consumer.Decode(m)
	if err != nil {
		t.Fatal(err)
	}
	m.Headers["Ce-Name"] = e.Name
	if _, err := consumer.Decode(m); err != nil {
		t.Errorf("the same twice: %v", err)
	}
	m.Headers["Ce-Name"] = "other"
	for range 20 {
		if e, err := consumer.Decode(m); !errors.Is(err, event.ErrNotEvent) {
			t.Fatalf("%+v, %v", e, err)
		}
	}
}

// told makes messages of one partition.
type told struct {
	at  time.Time
	all []consumer.Message
}

func (b *told) add(collection string, e event.Event) *told {
	c := event.ParseCollection(collection)
	b.at = b.at.Add(time.Second)
	e.Collection, e.Time, e.Origin = &c, b.at, event.Watch
	if !e.Type.OfCollection() {
		e.APIVersion, e.Kind, e.Namespace = "v1", "Pod", "ns"
		e.Entry = e.ResourceVersion
	}
	encoder := event.Encoder{Cluster: "test", ClusterUID: "c"}
	b.all = append(b.all, consumer.Message{Topic: "k8s", Value: event.Structured.Append(nil, encoder.Attributes(&e), &e)})
	return b
}

func (b *told) object(collection string, typ event.Type, name, uid, rv string) *told {
	return b.add(collection, event.Event{Type: typ, Name: name, UID: uid, ResourceVersion: rv})
}

func (b *told) say(collection string, typ event.Type, rv, run string, r event.Report) *told {
	return b.add(collection, event.Event{Type: typ, ResourceVersion: rv, Run: run, Report: &r})
}

func (b *told) Next(context.Context) (consumer.Message, error) {
	if len(b.all) == 0 {
		return consumer.Message{}, io.EOF
	}
	m := b.all[0]
	b.all = b.all[1:]
	return m, nil
}

func copyOf(t *testing.T, s *consumer.State, b *told) string {
	t.Helper()
	for _, err := range s.Changes(t.Context(), b) {
		if err != nil {
			t.Fatal(err)
		}
	}
	var held []string
	for n, e := range s.All() {
		held = append(held, n.Name+"="+e.UID+"@"+e.ResourceVersion)
	}
	return strings.Join(held, " ")
}

// In a compacted topic the deletion of an object made again under its name may be
// missing, and its old state may still come.
func TestNameIsTakenOver(t *testing.T) {
	b := new(told).object("pods", event.Added, "web", "u1", "5").object("pods", event.Added, "web", "u2", "9").
		object("pods", event.Modified, "web", "u1", "6")
	if got := copyOf(t, &consumer.State{}, b); got != "web=u2@9" {
		t.Errorf("got %s", got)
	}
}

// Memory must stay bounded on a bus that runs for years, and an old message that
// lands late must not bring an object back meanwhile.
func TestEndsAreRememberedUpToALimit(t *testing.T) {
	late := func(s *consumer.State, n int) string {
		b := new(told)
		for i := range n {
			name := fmt.Sprint(i)
			b.object("pods", event.Added, name, "u"+name, "5").object("pods", event.Deleted, name, "u"+name, "7")
		}
		return copyOf(t, s, b.object("pods", event.Added, "0", "u0", "5"))
	}
	if got := late(&consumer.State{Remember: 3}, 3); got != "" {
		t.Errorf("an old message brought %s back", got)
	}
	if got := late(&consumer.State{Remember: 3}, 4); got == "" {
		t.Error("more is remembered than was asked for")
	}
}

// A bus that dropped its oldest messages cannot be said to hold all objects until
// they are told again.
func TestCompleteNeedsTheBeginning(t *testing.T) {
	complete := func(s *consumer.State, b *told) string {
		copyOf(t, s, b)
		rv, _, ok := s.Complete("test", "pods")
		return fmt.Sprint(rv, " ", ok)
	}
	periodic := func(b *told) *told { return b.say("pods", event.Synced, "40", "1", event.Report{Reason: "periodic"}) }
	var s consumer.State
	for _, step := range []struct {
		does string
		b    *told
		want string
	}{
		{"it begins in the middle", periodic(new(told)), " false"},
		{"a resync begins", new(told).say("pods", event.Gap, "40", "r", event.Report{Reason: "resync", From: "40"}), " false"},
		{"it ends", new(told).say("pods", event.Synced, "41", "r", event.Report{Reason: "resync", To: "41"}), "41 true"},
		{"a gap", new(told).say("pods", event.Gap, "41", "", event.Report{Reason: "expired", From: "41"}), " false"},
		{"it is closed", new(told).say("pods", event.Synced, "50", "", event.Report{Reason: "expired", To: "50"}), "50 true"},
		{"the collection ends", new(told).say("pods", event.Closed, "50", "", event.Report{Reason: "removed"}), " false"},
	} {
		if got := complete(&s, step.b); got != step.want {
			t.Errorf("%s: complete is %q, want %q", step.does, got, step.want)
		}
	}
	if got := complete(&consumer.State{Whole: true}, periodic(new(told))); got != "40 true" {
		t.Errorf("of a topic that keeps all: %q", got)
	}
}

// Objects move silently from a collection whose selection changed to its heirs; a
// reset of those drops them, or they would stay for ever.
func TestResetDropsWhatWasInherited(t *testing.T) {
	b := new(told).object("pods", event.Added, "kept", "u1", "5").object("pods", event.Added, "gone", "u2", "6").
		object("services", event.Added, "other", "u3", "7").
		say("pods?namespace=ns", event.Gap, "", "", event.Report{Reason: "snapshot"}).
		say("pods?namespace=ns", event.Synced, "8", "", event.Report{Reason: "snapshot", To: "8"}).
		say("pods", event.Closed, "8", "", event.Report{Reason: "selection"})
	var s consumer.State
	if got := copyOf(t, &s, b); got != "gone=u2@6 kept=u1@5 other=u3@7" {
		t.Errorf("before: %s", got)
	}
	b = &told{at: time.Unix(0, 0)}
	b.say("pods?namespace=ns", event.Gap, "", "r", event.Report{Reason: "reset", Reset: true}).
		add("pods?namespace=ns", event.Event{Type: event.Present, Name: "kept", UID: "u1", ResourceVersion: "5", Run: "r"})
	if got := copyOf(t, &s, b); got != "kept=u1@5 other=u3@7" {
		t.Errorf("after: %s", got)
	}
}

// A bridge whose clock is set back, or the next one's that is behind, is believed: where
// its gap was passed over, the copy would be out of date and not say so.
func TestClockIsSetBack(t *testing.T) {
	for _, by := range []time.Duration{0, -time.Hour, time.Hour} {
		var s consumer.State
		b := new(told).say("pods", event.Gap, "", "", event.Report{Reason: "snapshot"}).
			object("pods", event.Added, "web", "u1", "5").object("pods", event.Deleted, "web", "u1", "5").
			say("pods", event.Synced, "8", "", event.Report{Reason: "snapshot", To: "8"}).
			say("pods", event.Closed, "8", "", event.Report{Reason: "removed"}).
			say("pods", event.Gap, "", "2", event.Report{Reason: "snapshot"}).
			object("pods", event.Added, "api", "u2", "6")
		b.at = b.at.Add(by)
		b.object("pods", event.Added, "web", "u1", "9").say("pods", event.Synced, "9", "2", event.Report{Reason: "snapshot", To: "9"})
		if got := copyOf(t, &s, b); got != "api=u2@6 web=u1@9" {
			t.Errorf("by %s: %s", by, got)
		}
		if rv, _, ok := s.Complete("test", "pods"); rv != "9" || !ok {
			t.Errorf("by %s: complete up to %q, %t", by, rv, ok)
		}
		if copyOf(t, &s, (&told{at: b.at}).say("pods", event.Gap, "9", "", event.Report{Reason: "expired", From: "9"})); s.Len() != 2 {
			t.Errorf("by %s: %d objects", by, s.Len())
		}
		if _, _, ok := s.Complete("test", "pods"); ok {
			t.Errorf("by %s: it does not know of the gap", by)
		}
	}
}

// messages is a source that a test, or a client without one, may write.
type messages [][]byte

func (m *messages) Next(context.Context) (consumer.Message, error) {
	if len(*m) == 0 {
		return consumer.Message{}, io.EOF
	}
	value := (*m)[0]
	*m = (*m)[1:]
	return consumer.Message{Topic: "k8s.prod-eu-1.core.pods", Value: value}, nil
}

func ExampleState_Changes() {
	var source messages
	for _, name := range []string{"added", "modified", "added", "deleted"} {
		value, err := os.ReadFile("../event/testdata/" + name + ".json")
		if err != nil {
			fmt.Println(err)
			return
		}
		source = append(source, value)
	}
	var state consumer.State
	for change, err := range state.Changes(context.Background(), &source) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(change.Event.Type, change.Event.Kind, change.Event.Name)
	}
	for name, object := range state.All() {
		fmt.Println("left:", name.Resource, name.Namespace, name.Name, object.ResourceVersion)
	}
	// Output:
	// added Pod web-0
	// modified Deployment web
	// deleted Pod web-0
	// left: deployments.apps shop web 1057
}
