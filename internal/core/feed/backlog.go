package feed

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/kubebridge/kubebridge/pkg/source"
)

// Backlog holds what the API server has sent of one collection while its sink was behind. It is of one read, and the
// methods other than Behind are called from the goroutine of that read. The disk buffer implements it.
//
// A read takes its signals from the API server or from a recording:
//
//	from           next           when
//	the read       a recording    Open finds one that reaches back to the position
//	API server     a recording    Behind returns true, and Open begins one
//	a recording    API server     Next returns io.EOF, and Open returns nil
//	               a recording    Next returns io.EOF, and Open returns another one
type Backlog interface {
	// Behind blocks until the sink is behind and a recording could begin, for which it asks ready every second. It
	// returns false if ctx ends first. It is called beside the read from the API server, which ends before Open is
	// called.
	Behind(ctx context.Context, ready func() bool) bool
	// Open returns the recording in which a read goes on from a place; nil: it goes on at the API server. It blocks
	// while a disk fails that may recover soon. An error is that of ctx. Open calls Buffered of the read before a
	// recording begins.
	Open(ctx context.Context, r Read, p Place) (Recording, error)
	// End says that the read of a target ends, and that another one may begin at what is committed.
	End(t source.Target)
}

// Recording returns the signals behind a place in their order. The read closes it.
type Recording interface {
	// Next returns the next signal, and when the API server sent it. It blocks until there is one. It returns io.EOF
	// when the read has to open the backlog again, and otherwise the error of ctx. All signals before were handled.
	Next(ctx context.Context) (s source.Signal, sent time.Time, err error)
	// Close ends the use of the recording. keep says that the read ends, and that another one may need what is not
	// committed.
	Close(keep bool)
}

// Read is what a backlog asks the read that it serves. [loop.Handler] implements it, and says what the methods return.
type Read interface {
	Committed(ctx context.Context) (position string, epoch uint64, err error)
	Buffered(ctx context.Context) error
	EditWaits(ctx context.Context) (bool, error)
}

// Place is how far a read has come.
type Place struct {
	Target source.Target
	Resume string       // everything up to here was read; "": a list is next
	Seen   string       // the highest resourceVersion that was seen: see [source.Options]
	Owner  source.Owner // of the last complete list
}

// errBehind ends a run because the sink is behind, and a recording is next.
var errBehind = errors.New("the sink is behind")

// follow takes signals from the backlog or from the API server, until the other one is next or ctx ends.
func (f *follower) follow(ctx context.Context) error {
	if f.backlog == nil {
		return f.run(ctx)
	}
	p := Place{Target: f.target, Seen: f.seen, Owner: f.owner}
	if f.list == nil {
		p.Resume = f.resume
	}
	r, err := f.backlog.Open(ctx, f.handler, p)
	if err != nil {
		return err
	}
	if r != nil {
		return f.replay(ctx, r)
	}
	if err := f.handler.Direct(ctx); err != nil {
		return err
	}
	return f.run(ctx)
}

func (f *follower) replay(ctx context.Context, r Recording) error {
	f.OnState(f.collection, source.State{Phase: source.Buffered, Since: time.Now()})
	// For questions about single objects.
	f.source = source.NewCollection(source.Options{Client: f.Client, Target: f.target})
	defer func() {
		f.handler.Received = time.Time{}
		r.Close(ctx.Err() != nil)
	}()
	for {
		s, sent, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return f.handler.Handled(ctx)
		}
		if err != nil {
			return err
		}
		f.handler.Received = sent
		if err := f.Handle(ctx, s); err != nil {
			return err
		}
	}
}

// fallsBehind waits until the sink is behind and a watch may resume from a committed position. It returns false if ctx
// ends first.
func (f *follower) fallsBehind(ctx context.Context) bool {
	return f.backlog != nil && f.backlog.Behind(ctx, func() bool {
		if !f.watching.Load() {
			return false
		}
		committed, _, err := f.handler.Committed(ctx)
		return err == nil && committed != ""
	})
}

// resumable reports whether a watch may follow from the reader's position.
func (f *follower) resumable() bool {
	return f.list == nil && f.resume != "" && f.target.Resource.Version != ""
}
