package buffer

import (
	"context"
	"errors"
	"io"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/core/feed"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

const (
	// trimEvery is how often a replay asks what is committed.
	trimEvery = time.Second
	// readFor is how long a disk that cannot be read is read again: a process may have too many open files for a
	// moment. Then the API server is next, which may still have what is missing.
	readFor = 30 * time.Second
)

// backlog implements [feed.Backlog].
type backlog struct {
	*Sink
	collection string
	onState    func(source.State)

	opened bool
	// refused: nothing is recorded until the sink was in step.
	refused bool
	// forgotten is the position from which a recording was begun last, and that the API server had forgotten. The sink
	// had read up to readThen when that was found. Both compare with positions of the same epoch only.
	forgotten, readThen string
	epochThen           uint64
}

// Behind implements [feed.Backlog].
func (b *backlog) Behind(ctx context.Context, ready func() bool) bool {
	refused := b.refused
	for {
		behind, changed := b.lag.Behind()
		again := time.Hour
		switch {
		case !behind:
			refused = false
		case refused:
		case b.Allows(b.collection) && ready():
			b.refused = false
			return true
		default:
			again = trimEvery
		}
		timer := time.NewTimer(again)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}

// Open implements [feed.Backlog].
func (b *backlog) Open(ctx context.Context, r feed.Read, p feed.Place) (feed.Recording, error) {
	use, at, err := b.open(ctx, r, p)
	if use == nil || err != nil {
		return nil, err
	}
	return &replay{backlog: b, read: r, use: use, at: at}, nil
}

// open returns the use of a recording, and from where it is used; nil: the API server is next.
func (b *backlog) open(ctx context.Context, r feed.Read, p feed.Place) (use *Use, at Position, err error) {
	if p.Target.Resource.Version == "" { // wait until the resource is served, or a plan has found its recording
		return nil, at, nil
	}
	first := !b.opened
	b.opened = true
	if !b.Allows(b.collection) {
		return nil, at, nil
	}
	if p.Resume == "" {
		if first {
			b.buffer.Abandon(b.name, p.Target)
		}
		return nil, at, nil
	}
	behind, _ := b.lag.Behind()
	if !first && (!behind || b.refused) {
		return nil, at, nil
	}
	committed, epoch, err := r.Committed(ctx)
	if err != nil || committed == "" {
		return nil, at, err
	}
	at = Position{Committed: committed, Epoch: epoch, Read: p.Resume, Seen: p.Seen, Owner: p.Owner}
	if first && committed == p.Resume {
		use, err := b.find(ctx, p.Target, at)
		if err != nil || use != nil {
			return use, at, err
		}
	}
	if !behind || b.refused {
		return nil, at, nil
	}
	if err := r.Buffered(ctx); err != nil {
		return nil, at, err
	}
	begin := at
	begin.Committed = b.recordFrom(at)
	use, err = b.begin(p.Target, begin)
	if err != nil {
		b.refused = true
		b.log.Warn("buffering failed; reading goes on without it until the sink is in step",
			zap.String("collection", b.collection), zap.Error(err))
	}
	return use, at, nil
}

// begin begins a recording. It returns nil if the collection may no longer be buffered.
func (b *backlog) begin(t source.Target, at Position) (*Use, error) {
	use, err := b.buffer.Begin(b.name, t, at)
	if b.Allows(b.collection) {
		return use, err
	}
	b.buffer.Forbid(b.name, b.collection) // this may have been called before the recording began
	if use != nil {
		err = errors.Join(err, use.Close())
	}
	return nil, err
}

// find returns the use of a recording that reaches back to a position. If the buffer cannot be searched, no recording
// is begun until the sink was in step, because the next one would replace what is there.
func (b *backlog) find(ctx context.Context, t source.Target, at Position) (*Use, error) {
	var use *Use
	err := b.readDisk(ctx, func() (again bool, err error) {
		use, err = b.buffer.Find(b.name, t, at)
		return true, err
	})
	if err == nil || ctx.Err() != nil {
		return use, ctx.Err()
	}
	b.refused = true
	b.log.Warn("the buffer cannot be searched; reading from the API server, and a gap may follow",
		zap.String("collection", b.collection), zap.Error(err))
	return nil, nil
}

// readDisk calls read until it succeeds, or another call is of no use. It returns the error of the last one. Errors of
// the disk wrap [ErrUnreadable]: the API server has nothing to do with them.
func (b *backlog) readDisk(ctx context.Context, read func() (again bool, err error)) error {
	var begun time.Time
	for {
		again, err := read()
		if err == nil || !again {
			return err
		}
		now := time.Now()
		if begun.IsZero() {
			begun = now
		}
		if now.Sub(begun) >= readFor {
			return err
		}
		b.onState(source.State{Phase: source.Waiting, Since: now, Until: now.Add(readAgain), Err: err})
		select {
		case <-time.After(readAgain):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// recordFrom returns where a recording begins: at the committed position, so that it is of use after a restart. Where
// the API server has forgotten that, the recording begins where the sink has read. So do others, until the sink has
// committed what it had read when that was found: each position in between may be forgotten, too, and would cost a
// list.
func (b *backlog) recordFrom(at Position) string {
	if at.Epoch == b.epochThen && (at.Committed == b.forgotten || event.Older(at.Committed, b.readThen)) {
		return at.Read
	}
	return at.Committed
}

// End implements [feed.Backlog].
func (b *backlog) End(t source.Target) { b.buffer.Expect(b.name, t) }

// replay implements [feed.Recording].
type replay struct {
	*backlog
	read    feed.Read
	use     *Use
	at      Position // where it began
	trimmed time.Time
	passed  bool // it has returned a signal
	listing bool // it is in the middle of a list
	flushed bool // since the last signal
}

// Next implements [feed.Recording].
func (r *replay) Next(ctx context.Context) (source.Signal, time.Time, error) {
	if r.passed && time.Since(r.trimmed) > trimEvery {
		if err := r.trim(ctx); err != nil {
			return source.Signal{}, time.Time{}, err
		}
	}
	for {
		f, err := r.next(ctx)
		switch {
		case err == nil:
			if f.Kind == source.ListBegun || f.Kind == source.ListEnded {
				r.listing = f.Kind == source.ListBegun
			}
			r.passed, r.flushed = true, false
			return f.Signal, f.At, nil
		case errors.Is(err, ErrEnd):
			r.log.Info("the buffer ends; reading from the API server", zap.String("collection", r.collection), zap.Error(err))
			r.refused = true
			err = io.EOF
		case errors.Is(err, ErrForgotten):
			r.forgotten, r.readThen, r.epochThen = r.at.Committed, r.at.Read, r.at.Epoch
			err = io.EOF
		case errors.Is(err, io.EOF):
			if err = r.trim(ctx); err == nil {
				err = r.awaitMore(ctx)
			}
		}
		if err != nil {
			return source.Signal{}, time.Time{}, err
		}
	}
}

// next returns the next frame of the recording: see [Use.Next].
func (r *replay) next(ctx context.Context) (f Frame, err error) {
	if f, err = r.use.Next(); !errors.Is(err, ErrUnreadable) {
		return f, err
	}
	err = r.readDisk(ctx, func() (again bool, err error) {
		f, err = r.use.Next()
		return errors.Is(err, ErrUnreadable), err
	})
	r.onState(source.State{Phase: source.Buffered, Since: time.Now()})
	return f, err
}

// trim says to the recording what is committed.
func (r *replay) trim(ctx context.Context) error {
	r.trimmed = time.Now()
	committed, epoch, err := r.read.Committed(ctx)
	if err == nil {
		r.use.Committed(committed, epoch)
	}
	return err
}

// awaitMore waits until the recording may have more. It returns io.EOF once the sink is in step: the API server is
// next. A recording that is in the middle of a list goes on until that ends, unless an edit waits: the version that it
// lists may not be served any more.
func (r *replay) awaitMore(ctx context.Context) error {
	behind, changed := r.lag.Behind()
	if !behind {
		ends := !r.listing
		if !ends {
			var err error
			if ends, err = r.read.EditWaits(ctx); err != nil {
				return err
			}
		}
		switch {
		case ends && r.flushed:
			return io.EOF
		case ends: // what was received comes before an edit that waits
			r.flushed = true
			if err := r.use.Flush(); err != nil {
				r.log.Debug("flush of the buffer failed", zap.Error(err))
			}
			return nil
		}
	}
	waiting, stop := context.WithTimeout(ctx, trimEvery)
	defer stop()
	go func() {
		select {
		case <-changed:
			stop()
		case <-waiting.Done():
		}
	}()
	_ = r.use.Wait(waiting)
	return ctx.Err()
}

// Close implements [feed.Recording].
func (r *replay) Close(keep bool) {
	end := r.use.Close
	if keep {
		end = r.use.Suspend
	}
	if err := end(); err != nil {
		r.log.Debug("close of the buffer failed", zap.Error(err))
	}
}
