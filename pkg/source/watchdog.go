package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

const (
	// A watch that has not moved for about quietFor is checked with a probe, and again
	// every probeEvery. The server sends bookmarks about every
	// minute, so a watch that has not moved for longer than quietLong gets no bookmarks that lead further, or
	// is dead. Including probeTimeout, the watchdog decides within two minutes.
	quietFor   = 45 * time.Second
	quietSpan  = 10 * time.Second
	probeEvery = 30 * time.Second
	quietLong  = 100 * time.Second
	// proofEvery is the age at which the last proof that a watch is in step is too old, so that a watch that moves is probed, too. It is
	// longer than the pause between two bookmarks, so that a quiet watch is always probed shortly before its bookmark.
	proofEvery = 65 * time.Second
	// settled is how long after a frame no other change with the same resourceVersion can come: the server sends such changes at once.
	settled = 5 * time.Second
	// maxPending bounds how many probes wait until the watch has passed them. If there are more, the watch is minutes late.
	maxPending = 4
	// secondWatchFor is the duration of the second watch, which distinguishes a quiet watch
	// from a dead one. The server sends a bookmark two seconds before the end of a watch.
	secondWatchFor   = 5 * time.Second
	secondWatchGrace = 3 * time.Second
)

// progress is how far the watches of a Run are known to have come. A watch that continues another one keeps it: a server or a proxy may end
// every watch before its first bookmark.
type progress struct {
	latest string    // the highest resourceVersion of their frames
	moved  time.Time // when they last came to a later one, a check showed that there was none, or the first of them was opened
	proven time.Time // the handler has every change that was made before; zero: it is not known
	// pending are the probes that they have not passed yet, at most maxPending, with different resourceVersions.
	pending []finding
}

// watchdog checks, during an open watch, whether the position still belongs to the server's
// history, whether the watch is in step with the server, and whether a watch that does not move is quiet or dead. All methods except
// look run in Run's goroutine.
//
// A frame alone does not show that the watch is in step: a server that has lost its etcd sends the same bookmark again every minute, and a watch
// that was just opened sends what is minutes old. Only a watch that has passed the resourceVersion of a probe has every change that was
// made before that probe. See [watchdog.passed].
type watchdog struct {
	reader   *reader
	timer    *time.Timer
	findings chan finding
	looks    sync.WaitGroup
	ctx      context.Context
	stop     func()

	quiet    time.Duration // this watch's quietFor
	handled  time.Time     // time of the last frame; at first, when the watch was opened
	resumed  time.Time     // when OnInStep returned last: no frame is read while it blocks
	frames   int           // number of frames that moved the watch
	looking  bool          // look is running
	judged   time.Time     // time of the last finding
	verified bool          // the history was verified since this watch opened
	shown    Phase         // the last state that was reported
	unsure   bool          // that state has an error
}

type finding struct {
	asked  time.Time // when look began
	since  time.Time // the probe was sent after it
	frames int       // number of frames at that time
	rv     string    // of the probe
	second bool      // a second watch has received nothing that the watch did not
	inStep bool      // that second watch has passed the probe
	err    error
}

func (r *reader) newWatchdog(ctx context.Context, doubt error) *watchdog {
	ctx, cancel := context.WithCancel(ctx)
	p := &watchdog{
		reader: r, findings: make(chan finding, 1), ctx: ctx,
		quiet: quietFor - quietSpan/2 + rand.N(quietSpan), handled: time.Now(), shown: Watching, unsure: doubt != nil,
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

// heard records a frame after it was handled. A frame that repeats a resourceVersion says nothing about the server.
func (p *watchdog) heard(kind, rv string) {
	r := p.reader
	p.handled = time.Now()
	if kind == "BOOKMARK" {
		r.bookmarks = true
	}
	if !listwatch.Resumable(rv) || event.Newer(rv, r.latest) {
		p.frames, r.latest, r.moved = p.frames+1, rv, p.handled
		if p.shown == Stalled {
			p.show(State{Phase: Watching})
		}
	}
	if !p.passed() && p.reached() && !p.looking {
		p.wait()
	}
}

// passed reports whether the watch has passed a probe, and then reports that it is in step. One resourceVersion can have
// many events, and a bookmark can come between them, so a watch has passed a resourceVersion when it is at a later one, when it began there, or
// when no frame has followed for some time. It has then passed all earlier probes, too, also where resourceVersions do not compare.
func (p *watchdog) passed() bool {
	r := p.reader
	complete := r.at.Last == r.at.Resume || p.unfollowed() >= settled
	for n, f := range slices.Backward(r.pending) {
		if event.Older(f.rv, r.at.Last) || complete && r.isAt(f) {
			left := r.pending[n+1:]
			p.inStep(f.since)
			r.pending = left
			return true
		}
	}
	return false
}

// unfollowed returns for how long no frame has followed the last one although frames were read.
func (p *watchdog) unfollowed() time.Duration {
	return min(time.Since(p.handled), time.Since(p.resumed))
}

// reached reports whether there is a probe whose resourceVersion, or a later one, the watch is at.
func (p *watchdog) reached() bool { return slices.ContainsFunc(p.reader.pending, p.reader.isAt) }

// isAt reports whether the watch is at the resourceVersion of a probe, or at a later one.
func (r *reader) isAt(f finding) bool { return !event.Newer(f.rv, r.at.Last) }

// expect records a probe that the watch has to pass. If there are too many, it replaces the last one.
func (r *reader) expect(f finding) {
	n := len(r.pending)
	if n == maxPending || n > 0 && r.pending[n-1].rv == f.rv { // without a change in between, the later probe shows more
		r.pending[n-1] = f
		return
	}
	r.pending = append(r.pending, f)
}

// inStep is [reader.inStep] while the watch is open.
func (p *watchdog) inStep(before time.Time) {
	p.reader.inStep(before)
	p.resumed = time.Now()
}

// inStep records that the handler has received every change that was made before a time.
func (r *reader) inStep(before time.Time) {
	r.proven, r.pending = before, nil
	r.onInStep(before)
}

// wait sets the timer for the next check. look must not be running.
func (p *watchdog) wait() {
	now := time.Now()
	next := probeEvery - now.Sub(p.judged)
	if p.verified {
		next = max(next, p.untilLook())
	}
	if p.reached() {
		next = min(next, settled-p.unfollowed())
	}
	p.timer.Reset(next)
}

// untilLook returns when a watch whose history was verified is probed again.
func (p *watchdog) untilLook() time.Duration {
	r := p.reader
	probed := r.proven
	if n := len(r.pending); n > 0 {
		probed = r.pending[n-1].asked
	}
	return min(p.quiet-time.Since(r.moved), proofEvery-time.Since(probed))
}

// check runs when the timer fires.
func (p *watchdog) check() {
	if p.looking { // judge will set the timer
		return
	}
	p.passed()
	if time.Since(p.judged) < probeEvery || p.verified && p.untilLook() > 0 {
		p.wait()
		return
	}
	p.look()
}

// look probes the server while the watch is open.
func (p *watchdog) look() {
	p.looking = true
	r, now := p.reader, time.Now()
	at, seen, bookmarks := r.at, r.highest(r.at.Last), r.bookmarks
	long, silent := now.Sub(r.moved) >= quietLong, now.Sub(p.handled) >= quietLong
	if event.Older(at.Last, r.latest) { // a watch before this one has brought more
		at.Last = r.latest
	}
	since := now // the watch was open before now
	if p.verified {
		since = now.Add(-probeFresh)
	}
	f := finding{asked: now, since: since, frames: p.frames}
	p.looks.Go(func() {
		f.rv, f.err = r.probe(p.ctx, seen, since)
		if f.err == nil && long && event.Newer(f.rv, at.Last) {
			f.inStep, f.err = r.secondWatch(p.ctx, at, f.rv, bookmarks, silent)
			f.second = f.err == nil
		}
		p.findings <- f
	})
}

// judge evaluates a finding. errHistory and errDead end the watch.
func (p *watchdog) judge(f finding) error {
	if p.ctx.Err() != nil {
		return p.ctx.Err()
	}
	r, moved := p.reader, p.frames != f.frames
	p.looking, p.judged = false, time.Now()
	switch {
	case errors.Is(f.err, errHistory):
		return f.err
	case errors.Is(f.err, errDead) && !moved:
		return f.err
	case f.err == nil || errors.Is(f.err, errDead):
		p.verified = true
		if f.err == nil {
			r.expect(f)
		}
		passed := p.passed()
		switch {
		case moved:
		case f.inStep:
			r.moved = f.asked
			p.inStep(f.since)
		case passed, f.second:
			r.moved = f.asked
		}
		if p.shown == Stalled || p.unsure {
			p.show(State{Phase: Watching})
		}
	case time.Since(r.moved) >= p.quiet:
		p.show(State{Phase: Stalled, Err: f.err, Until: time.Now().Add(probeEvery)})
	case !p.unsure:
		p.show(State{Phase: Watching, Err: f.err})
	}
	p.wait()
	return nil
}

func (p *watchdog) show(s State) {
	p.shown, p.unsure = s.Phase, s.Err != nil
	p.reader.state(s)
}

// secondWatch opens a second watch from the position of a watch that does not move. It returns errDead if the second watch receives something that
// the first one should have: a change that was made before the probe with the resourceVersion rv, or a bookmark if the first watch is silent, which
// means that it has had no frame at all for a long time.
//
// inStep is true if the second watch shows that there was no change until the probe: the server has ended it in order, and
// its bookmark is not before rv, or the server sends no bookmarks. An older bookmark may come from a server that has lost its etcd, or whose etcd
// reports no progress.
//
// An open watch does not need the history behind its position. If the server no longer has that, the second watch begins at the probe, and shows nothing
// about the changes before.
func (c *Collection) secondWatch(ctx context.Context, at listwatch.Cursor, rv string, bookmarks, silent bool) (inStep bool, err error) {
	inStep, err = c.trySecondWatch(ctx, at, rv, bookmarks, silent)
	if !listwatch.IsExpired(err) {
		return inStep, err
	}
	at.Resume = rv
	if _, err = c.trySecondWatch(ctx, at, rv, bookmarks, silent); listwatch.IsExpired(err) {
		return false, nil
	}
	return false, err
}

// trySecondWatch opens the second watch from at.Resume, and compares it with a watch that is at at.Last.
func (c *Collection) trySecondWatch(ctx context.Context, at listwatch.Cursor, rv string, bookmarks, silent bool) (inStep bool, err error) {
	u, err := c.open(throwAway(ctx), &watched{all: &c.client.watches}, at.Resume, at.Resume, secondWatchFor, secondWatchGrace)
	if err != nil {
		return false, fmt.Errorf("second watch: %w", listwatch.PlainCause(err))
	}
	defer u.close()
	last := "" // the resourceVersion of the last bookmark
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
		case f.err != nil && !errors.Is(f.err, io.EOF) && !errors.Is(f.err, context.DeadlineExceeded):
			return false, fmt.Errorf("second watch: %w", listwatch.PlainCause(f.err))
		case f.err != nil && last == "" && bookmarks:
			return false, errors.New("the server sends no bookmarks any more: whether it sends all changes is not known")
		case f.err != nil:
			return errors.Is(f.err, io.EOF) && (last == "" || !event.Newer(rv, last)), nil
		}
		version, proves := f.object.ResourceVersion, silent
		if f.kind == "BOOKMARK" {
			last = version
		} else {
			proves = !event.Older(rv, version) // both watches receive a later change at about the same time
		}
		if proves && event.Newer(version, at.Last) {
			return false, fmt.Errorf("%w: resourceVersion %s", errDead, version)
		}
		u.handled(f.size())
	}
}
