package feed

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/buffer"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

const (
	// trimEvery is how often a replay says what is committed.
	trimEvery = time.Second
	// While the disk cannot be read, it is read again after readAgain, for at most readFor: a process may have too many open files for a
	// moment. Then the API server is next, which may still have what is missing.
	readAgain, readFor = time.Second, 30 * time.Second
)

var (
	// errBehind ends a run because the sink is behind, and what the API server sends is to be buffered.
	errBehind = errors.New("the sink is behind")
	// errForgotten ends a replay because the API server has forgotten the committed position: another recording can begin where the
	// sink has read.
	errForgotten = errors.New("the committed position is forgotten")
	// errEnded ends a replay because the buffer has nothing more, now or ever.
	errEnded = errors.New("the buffer ends")
)

// Buffering has what a reader needs to use the disk buffer.
type Buffering struct {
	Buffer *buffer.Buffer
	Sink   string
	Lag    *buffer.Lag // of the sink
	// Allowed reports whether a collection is buffered. It is called from several goroutines. When it does not any more, [buffer.Buffer.Forbid]
	// is called.
	Allowed func(collection string) bool
}

// begin begins a recording. It returns nil if the collection may no longer be buffered.
func (b *Buffering) begin(collection string, t source.Target, at buffer.Position) (*buffer.Use, error) {
	use, err := b.Buffer.Begin(b.Sink, t, at)
	if b.Allowed(collection) {
		return use, err
	}
	b.Buffer.Forbid(b.Sink, collection) // this may have been called before the recording began
	if use != nil {
		err = errors.Join(err, use.Close())
	}
	return nil, err
}

// A read takes its signals from the API server or from the disk buffer.
//
//	from        next        when
//	API server  the buffer  the sink is behind, no list is running, and a recording could be begun
//	            the buffer  the read begins, and a recording reaches back to the position
//	the buffer  API server  the recording has nothing more, and the sink is in step
//	            API server  the recording has ended or is damaged
//	            the buffer  the recording begins with a list, because the API server has forgotten the committed position, and the sink
//	                        has read further: another recording begins there
//
// follow takes them from one of the two, until another one is next or ctx ends.
func (f *follower) follow(ctx context.Context) error {
	use, err := f.buffered(ctx)
	switch {
	case err != nil:
		return err
	case use != nil:
		return f.replay(ctx, use)
	}
	if f.Buffering != nil {
		if err := f.handler.Direct(ctx); err != nil {
			return err
		}
	}
	return f.run(ctx)
}

// buffered returns how the buffer is used, or nil if what comes next is read from the API server.
func (f *follower) buffered(ctx context.Context) (*buffer.Use, error) {
	if f.target.Resource.Version == "" { // the buffer is asked once the resource is served, or a plan has found its recording
		return nil, nil
	}
	b, first := f.Buffering, !f.begun
	f.begun = true
	if b == nil || !b.Allowed(f.collection) {
		return nil, nil
	}
	if !f.resumable() {
		if first {
			b.Buffer.Abandon(b.Sink, f.target)
		}
		return nil, nil
	}
	behind, _ := b.Lag.Behind()
	if !first && (!behind || f.refused) {
		return nil, nil
	}
	committed, epoch, err := f.handler.Committed(ctx)
	if err != nil || committed == "" {
		return nil, err
	}
	at := buffer.Position{Committed: committed, Epoch: epoch, Read: f.resume, Seen: f.seen, Owner: f.owner}
	if first && committed == f.resume {
		if use, err := f.find(ctx, at); err != nil || use != nil {
			return use, err
		}
	}
	if !behind || f.refused {
		return nil, nil
	}
	if err := f.handler.Buffered(ctx); err != nil {
		return nil, err
	}
	f.beginning, at.Committed = committed, f.recordFrom(committed)
	use, err := b.begin(f.collection, f.target, at)
	if err != nil {
		f.refused = true
		f.Log.Warn("buffering failed; reading goes on without it until the sink is in step", zap.String("collection", f.collection), zap.Error(err))
	}
	return use, nil
}

// find returns the use of a recording that reaches back to a position. If the buffer cannot be searched, no recording is begun until the sink was
// in step, because the next one would replace what is there.
func (f *follower) find(ctx context.Context, at buffer.Position) (*buffer.Use, error) {
	var use *buffer.Use
	err := f.readDisk(ctx, func() (again bool, err error) {
		use, err = f.Buffering.Buffer.Find(f.Buffering.Sink, f.target, at)
		return true, err
	})
	if err == nil || ctx.Err() != nil {
		return use, ctx.Err()
	}
	f.refused = true
	f.Log.Warn("the buffer cannot be searched; reading from the API server, and a gap may follow", zap.String("collection", f.collection), zap.Error(err))
	return nil, nil
}

// next returns the next frame of a recording: see [buffer.Use.Next].
func (f *follower) next(ctx context.Context, use *buffer.Use) (frame buffer.Frame, err error) {
	if frame, err = use.Next(); !errors.Is(err, buffer.ErrUnreadable) {
		return frame, err
	}
	err = f.readDisk(ctx, func() (again bool, err error) {
		frame, err = use.Next()
		return errors.Is(err, buffer.ErrUnreadable), err
	})
	f.OnState(f.collection, source.State{Phase: source.Buffered, Since: time.Now()})
	return frame, err
}

// readDisk calls read until it succeeds, or another call is of no use. It returns the error of the last one. Errors of the disk wrap
// [buffer.ErrUnreadable]: the API server has nothing to do with them.
func (f *follower) readDisk(ctx context.Context, read func() (again bool, err error)) error {
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
		f.OnState(f.collection, source.State{Phase: source.Waiting, Since: now, Until: now.Add(readAgain), Err: err})
		timer := time.NewTimer(readAgain)
		err = wait(ctx, nil, timer.C)
		timer.Stop()
		if err != nil {
			return err
		}
	}
}

// recordFrom returns where a recording begins: at the committed position, so that it is of use after a restart. Where the API server has
// forgotten that, the recording begins where the sink has read. So do others, until the sink has committed what it had read when that
// was found: each position in between may be forgotten, too, and would cost a list.
func (f *follower) recordFrom(committed string) string {
	if committed == f.forgotten || event.Older(committed, f.readThen) {
		return f.resume
	}
	return committed
}

// resumable reports whether a watch may follow from the reader's position.
func (f *follower) resumable() bool {
	return f.list == nil && f.resume != "" && f.target.Resource.Version != ""
}

// replay passes on what was recorded, until the API server is next.
func (f *follower) replay(ctx context.Context, use *buffer.Use) error {
	f.OnState(f.collection, source.State{Phase: source.Buffered, Since: time.Now()})
	f.source = source.NewCollection(source.Options{Client: f.Client, Target: f.target}) // for questions about single objects
	defer func() {
		f.handler.Received = time.Time{}
		end := use.Close
		if ctx.Err() != nil { // the read ends, not what it needs
			end = use.Suspend
		}
		if err := end(); err != nil {
			f.Log.Debug("close of the buffer failed", zap.Error(err))
		}
	}()
	var trimmed time.Time
	flushed := false // since the last frame
	for {
		frame, err := f.next(ctx, use)
		if err == nil {
			f.handler.Received, flushed = frame.At, false
			err = f.Handle(ctx, frame.Signal)
		}
		if now := time.Now(); err == nil && now.Sub(trimmed) > trimEvery || errors.Is(err, io.EOF) {
			trimmed = now
			committed, epoch, err := f.handler.Committed(ctx)
			if err != nil {
				return err
			}
			use.Committed(committed, epoch)
		}
		switch {
		case errors.Is(err, buffer.ErrEnd):
			f.Log.Info("the buffer ends; reading from the API server", zap.String("collection", f.collection), zap.Error(err))
			f.refused = true
			return cmp.Or(f.handler.Handled(ctx), errEnded)
		case errors.Is(err, buffer.ErrForgotten):
			f.forgotten, f.readThen = f.beginning, f.resume
			return errForgotten
		case errors.Is(err, io.EOF):
			switch more, err := f.awaitMore(ctx, use); {
			case err != nil:
				return err
			case more:
			case !flushed: // what was received comes before an edit that waits
				flushed = true
				if err := use.Flush(); err != nil {
					f.Log.Debug("flush of the buffer failed", zap.Error(err))
				}
			default:
				return f.handler.Handled(ctx)
			}
		case err != nil:
			return err
		}
	}
}

// awaitMore waits until the recording may have more. It returns false once the sink is in step: the API server is next. A recording that is in
// the middle of a list goes on until that ends, unless an edit waits: the version that it lists may not be served any more.
func (f *follower) awaitMore(ctx context.Context, use *buffer.Use) (more bool, err error) {
	behind, changed := f.Buffering.Lag.Behind()
	if !behind {
		ends := f.list == nil
		if !ends {
			ends, err = f.handler.EditWaits(ctx)
		}
		if err != nil || ends {
			return false, err
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
	err = use.Wait(waiting)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return true, nil
}

// fallsBehind waits until the sink is behind, or is behind once more if the buffer has refused, and a recording could begin. It returns
// false if ctx ends first.
func (f *follower) fallsBehind(ctx context.Context, refused bool) bool {
	if f.Buffering == nil {
		return false
	}
	for {
		behind, changed := f.Buffering.Lag.Behind()
		again := time.Hour
		switch {
		case !behind:
			refused = false
		case refused:
		case f.watching.Load() && f.Buffering.Allowed(f.collection):
			if committed, _, err := f.handler.Committed(ctx); err == nil && committed != "" {
				return true
			}
			again = trimEvery
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
