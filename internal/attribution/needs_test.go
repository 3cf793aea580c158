package attribution

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/inbox"
)

// A sink whose bus is away for long does not make audit.path full for all sinks: the records that it alone needs are deleted, and it finds a gap, also
// after a restart. The status names it.
func TestOneSinkHoldsTheInbox(t *testing.T) {
	a := newInputs(t, nil)
	a.sinks = []string{"away", "works"}
	reader := a.inbox.Reader(inbox.Position{})
	defer reader.Close()
	var first, last inbox.Position
	for float64(a.inbox.Bytes()) < almostFull*float64(a.inbox.MaxBytes()) {
		var records []audit.Record
		for range 100 {
			text := make([]byte, 16<<10)
			_, _ = rand.Read(text) // it never fails, and what it gives does not compress
			records = append(records, audit.Record{URI: hex.EncodeToString(text)})
		}
		if err := a.Append(records); err != nil {
			t.Fatal(err)
		}
		for range records {
			item, err := reader.Next()
			if err != nil {
				t.Fatal(err)
			}
			if last = item.Position; first.Number == 0 {
				first = last
			}
		}
	}
	if a.lowest() != (inbox.Position{}) {
		t.Error("records are deleted before it is known what the sinks need")
	}
	near := last
	near.Number -= 2 // of the same session

	// The bus of a sink is away since the start.
	a.needed["works"] = near
	if a.lowest() != (inbox.Position{}) {
		t.Error("records are deleted that a sink may need which has not had the time to say so")
	}
	if s := a.Status(); s.Needed["away"] != a.inbox.Last() || s.Needed["works"] != 2 {
		t.Errorf("the status has %v", s.Needed)
	}
	a.begun = time.Now().Add(-readyAfter)
	if got := a.lowest(); got != near {
		t.Errorf("a sink has not said what it needs: records up to %d are deleted, want %d", got.Number, near.Number)
	}
	delete(a.needed, "works")
	if a.lowest() != (inbox.Position{}) {
		t.Error("records are deleted that all sinks may need")
	}
	a.Stand()
	if s := a.Status(); len(s.Needed) != 0 {
		t.Errorf("the status of a standby has %v", s.Needed)
	}
	a.Lead()

	a.needed["away"], a.needed["works"] = first, near
	s := a.Status()
	if s.Needed["away"] != a.inbox.Last()-first.Number || s.Needed["works"] != 2 {
		t.Errorf("the status has %v", s.Needed)
	}

	middle := inbox.Position{Session: first.Session, Number: first.Number + 3*(last.Number-first.Number)/4}
	for _, c := range []struct {
		away, works inbox.Position
		want        inbox.Position
		why         string
	}{
		{first, near, near, "one sink needs all"},
		{middle, near, near, "one sink needs a part that only it needs"},
		{first, inbox.Position{Session: first.Session, Number: first.Number + 5}, first, "both need most"},
		{first, first, first, "both need the same"},
	} {
		a.needed["away"], a.needed["works"] = c.away, c.works
		if got := a.lowest(); got != c.want {
			t.Errorf("%s: records up to %d are deleted, want %d", c.why, got.Number, c.want.Number)
		}
	}
	a.sinks = []string{"away"}
	delete(a.needed, "works")
	a.needed["away"] = first
	if got := a.lowest(); got != first {
		t.Errorf("the only sink: records up to %d are deleted", got.Number)
	}

	a.sinks, a.needed["works"] = []string{"away", "works"}, near
	if err := a.inbox.Trim(a.lowest()); err != nil {
		t.Fatal(err)
	}
	if a.inbox.First() == 1 {
		t.Fatal("nothing was deleted")
	}
	if err := a.inbox.Trim(a.lowest()); err != nil { // of the position that is not there any more
		t.Errorf("the position of the sink that is away: %v", err)
	}
	if n := a.Status().Needed["away"]; n != a.inbox.Last()-a.inbox.First()+1 {
		t.Errorf("the sink that is away needs %d records", n)
	}
	again := a.inbox.Reader(first)
	defer again.Close()
	var gap *inbox.GapError
	if _, err := again.Next(); !errors.As(err, &gap) || gap.From != first.Number+1 || gap.To != a.inbox.First()-1 {
		t.Errorf("the sink reads %v, want a gap from %d to %d", err, first.Number+1, a.inbox.First()-1)
	}
	if item, err := again.Next(); errors.Is(err, io.EOF) || item.Position.Number != a.inbox.First() {
		t.Errorf("behind the gap is %d, %v", item.Position.Number, err)
	}
}
