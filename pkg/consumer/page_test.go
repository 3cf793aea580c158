package consumer_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
)

const page = "../../docs/events.md"

// row is a row of the page's example.
type row struct {
	n, collection, typ, run, version, plan string
	heldBy, shownAt, complete              string
}

func exampleRows(t *testing.T) []row {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	for _, m := range regexp.MustCompile(`(?m)^\| \d+ \|.*\|$`).FindAllString(string(text), -1) {
		cells := strings.Split(m, "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) != 11 {
			t.Fatalf("%q has %d cells", m, len(cells))
		}
		rows = append(rows, row{cells[1], cells[2], cells[3], cells[4], cells[5], cells[6], cells[7], cells[8], cells[9]})
	}
	if len(rows) < 10 {
		t.Fatalf("%s has %d rows of an example", page, len(rows))
	}
	return rows
}

var exampleEncoder = event.Encoder{Cluster: "prod-eu-1", ClusterUID: "0b8c2f6e-5d0e-4c39-9a6c-0f7e3f1f5d11"}

// event is the event that a row describes.
func (r row) event(t *testing.T) event.Event {
	n, err := strconv.Atoi(r.n)
	if err != nil {
		t.Fatal(err)
	}
	typ, reason, _ := strings.Cut(r.typ, ", ")
	e := event.Event{
		Collection: &event.Collection{Group: "apps", Resource: "deployments", Entry: r.collection},
		Time:       time.Date(2026, 3, 14, 9, 26, n, 0, time.UTC), Origin: event.Watch, ResourceVersion: r.version, Run: r.run, Nth: 1,
		Incarnation: map[string]uint64{"stable": 100, "canary": 200}[r.collection],
	}
	for e.Type = event.Added; e.Type.String() != typ; e.Type++ {
		if e.Type > event.Closed {
			t.Fatalf("row %s has the type %q", r.n, r.typ)
		}
	}
	if !e.Type.OfCollection() {
		e.APIVersion, e.Kind, e.Namespace, e.Name, e.UID = "apps/v1", "Deployment", "shop", "web", "u-1"
		e.Object = []byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop","uid":"u-1","resourceVersion":"` + r.version + `","labels":{"track":"` + r.collection + `"}}}`)
		return e
	}
	e.Origin, e.Report = event.Reconcile, &event.Report{Reason: event.Reason(reason), Reset: reason == "reset", To: r.version}
	switch {
	case e.Type == event.Closed:
		e.Report.Reason = "removed"
	case reason == "periodic":
		e.Nth = 2
	case reason == "":
		e.Report.Reason = "selection"
	}
	plan := strings.Fields(r.plan)
	e.Plan = &event.Plan{Digest: plan[1], Birth: 1}
	e.Plan.Number, _ = strconv.ParseUint(plan[0], 10, 64)
	e.Plan.Edit, _ = strconv.ParseUint(plan[2], 10, 64)
	return e
}

// Readers follow the page's example by hand, so the copy must do exactly what the example says.
func TestPageExample(t *testing.T) {
	state := consumer.State{}
	holders := map[string]bool{}
	for _, r := range exampleRows(t) {
		e := r.event(t)
		change, err := state.Apply(consumer.Message{Topic: "t", Value: event.Structured.Append(nil, exampleEncoder.Attributes(&e), &e)})
		if err != nil {
			t.Fatalf("row %s: %v", r.n, err)
		}
		got := row{n: r.n, collection: r.collection, typ: r.typ, run: r.run, version: r.version, plan: r.plan, complete: "no"}
		if change.Event != nil {
			switch {
			case e.Type == event.Deleted || e.Type == event.Closed:
				delete(holders, r.collection)
			case !e.Type.OfCollection():
				holders[r.collection] = true
			}
		}
		for _, id := range []string{"canary", "stable"} {
			if holders[id] {
				got.heldBy = strings.TrimPrefix(got.heldBy+", "+id, ", ")
			}
		}
		if o, ok := state.Get(consumer.Name{Cluster: "prod-eu-1", Resource: "deployments.apps", Namespace: "shop", Name: "web"}); ok {
			got.shownAt = o.ResourceVersion
		}
		if at, ok := state.Complete("prod-eu-1", "deployments.apps"); ok {
			got.complete = at.ResourceVersion
		}
		if diff := cmp.Diff(r, got, cmp.AllowUnexported(row{})); diff != "" {
			t.Errorf("row %s (-page +copy):\n%s", r.n, diff)
		}
	}
}

// The events on the page are exactly what the encoder writes.
func TestPageEvents(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	rows := exampleRows(t)
	for name, n := range map[string]int{"added": 6, "synced": 12} {
		_, after, found := bytes.Cut(text, []byte("<!-- "+name+" -->\n```json\n"))
		shown, _, closed := bytes.Cut(after, []byte("\n```"))
		if !found || !closed {
			t.Fatalf("%s has no example %s", page, name)
		}
		e := rows[n-1].event(t)
		var want bytes.Buffer
		if err := json.Indent(&want, event.Structured.Append(nil, exampleEncoder.Attributes(&e), &e), "", "  "); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.String(), string(shown)); diff != "" {
			t.Errorf("%s (-encoder +page):\n%s", name, diff)
		}
	}
}
