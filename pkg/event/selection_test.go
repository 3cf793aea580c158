package event_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// TestTypes: consumers read the published types as names, and nothing if all are published.
func TestTypes(t *testing.T) {
	all, none := event.Types(0), event.Types(0).Without(event.Added).Without(event.Modified).Without(event.Deleted)
	for _, c := range []struct {
		types   event.Types
		text    string
		leftOut []string
	}{
		{all, `{}`, []string{}},
		{all.Without(event.Deleted), `{"types":["added","modified"]}`, []string{"deleted"}},
		{all.Without(event.Added).Without(event.Modified), `{"types":["deleted"]}`, []string{"added", "modified"}},
		{none, `{"types":[]}`, []string{"added", "modified", "deleted"}},
	} {
		text, err := json.Marshal(event.Selection{Types: c.types})
		if err != nil || string(text) != c.text {
			t.Errorf("%d is %s (%v), want %s", c.types, text, err, c.text)
		}
		var read event.Selection
		if err := json.Unmarshal([]byte(c.text), &read); err != nil || read.Types != c.types {
			t.Errorf("%s is read as %d (%v), want %d", c.text, read.Types, err, c.types)
		}
		if diff := cmp.Diff(c.leftOut, c.types.LeftOut()); diff != "" {
			t.Errorf("%s leaves out (-want +got):\n%s", c.text, diff)
		}
		if c.types.Has(event.Present) != c.types.Has(event.Added) {
			t.Errorf("%s: present does not go with added", c.text)
		}
	}
	var read event.Selection
	if err := json.Unmarshal([]byte(`{"types":["added","renamed"]}`), &read); err != nil || read.Types != all.Without(event.Modified).Without(event.Deleted) {
		t.Errorf("with an unknown type it is %v (%v)", read.Types.LeftOut(), err)
	}
}
