package discovery

import (
	"errors"
	"strings"
	"testing"
)

// Two swapped letters count as one change, and names that are too different are not suggested.
func TestNearest(t *testing.T) {
	known := []string{"pods", "nodes", "deployments"}
	for _, c := range []struct {
		name  string
		limit int
		want  string
	}{
		{"pdos", 1, "pods"},
		{"Nodse", 1, "nodes"},
		{"deploments", 2, "deployments"},
		{"jobs", 1, ""},
		{"", 1, ""},
	} {
		if got := Nearest(c.name, known, c.limit); got != c.want {
			t.Errorf("%q within %d is %q, want %q", c.name, c.limit, got, c.want)
		}
	}
}

// The error for a misspelt resource suggests the nearest name, in the form in which it was written.
func TestFindSuggests(t *testing.T) {
	c := handMade(nil, cluster()...)
	for name, want := range map[string]string{
		"deploymnets": `did you mean "deployments"?`, "deployments.app": `did you mean "deployments.apps"?`, "pods.cor": `did you mean "pods.core"?`,
	} {
		if _, err := c.Find(Parse(name)); !errors.Is(err, ErrNoResource) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	for _, name := range []string{"certificates", "bindngs"} { // unknown, and nothing that can be watched
		if _, err := c.Find(Parse(name)); !errors.Is(err, ErrNoResource) || strings.Contains(err.Error(), "did you mean") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
