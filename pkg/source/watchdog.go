package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

const (
	// A watch without a frame for about quietFor is checked with a probe, and again
	// every probeEvery. The server sends bookmarks about every
	// minute, so a watch without a frame for longer than quietLong gets no bookmarks or
	// is dead. Including probeTimeout, the watchdog decides within two minutes.
	quietFor   = 45 * time.Second
	quietSpan  = 10 * time.Second
	probeEvery = 30 * time.Second
	quietLong  = 100 * time.Second
	// secondWatchFor is the duration of the second watch, which distinguishes a quiet watch
	// from a dead one. The server sends a bookmark two seconds before the end of a watch.
	secondWatchFor   = 5 * time.Second
	secondWatchGrace = 3 * time.Second
)

// watchdog checks, during an open watch, whether the position still belongs to the server's
// history, and whether a watch without frames is quiet or dead. All methods except
// look run in Run's goroutine.
type watchdog struct {
	reader   *reader
	timer    *time.Timer
	findings chan finding
	looks    sync.WaitGroup
	ctx      context.Context
	stop     func()

	quiet    time.Duration // this watch's quietFor
	last     time.Time     // time at which the watch was last known to be complete
	frames   int           // number of frames
	looking  bool          // look is running
	ahead    finding       // the last one whose probe was ahead of the watch; the watch has not passed it yet
	verified bool          // the history was verified since this watch opened
	shown    Phase         // the last state that was reported
	unsure   bool          // that state has an error
}

// finding is the result of look.
type finding struct {
	asked  time.Time // when look began
	since  time.Time // the probe was sent after it
	frames int       // number of frames at that time
	rv     string    // of the probe
	inStep bool      // the watch has missed no change
	err    error
}

func (r *reader) newWatchdog(ctx context.Context, doubt error) *watchdog {
	ctx, cancel := context.WithCancel(ctx)
	p := &watchdog{
		reader: r, findings: make(chan finding, 1), ctx: ctx,
		quiet: quietFor - quietSpan/2 + rand.N(quietSpan), last: time.Now(), shown: Watching, unsure: doubt != nil,
	}
	p.timer = time.NewTimer(time.Hour)
	p.stop = func() {
		p.timer.Stop()
		cancel()
		p.looks.Wait()
	}
	p.look()
	return p
}

// heard records a frame after it was handled. A watch that has passed the resourceVersion of a probe has every change from before the probe.
func (p *watchdog) heard(f *watchFrame) {
	p.frames, p.last = p.frames+1, time.Now()
	p.reader.onContact(f.read)
	if a := p.ahead; a.rv != "" && event.Older(a.rv, p.reader.at.last) {
		p.ahead = finding{}
		p.reader.onInStep(a.since)
	}
	if f.kind == "BOOKMARK" {
		p.reader.bookmarks = true
	}
	if p.shown == Stalled {
		p.show(State{Phase: Watching})
	}
}

// check runs when the timer fires.
func (p *watchdog) check() {
	switch left := p.quiet - time.Since(p.last); {
	case p.looking: // judge will set the timer
	case p.verified && left > 0:
		p.timer.Reset(left)
	default:
		p.look()
	}
}

// look probes the server while the watch is open.
func (p *watchdog) look() {
	p.looking = true
	at, seen, long, now := p.reader.at, p.reader.highest(p.reader.at.last), time.Since(p.last) >= quietLong, time.Now()
	bookmarks, since := p.reader.bookmarks, now // the watch was open before now
	if p.verified {
		since = now.Add(-probeFresh)
	}
	f := finding{asked: now, since: since, frames: p.frames}
	p.looks.Go(func() {
		f.rv, f.err = p.reader.probe(p.ctx, seen, since)
		switch {
		case f.err != nil:
		case !event.Newer(f.rv, at.last):
			f.inStep = true
		case long:
			f.inStep, f.err = p.reader.secondWatch(p.ctx, at, bookmarks)
		}
		p.findings <- f
	})
}

// judge evaluates a finding. errHistory and errDead end the watch.
func (p *watchdog) judge(f finding) error {
	if p.ctx.Err() != nil {
		return p.ctx.Err()
	}
	p.looking = false
	since := time.Since(p.last)
	moved := p.frames != f.frames
	switch {
	case errors.Is(f.err, errHistory):
		return f.err
	case errors.Is(f.err, errDead) && !moved:
		return f.err
	case f.err == nil || errors.Is(f.err, errDead):
		p.verified = true
		switch {
		case f.inStep && !moved:
			p.last = f.asked
			p.reader.onContact(f.since)
			p.reader.onInStep(f.since)
		case f.err == nil && p.ahead.rv == "":
			p.ahead = f
		}
		if p.shown == Stalled || p.unsure {
			p.show(State{Phase: Watching})
		}
	case since >= p.quiet:
		p.show(State{Phase: Stalled, Err: f.err, Until: time.Now().Add(probeEvery)})
	case !p.unsure:
		p.show(State{Phase: Watching, Err: f.err})
	}
	next := probeEvery
	if p.verified {
		next = max(next, p.quiet-time.Since(p.last))
	}
	p.timer.Reset(next)
	return nil
}

func (p *watchdog) show(s State) {
	p.shown, p.unsure = s.Phase, s.Err != nil
	p.reader.state(s)
}

// secondWatch opens a second watch from the position of a quiet watch, and reports whether it is certain
// that the quiet watch has missed no change.
func (c *Collection) secondWatch(ctx context.Context, at cursor, bookmarks bool) (inStep bool, err error) {
	u, err := c.open(throwAway(ctx), &watched{all: &c.client.watches}, at.resume, at.resume, secondWatchFor, secondWatchGrace)
	if isExpired(err) {
		return false, nil // an open watch does not need the expired history
	}
	if err != nil {
		return false, fmt.Errorf("second watch: %w", plainCause(err))
	}
	defer u.close()
	bookmarked := false
	for {
		f, ok := u.next()
		switch {
		case !ok:
			select {
			case <-u.ready:
			case <-ctx.Done():
				return false, ctx.Err()
			}
			continue
		case isExpired(f.err):
			return false, nil
		case f.err != nil && !errors.Is(f.err, io.EOF) && !errors.Is(f.err, context.DeadlineExceeded):
			return false, fmt.Errorf("second watch: %w", plainCause(f.err))
		case f.err != nil && !bookmarked && bookmarks:
			return false, errors.New("the server sends no bookmarks any more: whether it sends all changes is not known")
		case f.err != nil:
			return true, nil
		case event.Newer(f.object.ResourceVersion, at.last):
			return false, fmt.Errorf("%w: resourceVersion %s", errDead, f.object.ResourceVersion)
		}
		bookmarked = bookmarked || f.kind == "BOOKMARK"
		u.handled(f.size())
	}
}
