package plan

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A collection whose namespace was deleted is read until everything from before the deletion is decided, and not longer: a namespace of the same
// name may belong to somebody else.
func TestDepartures(t *testing.T) {
	var (
		requests []string
		failure  error
		again    bool // namespace c exists again
	)
	d := NewDepartures(&Cluster{})
	d.exists = func(_ context.Context, namespace string) (bool, error) {
		requests = append(requests, namespace)
		return namespace == "kept" || namespace == "c" && again, failure
	}
	begun := time.Now()
	p := Make([]Entry{{Resource: "pods", NamespaceSelector: "ci"}}, nil, catalogOf("pods.v1."), labelled(map[string][]string{"ci": nil}), nil)
	at := func(namespace string, held Held, read time.Time) Known {
		return Known{ID: "pods@" + namespace, Held: held, Read: read}
	}
	later := begun.Add(time.Hour)
	for n, step := range []struct {
		known    []Known
		err      error
		again    bool
		want     string // outcomes
		requests string
	}{
		{known: []Known{at("a", Empty, begun), at("b", Objects, begun)}, err: errors.New("timeout"), want: "ended pods@a, ended pods@b", requests: "a"},
		{known: []Known{at("a", Empty, begun), at("b", Objects, begun)}, want: "ended pods@a, ended pods@b", requests: "a b"},
		{known: []Known{at("a", Empty, begun), at("b", Objects, begun)}, err: errors.New("timeout"), want: "ended pods@a, ended pods@b", requests: "a"},
		{known: []Known{at("a", Empty, later), at("b", Objects, time.Time{})}, want: "ended pods@b, removed pods@a", requests: "b"},
		{known: []Known{{ID: "pods@a", Leaving: true, Held: Objects}, at("b", Objects, later)}, want: "removed pods@a, removed pods@b"},
		{known: []Known{at("a", Nothing, begun), at("b", Gone, begun), at("kept", Objects, later)}, want: "removed pods@a, removed pods@b, removed pods@kept", requests: "kept"},
		{known: []Known{at("b", Objects, later)}, want: "ended pods@b", requests: "b"}, // it was selected meanwhile
		{known: []Known{at("c", Objects, begun)}, want: "ended pods@c", requests: "c"},
		{known: []Known{at("c", Objects, begun)}, again: true, want: "removed pods@c", requests: "c"},
	} {
		failure, requests, again = step.err, nil, step.again
		out := d.Outcomes(t.Context(), &p, step.known)
		if got, asked := strings.Join(out.outline(), ", "), strings.Join(requests, " "); got != step.want || asked != step.requests {
			t.Errorf("plan %d: %s after requests for %q, want %s after %q", n, got, asked, step.want, step.requests)
		}
	}
}

// Thousands of namespaces that were deleted while a bus is away must not cost a request each in every plan. Each is asked about again in its turn.
func TestDeparturesOfManyNamespaces(t *testing.T) {
	const many = 100
	asked := map[string]int{}
	d := NewDepartures(&Cluster{})
	d.exists = func(_ context.Context, namespace string) (bool, error) {
		asked[namespace]++
		return false, nil
	}
	entries := []Entry{{Resource: "pods", NamespaceSelector: "ci"}, {Resource: "pods", Name: "b", NamespaceSelector: "ci"}}
	p := Make(entries, nil, catalogOf("pods.v1."), labelled(map[string][]string{"ci": nil}), nil)
	var known []Known
	for i := range many {
		known = append(known, Known{ID: fmt.Sprintf("pods@n%d", i), Held: Objects}, Known{ID: fmt.Sprintf("pods:b@n%d", i), Held: Objects})
	}
	total := func() (sum int) {
		for _, n := range asked {
			sum += n
		}
		return sum
	}
	for plans := 0; ; plans++ {
		if plans > many {
			t.Fatalf("%d plans made %d requests", plans, total())
		}
		before := total()
		if out := d.Outcomes(t.Context(), &p, known); len(out.Ended) != 2*many {
			t.Fatalf("%d collections are ended", len(out.Ended))
		}
		if requests := total() - before; plans > 0 && requests > many/4 {
			t.Fatalf("plan %d made %d requests", plans, requests)
		}
		if total() >= 2*many {
			break
		}
	}
	for namespace, n := range asked {
		if n < 2 || n > 3 { // the last plan has asked about some for the third time
			t.Errorf("%s was asked about %d times, others twice", namespace, n)
		}
	}
}

// A namespace that exists must cost one request in a plan, however many resources have a collection of it: plans are made one after another, and each
// waits for its requests.
func TestDeparturesOfExistingNamespaces(t *testing.T) {
	const resources, many = 50, 20
	asked := map[string]int{}
	d := NewDepartures(&Cluster{})
	d.exists = func(_ context.Context, namespace string) (bool, error) {
		asked[namespace]++
		return true, nil
	}
	var (
		entries []Entry
		known   []Known
	)
	for i := range resources {
		name := fmt.Sprintf("e%d", i)
		entries = append(entries, Entry{Resource: "pods", Name: name, NamespaceSelector: "ci"})
		for n := range many {
			known = append(known, Known{ID: fmt.Sprintf("pods:%s@n%d", name, n), Held: Objects})
		}
	}
	p := Make(entries, nil, catalogOf("pods.v1."), labelled(map[string][]string{"ci": nil}), nil)
	for plans := 1; plans <= 2; plans++ {
		if out := d.Outcomes(t.Context(), &p, known); len(out.Removed) != resources*many {
			t.Fatalf("plan %d: %d collections are removed", plans, len(out.Removed))
		}
		for n := range many {
			if namespace := fmt.Sprintf("n%d", n); asked[namespace] != plans { // another plan asks again: the namespace may be absent by now
				t.Errorf("%d plans asked %d times about %s", plans, asked[namespace], namespace)
			}
		}
	}
}
