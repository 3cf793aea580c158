package plan

import (
	"testing"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// TestSelectors: a recorded selection shows the selectors that it was made of, with and without an API version.
func TestSelectors(t *testing.T) {
	for _, c := range []event.Collection{
		{},
		{LabelSelector: "app=web,track in (a,b)"},
		{FieldSelector: "metadata.namespace!=kube-system,spec.nodeName=a"},
		{LabelSelector: "app=web", FieldSelector: "metadata.name=a&fields=b"},
	} {
		selection := SelectionOf(&c)
		for _, text := range []string{selection, InVersion(selection, "v1"), InVersion(InVersion(selection, "v1"), "v2")} {
			if labels, fields := Selectors(text); labels != c.LabelSelector || fields != c.FieldSelector {
				t.Errorf("%q has the selectors %q and %q, want %q and %q", text, labels, fields, c.LabelSelector, c.FieldSelector)
			}
		}
		if got, want := InVersion(InVersion(selection, "v1"), "v2"), InVersion(selection, "v2"); got != want {
			t.Errorf("in another version it is %q, want %q", got, want)
		}
	}
}
