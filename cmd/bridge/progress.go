package main

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
	progressLine = 10 * time.Second // between two lines of a log
	progressDraw = time.Second      // between two updates of a bar
	barWidth     = 24               // characters
)

// progress is the progress of the running lists.
type progress struct{ status.Lists }

func progressOf(r status.Report) progress { return progress{r.Lists()} }

// bar returns p as text for a terminal, or "" when no list is running.
func (p progress) bar() string {
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

// logProgress logs a line every [progressLine] while lists are running, until ctx ends.
func logProgress(ctx context.Context, report func() status.Report, log *zap.Logger) error {
	each(ctx, progressLine, func() {
		p := progressOf(report())
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

// barWriter passes writes on to a terminal and keeps a line of progress below
// them.
type barWriter struct {
	mu       sync.Mutex
	terminal io.Writer
	bar      string
}

const clearLine = "\r\x1b[K"

// Write implements [io.Writer]; p ends its line.
func (w *barWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bar == "" {
		return w.terminal.Write(p)
	}
	if _, err := io.WriteString(w.terminal, clearLine); err != nil {
		return 0, err
	}
	n, err := w.terminal.Write(p)
	if err == nil {
		_, err = io.WriteString(w.terminal, w.bar)
	}
	return n, err
}

func (w *barWriter) draw(bar string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if bar != w.bar {
		w.bar = bar
		_, _ = io.WriteString(w.terminal, clearLine+bar) // if this fails, the log fails as well
	}
}

// Run draws the progress that report returns, until ctx ends.
func (w *barWriter) Run(ctx context.Context, report func() status.Report) error {
	defer w.draw("")
	each(ctx, progressDraw, func() { w.draw(progressOf(report()).bar()) })
	return nil
}
