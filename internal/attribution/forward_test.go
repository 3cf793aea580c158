package attribution

import (
	"testing"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/inbox"
)

// Where a record came from is not the word of its sender: marks of an input of another replica, or of none, would have no meaning, and
// one that is no small number would stop the program.
func TestRecordsOfTheWebhookAreOfItsInput(t *testing.T) {
	a := newInputs(t, nil)
	store := newWebhookStore(a)
	if err := store.Append([]audit.Record{{ID: "1", Input: -1}, {ID: "2", Input: 2_000_000_000}, {ID: "3", Input: fromFile}}); err != nil {
		t.Fatal(err)
	}
	r := a.inbox.Reader(inbox.Position{})
	defer r.Close()
	for range 3 {
		item, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if item.Record.Input != fromWebhook {
			t.Errorf("record %s is of input %d, want %d", item.Record.ID, item.Record.Input, fromWebhook)
		}
	}
}
