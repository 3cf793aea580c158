package console

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/operate/status"
)

// TestBarStaysBelowTheLog: the log does not overwrite the bar, and the bar is removed
// when the lists are complete.
func TestBarStaysBelowTheLog(t *testing.T) {
	left := int64(75)
	s := status.Report{Sinks: []status.Sink{{Collections: []status.Collection{
		{State: status.Watching}, {State: status.Reconciling, List: &status.List{Read: 25, Remaining: &left}},
	}}}}
	bar := listsBar(s.Lists())
	if !strings.Contains(bar, "[======                  ] 25 of about 100 objects") {
		t.Errorf("the bar is %q", bar)
	}
	var screen bytes.Buffer
	w := &Bar{Terminal: &screen}
	w.draw(bar)
	_, _ = io.WriteString(w, "a line\n")
	w.draw(listsBar(status.Lists{}))
	if want := ClearLine + bar + ClearLine + "a line\n" + bar + ClearLine; screen.String() != want {
		t.Errorf("the screen got %q, want %q", screen.String(), want)
	}
	s.Sinks[0].Collections[1].List.Remaining = nil
	if bar := listsBar(s.Lists()); bar != "listing 1 collections: 25 objects read" {
		t.Errorf("where the server does not say what is left the bar is %q", bar)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := w.Run(ctx, func() status.Report { return s }); err != nil {
		t.Error(err)
	}
}
