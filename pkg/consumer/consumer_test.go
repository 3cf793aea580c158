package consumer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
)

func golden(t testing.TB, name string) []byte {
	t.Helper()
	return readFile(t, filepath.Join("../../pkg/event/testdata", name+".json"))
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// An event decodes to the same value in every format, from either bus.
func TestDecodeFormats(t *testing.T) {
	files, err := filepath.Glob("../../pkg/event/testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("golden files: %v, %v", files, err)
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		want, wantErr := consumer.Decode(consumer.Message{Value: golden(t, name)})
		for _, format := range []string{"binary", "plain"} {
			head, value, ok := bytes.Cut(readFile(t, filepath.Join("../../pkg/event/testdata", format, name+".txt")), []byte("\n\n"))
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
				if format == "plain" { // the format has only the object: the data is built from it, without diff and changedBy
					want.Data, want.Before, want.Patch, want.Base, want.ChangedBy, want.LeftOut, want.Actor = got.Data, nil, nil, "", nil, nil, nil
				}
				if diff := cmp.Diff(&want, got); diff != "" {
					t.Errorf("%s, %s, %s (-structured +got):\n%s", name, format, bus, diff)
				}
			}
		}
	}
}

// A message without an event does not change the copy, and the reader can continue.
func TestDecodeRefuses(t *testing.T) {
	for name, x := range map[string]struct {
		m    consumer.Message
		want error
	}{
		"null value":   {consumer.Message{Topic: "k8s"}, consumer.ErrNoEvent},
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

// If two headers name an object differently, the message is refused, because the order of headers is random.
func TestDecodeRefusesTwoSpellings(t *testing.T) {
	head, value, _ := bytes.Cut(readFile(t, "../../pkg/event/testdata/binary/added.txt"), []byte("\n\n"))
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

// messages builds messages of one partition and of the collection "pods", whose incarnation is 1.
type messages []consumer.Message

func (m *messages) add(e event.Event, run string) {
	e.Time, e.Origin = time.Unix(int64(len(*m)+1), 0), event.Reconcile
	if e.Collection == nil {
		e.Collection = &event.Collection{Resource: "pods"}
	}
	e.Run, e.Incarnation = run, 1
	encoder := event.Encoder{Cluster: "test", ClusterUID: "c"}
	x := consumer.Message{Topic: "t", Value: event.Structured.Append(nil, encoder.Attributes(&e), &e), Headers: map[string]string{"content-type": event.Structured.ContentType()}}
	for _, a := range encoder.Attributes(&e) {
		x.Headers["ce_"+a.Name] = a.Value
	}
	*m = append(*m, x)
}

func (m *messages) object(t event.Type, run, name, version string) {
	m.add(event.Event{Type: t, APIVersion: "v1", Kind: "Pod", Namespace: "ns", Name: name, UID: "u-" + name, ResourceVersion: version, Object: []byte(`{}`)}, run)
}

func (m *messages) of(t event.Type, run string, reason event.Reason, version string) {
	m.add(event.Event{
		Type: t, ResourceVersion: version, Nth: 1, Report: &event.Report{Reason: reason, Reset: reason == "reset" && t == event.Gap},
		Plan: &event.Plan{Number: 1, Digest: event.PlanDigest(map[string]uint64{"pods": 1}), Edit: 1, Birth: 1},
	}, run)
}

// apply applies the messages that were added since the last call.
func (m *messages) apply(t *testing.T, s *consumer.State) {
	t.Helper()
	for _, x := range *m {
		if _, err := s.Apply(x); err != nil {
			t.Fatal(err)
		}
	}
	*m = nil
}

func names(s *consumer.State) string {
	var all []string
	for n := range s.All() {
		all = append(all, n.Name)
	}
	return strings.Join(all, " ")
}

// The test covers every transition in the table of Phase. After a wrong transition, a copy would count as complete while
// objects are missing, or would never be complete again.
func TestPhases(t *testing.T) {
	steps := map[string]func(m *messages, run string){
		"reset":   func(m *messages, run string) { m.of(event.Gap, run, "reset", "") },
		"resync":  func(m *messages, run string) { m.of(event.Gap, run, "resync", "") },
		"gap":     func(m *messages, run string) { m.of(event.Gap, run, "expired", "") },
		"synced":  func(m *messages, run string) { m.of(event.Synced, run, "expired", "9") },
		"object":  func(m *messages, run string) { m.object(event.Added, run, "a", "9"+run) },
		"closed":  func(m *messages, run string) { m.of(event.Closed, run, "removed", "") },
		"earlier": func(m *messages, _ string) { m.of(event.Gap, "1", "expired", "") },
	}
	for sequence, want := range map[string]consumer.Phase{
		"reset":                   consumer.Open,
		"resync":                  consumer.Resyncing,
		"gap":                     consumer.Partial,
		"synced":                  consumer.Partial,
		"object":                  consumer.Partial,
		"closed":                  consumer.Closed,
		"object resync":           consumer.Resyncing,
		"object reset":            consumer.Partial,
		"object gap":              consumer.Partial,
		"object synced":           consumer.Partial,
		"resync resync":           consumer.Resyncing,
		"resync gap":              consumer.Partial,
		"resync synced":           consumer.InStep,
		"resync object":           consumer.Resyncing,
		"reset resync":            consumer.Open,
		"reset gap":               consumer.Open,
		"reset synced":            consumer.InStep,
		"reset object":            consumer.Open,
		"reset synced resync":     consumer.InStep,
		"reset synced gap":        consumer.Open,
		"reset synced synced":     consumer.InStep,
		"reset synced object":     consumer.InStep,
		"reset synced earlier":    consumer.InStep,
		"reset synced closed":     consumer.Closed,
		"reset closed gap":        consumer.Closed,
		"reset closed synced":     consumer.Closed,
		"reset closed object":     consumer.Closed,
		"reset synced gap closed": consumer.Closed,
	} {
		t.Run(sequence, func(t *testing.T) {
			var s consumer.State
			var m messages
			for i, name := range strings.Fields(sequence) {
				steps[name](&m, fmt.Sprint(i+2))
			}
			m.apply(t, &s)
			all := s.Collections()
			if len(all) != 1 || all[0].Phase != want {
				t.Errorf("got %+v, want the phase %s", all, want)
			}
			if _, complete := s.Complete("test", "pods"); complete != (want == consumer.InStep) {
				t.Errorf("complete is %t", complete)
			}
			resources := maps.Collect(s.Resources())
			if _, open := resources["test"]; open != (want != consumer.Closed) || open && resources["test"] != "pods" {
				t.Errorf("the copy's resources are %v", resources)
			}
		})
	}
}

// A reader that is slower than the compaction of the topic may get only the null value.
func TestNullValueDeletes(t *testing.T) {
	for _, format := range []event.Format{event.Structured, event.Binary} {
		var s consumer.State
		var m messages
		m.of(event.Gap, "1", "reset", "")
		m.object(event.Present, "1", "a", "5")
		m.object(event.Present, "1", "b", "6")
		m.object(event.Deleted, "1", "a", "5")
		null := &m[len(m)-1]
		null.Value = nil
		null.Headers["content-type"] = format.ContentType()
		m.apply(t, &s)
		if got := names(&s); got != "b" {
			t.Errorf("%s: the copy has %q", format, got)
		}
	}
}

// The collection of a namespace that does not exist has no version. The namespace may be created again, with objects, at the
// version that the rest of the resource has reached, so the resource as a whole has no version. The campaign found this with
// seed 12049.
func TestCompleteBesideAMissingNamespace(t *testing.T) {
	for range 10 { // the order of collections in memory is random
		var s consumer.State
		var m messages
		for namespace, version := range map[string]string{"a": "", "b": "45", "c": "47"} {
			for _, typ := range []event.Type{event.Gap, event.Synced} {
				e := event.Event{Type: typ, Collection: &event.Collection{Resource: "pods", Namespace: namespace}, Nth: 1}
				e.Report = &event.Report{Reason: "reset", Reset: typ == event.Gap}
				e.Plan = &event.Plan{Number: 1, Digest: event.PlanDigest(map[string]uint64{"pods@a": 1, "pods@b": 1, "pods@c": 1}), Edit: 1, Birth: 1}
				if typ == event.Synced {
					e.ResourceVersion = version
				}
				m.add(e, "1")
			}
		}
		m.apply(t, &s)
		if at, ok := s.Complete("test", "pods"); !ok || at.ResourceVersion != "" || at.Time.IsZero() {
			t.Fatalf("complete is %t, at %+v; want no version", ok, at)
		}
	}
}

// A null value with the headers of another type than a deletion is not an event.
func TestNullValueOfAnotherType(t *testing.T) {
	var m messages
	m.object(event.Modified, "1", "a", "5")
	m[0].Value = nil
	if e, err := consumer.Decode(m[0]); !errors.Is(err, consumer.ErrNoEvent) {
		t.Errorf("%+v, %v", e, err)
	}
}

// The memory for deleted objects is bounded, and an old message that arrives late does not bring a recently deleted object
// back.
func TestEndsAreRememberedUpToALimit(t *testing.T) {
	for deletions, want := range map[int]string{3: "", 4: "0"} {
		s := consumer.State{Remember: 3}
		var m messages
		for i := range deletions {
			m.object(event.Added, "1", fmt.Sprint(i), "5")
			m.object(event.Deleted, "1", fmt.Sprint(i), "5")
		}
		m.object(event.Added, "1", "0", "5")
		m.apply(t, &s)
		if got := names(&s); got != want {
			t.Errorf("after %d deletions and a late message the copy has %q, want %q", deletions, got, want)
		}
	}
}

// Some aggregated APIs have resourceVersions that are not numbers. Their changes must not be ignored.
func TestVersionsThatAreNoNumbers(t *testing.T) {
	var s consumer.State
	var m messages
	for _, version := range []string{"zz", "aa", "aa"} {
		m.object(event.Modified, "1", "a", version)
	}
	m.apply(t, &s)
	e, ok := s.Get(consumer.Name{Cluster: "test", Resource: "pods", Namespace: "ns", Name: "a"})
	if !ok || e.ResourceVersion != "aa" {
		t.Errorf("got %+v", e)
	}
	m.object(event.Deleted, "1", "a", "aa")
	m.apply(t, &s)
	if s.Len() != 0 {
		t.Errorf("the copy has %q", names(&s))
	}
}

// A message of a foreign producer does not stop a consumer, but is reported.
func TestChanges(t *testing.T) {
	var s consumer.State
	var m messages
	m.of(event.Gap, "1", "reset", "")
	m.object(event.Present, "1", "a", "5")
	m.object(event.Present, "1", "a", "5")
	m = append(m, consumer.Message{Topic: "t", Value: []byte("hello")}, consumer.Message{Topic: "t"})
	m.object(event.Deleted, "1", "a", "5")
	m = append(m, consumer.Message{Topic: "t", Value: bytes.Replace(golden(t, "added"), []byte(`"incarnation":"1773400000000"`), []byte(`"new":"1"`), 1)})
	var got []string
	for c, err := range s.Changes(t.Context(), &m) {
		if err != nil {
			got = append(got, fmt.Sprint(errors.Is(err, event.ErrNotEvent)))
			continue
		}
		got = append(got, fmt.Sprintf("%s -%d +%d", c.Event.Type, len(c.Gone), len(c.Shown)))
	}
	if diff := cmp.Diff([]string{"gap -0 +0", "present -0 +1", "true", "deleted -1 +0", "true"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestChangesDropped: a caller that keeps the objects itself learns that a later birth has dropped them, also if the event itself changes nothing
// because it is the end of an earlier incarnation.
func TestChangesDropped(t *testing.T) {
	for _, keepsItself := range []bool{false, true} {
		var s consumer.State
		if keepsItself {
			s.Durable, s.Lookup = true, func(string) ([]byte, error) { return nil, nil }
		}
		var m messages
		m.of(event.Gap, "1", "reset", "")
		m.object(event.Present, "1", "a", "5")
		m.add(event.Event{Type: event.Closed, Report: &event.Report{Reason: "reset"}, Plan: &event.Plan{Number: 2, Digest: event.PlanDigest(nil), Edit: 2, Birth: 2}}, "1")
		dropped := 0
		for c, err := range s.Changes(t.Context(), &m) {
			if err != nil {
				t.Fatal(err)
			}
			dropped += len(c.Dropped)
		}
		if dropped != 1 || s.Len() != 0 {
			t.Errorf("a caller that keeps the objects itself: %t; %d collections are dropped, want 1; the copy has %q", keepsItself, dropped, names(&s))
		}
	}
}

// Next implements [consumer.Source].
func (m *messages) Next(context.Context) (consumer.Message, error) {
	if len(*m) == 0 {
		return consumer.Message{}, io.EOF
	}
	next := (*m)[0]
	*m = (*m)[1:]
	return next, nil
}

// After a restore from a backup, objects have lower resourceVersions in later runs. The copy must not ignore these objects, and
// a late message of the earlier run must not bring an object back.
func TestRunGoesBeforeVersion(t *testing.T) {
	var s consumer.State
	var m messages
	m.object(event.Present, "1", "a", "50")
	m.object(event.Modified, "2", "a", "7")
	m.object(event.Modified, "1", "a", "51")
	m.apply(t, &s)
	e, ok := s.Get(consumer.Name{Cluster: "test", Resource: "pods", Namespace: "ns", Name: "a"})
	if !ok || e.ResourceVersion != "7" {
		t.Errorf("the copy has %+v", e)
	}
}

// A synced event that arrives late, or again after a crash, must not set an earlier time.
func TestSyncedAgain(t *testing.T) {
	var s consumer.State
	var m messages
	m.of(event.Gap, "1", "reset", "")
	m.of(event.Synced, "1", "reset", "50")
	m.of(event.Synced, "1", "reset", "45")
	m.apply(t, &s)
	if at, ok := s.Complete("test", "pods"); !ok || at.ResourceVersion != "50" {
		t.Errorf("complete as of %+v: %t", at, ok)
	}
}

// TestEventsOfTheFuture: somebody who may write to the bus can lie, but not make a copy incomplete for good. An event that is more than a day ahead of the
// reader's clock does not count, and the error says why. The clocks of bridge and reader may differ by less.
func TestEventsOfTheFuture(t *testing.T) {
	now := uint64(time.Now().UnixMilli())
	day := uint64(event.MaxAhead.Milliseconds())
	encoder := event.Encoder{Cluster: "prod", ClusterUID: "u"}
	pods := &event.Collection{Resource: "pods"}
	plan := func(number, edit, birth uint64) *event.Plan {
		return &event.Plan{Number: number, Digest: event.PlanDigest(map[string]uint64{"pods": 1}), Edit: edit, Birth: birth}
	}
	gap := func(run, incarnation uint64, p *event.Plan, at time.Time) consumer.Message {
		e := event.Event{
			Type: event.Gap, Origin: event.Snapshot, Time: at, Collection: pods, Run: strconv.FormatUint(run, 10), Incarnation: incarnation, Plan: p,
			Report: &event.Report{Reason: event.ReasonReset, Reset: true},
		}
		return consumer.Message{Topic: "k8s", Value: event.Structured.Append(nil, encoder.Attributes(&e), &e)}
	}
	synced := event.Event{
		Type: event.Synced, Origin: event.Snapshot, Time: time.Now(), Collection: pods, Run: strconv.FormatUint(now, 10), Incarnation: now, Plan: plan(1, 1, 1),
		ResourceVersion: "50", Nth: 1, Report: &event.Report{Reason: event.ReasonReset, To: "50"},
	}
	var s consumer.State
	for _, m := range []consumer.Message{gap(now, now, plan(1, 1, 1), time.Now()), {Topic: "k8s", Value: event.Structured.Append(nil, encoder.Attributes(&synced), &synced)}} {
		if _, err := s.Apply(m); err != nil {
			t.Fatal(err)
		}
	}
	far := now + day + 60_000
	for name, m := range map[string]consumer.Message{
		"run":         gap(far, now, plan(2, 1, 1), time.Now()),
		"incarnation": gap(far, far, plan(2, 1, 1), time.Now()),
		"birth":       gap(now+1, now, plan(2, 1, far), time.Now()),
		"plan":        gap(now+1, now, plan(far, 1, 1), time.Now()),
		"edit":        gap(now+1, now, plan(2, far, 1), time.Now()),
		"time":        gap(now+1, now, plan(2, 1, 1), time.UnixMilli(int64(far))),
	} {
		change, err := s.Apply(m)
		if !errors.Is(err, event.ErrNotEvent) || !strings.Contains(err.Error(), "its "+name+" ") || !strings.Contains(err.Error(), "more than a day ahead of this clock") || change.Event != nil {
			t.Errorf("%s: %v %+v", name, err, change)
		}
	}
	if at, ok := s.Complete("prod", "pods"); !ok || at.ResourceVersion != "50" {
		t.Errorf("the copy is complete: %v, as of %+v", ok, at)
	}
	near := now + day - 60_000
	if change, err := s.Apply(gap(near, near, plan(2, 1, near), time.UnixMilli(int64(near)))); err != nil || !change.Applied {
		t.Errorf("less than a day ahead: %v %+v", err, change)
	}
}
