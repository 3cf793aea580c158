package plan

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// A collection whose namespace was deleted is read until everything from before the deletion is decided. The API server is asked once for each
// namespace, however long that takes: otherwise thousands of short namespaces would cost it a request each in every plan.
func TestDepartures(t *testing.T) {
	var (
		requests []string
		failure  error
	)
	d := NewDepartures(&Cluster{})
	d.exists = func(_ context.Context, namespace string) (bool, error) {
		requests = append(requests, namespace)
		return namespace == "kept", failure
	}
	begun := time.Now()
	p := Make([]Entry{{Resource: "pods", NamespaceSelector: "ci"}}, nil, catalogOf("pods.v1."), labelled(map[string][]string{"ci": nil}))
	at := func(namespace string, held Held, read time.Time) Known {
		return Known{ID: "pods@" + namespace, Held: held, Read: read}
	}
	later := begun.Add(time.Hour)
	for n, step := range []struct {
		known    []Known
		err      error
		want     string // outcomes
		requests string
	}{
		{known: []Known{at("a", Empty, begun), at("b", Objects, begun)}, err: errors.New("timeout"), want: "ended pods@a, ended pods@b", requests: "a"},
		{known: []Known{at("a", Empty, begun), at("b", Objects, begun)}, want: "ended pods@a, ended pods@b", requests: "a b"},
		{known: []Known{at("a", Empty, begun), at("b", Objects, later)}, want: "ended pods@a, ended pods@b"},
		{known: []Known{at("a", Empty, later), at("b", Objects, time.Time{})}, want: "ended pods@b, removed pods@a"},
		{known: []Known{{ID: "pods@a", Leaving: true, Held: Objects}, at("b", Empty, later)}, want: "removed pods@a, removed pods@b"},
		{known: []Known{at("a", Nothing, begun), at("b", Gone, begun), at("kept", Objects, later)}, want: "removed pods@a, removed pods@b, removed pods@kept", requests: "kept"},
		{known: []Known{at("b", Objects, later)}, want: "ended pods@b", requests: "b"}, // it was selected meanwhile
	} {
		failure, requests = step.err, nil
		out := d.Outcomes(t.Context(), &p, step.known)
		if got, asked := strings.Join(out.outline(), ", "), strings.Join(requests, " "); got != step.want || asked != step.requests {
			t.Errorf("plan %d: %s after requests for %q, want %s after %q", n, got, asked, step.want, step.requests)
		}
	}
}
