package feed

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// follower passes the signals of one collection to the loop. Only the goroutine of Read uses it.
type follower struct {
	*Reader
	collection string
	selection  string // see [Options.Target]
	handler    *loop.Handler
	slot       *slot
	target     source.Target      // of the present run
	source     *source.Collection // of the present run
	epochs     *source.Epochs     // of the collection's storage
	owner      source.Owner       // of the last complete list
	resume     string             // the resourceVersion to start a watch from; "": a list comes first
	seen       string             // the highest resourceVersion of the present history
	before     string             // like seen, but without those of a running list
	list       *list              // the running list; nil: none

	watching atomic.Bool // resumable, for other goroutines
	backlog  Backlog     // nil: none
}

// list is a list that reconciles.
type list struct {
	// past are resourceVersions from before the list, the latest first. The server's state at them may still have the last bodies of
	// objects that are missing or replaced in this list. The first is the highest that was seen. If that is the version of a list that was
	// interrupted, objects may have been deleted before it, and the second is the position before that list.
	past   []string
	absent bool // nothing exists: see [reconcile.Absent]
}

// Handle implements [source.Handler].
func (f *follower) Handle(ctx context.Context, s source.Signal) error {
	switch s.Kind {
	case source.ListBegun:
		return f.listBegun(ctx, s)
	case source.ListEnded:
		return f.listEnded(ctx, s)
	case source.Progress:
		f.saw(s.RV)
		return f.reached(s.Resume, f.input(ctx, &reconcile.Input{Kind: reconcile.Bookmark, Resume: s.Resume}, 0, nil))
	}
	f.saw(s.Object.ResourceVersion)
	in := f.newSighted(s.Object, reconcile.Watch)
	in.Resume = s.Resume
	size := len(s.Object.Raw)
	if s.Kind == source.Deleted {
		in.sighting.Form, in.sighting.Fate = reconcile.Ended, fate(s.Left, !s.LeftUnknown)
	}
	if f.list == nil {
		return f.reached(s.Resume, f.input(ctx, &in.Input, size, in.release))
	}
	in.sighting.Origin = reconcile.List
	if len(f.list.past) == 0 {
		return f.input(ctx, &in.Input, size, in.release)
	}
	return f.slot.lend(ctx, func() error { return f.handler.Listed(ctx, &in.Input, size, in.object.Own, in.release) })
}

// reached records the position of a signal if passing it on succeeded, and returns the error.
func (f *follower) reached(resume string, err error) error {
	if err == nil {
		f.resume = resume
	}
	return err
}

// fate converts the answer of the server, whether an object exists, to a fate.
func fate(alive, known bool) reconcile.Fate {
	switch {
	case !known:
		return reconcile.Unknown
	case alive:
		return reconcile.Left
	}
	return reconcile.Gone
}

// input passes an input on, and gives the slot of a list back while the loop blocks. size and release are as in
// [loop.Handler.Input]. The loop then owns everything that in points to.
func (f *follower) input(ctx context.Context, in *reconcile.Input, size int, release func()) error {
	return f.slot.lend(ctx, func() error { return f.handler.Input(ctx, in, size, release) })
}

// saw updates the highest resourceVersion that was seen.
func (f *follower) saw(rv string) {
	if f.seen == "" || rv != "" && event.Newer(rv, f.seen) {
		f.seen = rv
	}
	if f.list == nil && (f.before == "" || rv != "" && event.Newer(rv, f.before)) {
		f.before = rv
	}
}

func (f *follower) listBegun(ctx context.Context, s source.Signal) error {
	if s.NewEpoch { // versions of the previous history do not count
		f.before, f.resume, f.seen = "", "", ""
	}
	past := slices.DeleteFunc([]string{f.seen, f.before}, func(rv string) bool { return rv == "" })
	f.list = &list{past: slices.Compact(past), absent: s.Reason == event.ReasonGone}
	f.watching.Store(false)
	reason := s.Reason
	if reason == source.ReasonSnapshot { // also for a collection that was complete without a version, because its resource did not exist
		reason = event.ReasonExpired
	}
	in := &reconcile.Input{Kind: reconcile.ListBegun, Reason: reason, NewEpoch: s.NewEpoch, Absent: f.list.absent}
	return f.slot.lend(ctx, func() error { return f.handler.ListBegun(ctx, in, s.Detail) })
}

func (f *follower) listEnded(ctx context.Context, s source.Signal) error {
	f.saw(s.RV)
	if err := f.recallReplaced(ctx); err != nil {
		return err
	}
	if err := f.input(ctx, &reconcile.Input{Kind: reconcile.ListEnded, Version: s.RV, Owner: ownerText(s.Owner)}, 0, nil); err != nil {
		return err
	}
	if err := f.reportMissing(ctx, s.RV); err != nil {
		return err
	}
	if err := f.input(ctx, &reconcile.Input{Kind: reconcile.ListDone}, 0, nil); err != nil {
		return err
	}
	f.list, f.resume, f.before, f.owner = nil, s.RV, s.RV, s.Owner
	f.watching.Store(f.resumable())
	return nil
}

// ownerText is an owner as the checkpoint keeps it: two UIDs, which have no spaces.
func ownerText(o source.Owner) string {
	if o == (source.Owner{}) {
		return ""
	}
	return o.CRD + " " + o.Namespace
}

// parseOwner reverses ownerText.
func parseOwner(text string) (o source.Owner) {
	o.CRD, o.Namespace, _ = strings.Cut(text, " ")
	return o
}
