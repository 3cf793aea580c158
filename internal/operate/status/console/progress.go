// Package console asks a running bridge for its status, and shows a status on a terminal.
package console

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/operate/status"
)

const (
	// ProgressLine is the time between two lines of a log.
	ProgressLine = 10 * time.Second
	// ProgressDraw is the time between two updates of a bar.
	ProgressDraw = time.Second

	barWidth = 24 // characters
)

// listsBar returns the progress of the running lists as text for a terminal, or "" when no list is running.
func listsBar(p status.Lists) string {
	switch {
	case p.Running == 0:
		return ""
	case p.Unknown || p.Read+p.Remaining == 0:
		return fmt.Sprintf("listing %d collections: %d objects read", p.Running, p.Read)
	}
	done := int(barWidth * p.Read / (p.Read + p.Remaining))
	return fmt.Sprintf("listing %d collections [%s%s] %d of about %d objects",
		p.Running, strings.Repeat("=", done), strings.Repeat(" ", barWidth-done), p.Read, p.Read+p.Remaining)
}

// LogProgress logs a line every [ProgressLine] while lists are running, until ctx ends.
func LogProgress(ctx context.Context, report func() status.Report, log *zap.Logger) error {
	each(ctx, ProgressLine, func() {
		r := report()
		p := r.Lists()
		if p.Running == 0 {
			return
		}
		left := zap.Skip()
		if !p.Unknown {
			left = zap.Int64("left", p.Remaining)
		}
		log.Info("lists are under way", zap.Int64("collections", p.Running), zap.Int64("read", p.Read), left)
	})
	return nil
}

func each(ctx context.Context, every time.Duration, do func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			do()
		case <-ctx.Done():
			return
		}
	}
}

// Bar passes writes on to a terminal and keeps a line of progress below
// them.
type Bar struct {
	Terminal io.Writer

	mu  sync.Mutex
	bar string
}

// ClearLine clears a line of a terminal.
const ClearLine = "\r\x1b[K"

// Write implements [io.Writer]; p ends its line.
func (w *Bar) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bar == "" {
		return w.Terminal.Write(p)
	}
	if _, err := io.WriteString(w.Terminal, ClearLine); err != nil {
		return 0, err
	}
	n, err := w.Terminal.Write(p)
	if err == nil {
		_, err = io.WriteString(w.Terminal, w.bar)
	}
	return n, err
}

func (w *Bar) draw(bar string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if bar != w.bar {
		w.bar = bar
		_, _ = io.WriteString(w.Terminal, ClearLine+bar) // if this fails, the log fails as well
	}
}

// Run draws the progress that report returns, until ctx ends.
func (w *Bar) Run(ctx context.Context, report func() status.Report) error {
	defer w.draw("")
	each(ctx, ProgressDraw, func() {
		r := report()
		w.draw(listsBar(r.Lists()))
	})
	return nil
}
