package plan

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// asking is the API server that departures ask.
type asking struct {
	namespaces map[string]bool // those that exist
	present    string          // resourceVersion
	err        error
	requests   []string
}

func (a *asking) departures() *Departures {
	d := NewDepartures(&Cluster{})
	d.exists = func(_ context.Context, namespace string) (bool, error) {
		a.requests = append(a.requests, "get "+namespace)
		return a.namespaces[namespace], a.err
	}
	d.version = func(_ context.Context, r discovery.Resource, _ time.Time) (string, error) {
		a.requests = append(a.requests, "list "+r.Name)
		return a.present, a.err
	}
	return d
}

// took returns the requests since the last call.
func (a *asking) took() string {
	text := strings.Join(a.requests, ", ")
	a.requests = nil
	return text
}

// A collection whose namespace was deleted is read until it has passed a resourceVersion from after the deletion. The API server is asked once for
// each namespace and each resource, however long that takes: otherwise thousands of short namespaces would cost it a request each in every plan.
func TestDepartures(t *testing.T) {
	a := &asking{namespaces: map[string]bool{"kept": true}, present: "100"}
	d := a.departures()
	p := Make([]Entry{{Resource: "pods", NamespaceSelector: "ci"}}, nil, catalogOf("pods.v1."), labelled(map[string][]string{"ci": nil}))
	at := func(namespace string, held Held, read string, epoch uint64) Known {
		return Known{ID: "pods@" + namespace, Held: held, Read: read, Epoch: epoch}
	}
	for n, step := range []struct {
		known    []Known
		err      error
		present  string
		want     string // outcomes
		requests string
	}{
		{known: []Known{at("a", Empty, "90", 1), at("b", Objects, "90", 1)}, err: errors.New("timeout"), want: "ended pods@a, ended pods@b", requests: "get a"},
		{known: []Known{at("a", Empty, "90", 1), at("b", Objects, "90", 1)}, want: "ended pods@a, ended pods@b", requests: "get a, get b"},
		{known: []Known{at("a", Empty, "", 1), at("b", Objects, "90", 1)}, want: "ended pods@a, ended pods@b"},
		{known: []Known{at("a", Empty, "90", 1), at("b", Empty, "90", 1)}, err: errors.New("timeout"), want: "ended pods@a, ended pods@b", requests: "list pods"},
		{known: []Known{at("a", Empty, "90", 1), at("b", Empty, "90", 1)}, want: "ended pods@a, ended pods@b", requests: "list pods"},
		{known: []Known{at("a", Empty, "99", 1), at("b", Empty, "", 1)}, want: "ended pods@a, ended pods@b"},
		{known: []Known{at("a", Empty, "100", 1), at("b", Objects, "101", 1)}, want: "ended pods@b, removed pods@a"},
		{known: []Known{{ID: "pods@a", Leaving: true, Held: Objects}, at("b", Empty, "40", 2)}, present: "50", want: "ended pods@b, removed pods@a", requests: "list pods"},
		{known: []Known{at("a", Nothing, "", 1), at("b", Empty, "51", 2)}, want: "removed pods@a, removed pods@b"},
		{known: []Known{at("b", Gone, "", 2), at("kept", Objects, "1", 1)}, want: "removed pods@b, removed pods@kept", requests: "get kept"},
		{known: []Known{at("b", Objects, "60", 2)}, want: "ended pods@b", requests: "get b"}, // it was selected meanwhile
	} {
		if a.err = step.err; step.present != "" {
			a.present = step.present
		}
		time.Sleep(time.Microsecond) // plans begin at different times
		out := d.Outcomes(t.Context(), &p, step.known)
		if got, requests := strings.Join(out.outline(), ", "), a.took(); got != step.want || requests != step.requests {
			t.Errorf("plan %d: %s after %q, want %s after %q", n, got, requests, step.want, step.requests)
		}
	}
}

// All collections of a resource whose namespaces are absent share a request.
func TestDeparturesOfManyNamespaces(t *testing.T) {
	a := &asking{present: "100"}
	d := a.departures()
	p := Make([]Entry{{Resource: "pods", NamespaceSelector: "ci"}, {Resource: "secrets", NamespaceSelector: "ci"}}, nil, catalogOf("pods.v1.", "secrets.v1."), labelled(map[string][]string{"ci": nil}))
	var known []Known
	for n := range 1000 {
		for _, r := range []string{"pods", "secrets"} {
			known = append(known, Known{ID: fmt.Sprintf("%s@n%d", r, n), Held: Empty, Read: "90", Epoch: 1})
		}
	}
	for range 4 {
		time.Sleep(time.Microsecond)
		if out := d.Outcomes(t.Context(), &p, known); len(out.Ended) != len(known) {
			t.Fatalf("%d collections are ended, want %d", len(out.Ended), len(known))
		}
	}
	if len(a.requests) != 1002 {
		t.Errorf("%d requests, want one for each namespace and each resource", len(a.requests))
	}
}
