package loop

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/core/reconcile"
)

// editState says which settings of a collection are in effect in the core, the reader and the encoder.
//
// An edit that leads to a list voids the position. While the collection is read from the disk buffer, this would skip what was received and
// is not published yet. Such an edit waits, so that it takes effect behind everything that was received before it.
//
//	state    in effect            next     when
//	applied  the wanted settings  waiting  another plan's settings lead to a list, the reader does not read from the API server, and
//	                                       [Wanted].Keep finds a recording with the present settings
//	waiting  the settings before  applied  the reader reads from the API server: see [Handler.Direct]
//	                              applied  another plan's settings begin another incarnation, or do not lead to a list; or Keep finds nothing
//	                              waiting  another plan's settings lead to a list: only the last ones are applied
//
// A start and the end of a suspension decide as another plan does. The store has the present settings then.
type editState uint8

const (
	applied editState = iota
	waiting
)

// adopt decides whether the wanted settings of a collection take effect now, or wait.
func (l *Loop) adopt(id string) {
	w := l.plan.wanted[id]
	switch c := l.core.Collection(id); {
	case w == nil:
	case c != nil && w.Keep != nil && c.Relists(w.next) && !l.reads.isDirect(id, l.core.Reading(id).Number) && w.Keep(c.Properties):
		w.properties = c.Properties
		l.setEdit(w, waiting)
	default:
		l.apply(w)
	}
}

// apply makes the reader and the encoder use the wanted settings. [Loop.configure] passes them on to the core.
func (l *Loop) apply(w *wantedCollection) {
	if w.Use != nil {
		w.Use()
	}
	w.properties = w.next
	l.setEdit(w, applied)
}

func (l *Loop) setEdit(w *wantedCollection, s editState) {
	if w.edit == s {
		return
	}
	w.edit = s
	l.Observer.EditWaits(w.ID, s == waiting)
	if s == waiting {
		l.Log.Info("changed configuration waits until everything is published that the disk buffer has", zap.String("collection", w.ID))
	} else {
		l.Log.Info("changed configuration applied", zap.String("collection", w.ID))
	}
}

// sourceChanged notes where a read reads from. An edit waits no longer if that is the API server.
func (l *Loop) sourceChanged(id string, read uint64, direct bool) {
	w, now := l.plan.wanted[id], l.reads.open[id]
	if now == nil || now.number != read {
		return
	}
	now.direct = direct
	if !direct || w == nil || w.edit != waiting {
		return
	}
	l.apply(w)
	l.batches.noteLatest(l.plan.number()...)
	l.configure(id)
	if l.core.Reading(id).Number != read {
		l.reads.stop(id) // it must not read by the settings before
	}
}

// editWaits implements [Handler.EditWaits].
func (l *Loop) editWaits(ctx context.Context, collection string) (bool, error) {
	found := make(chan bool, 1)
	err := l.do(ctx, func(context.Context) error {
		w := l.plan.wanted[collection]
		found <- w != nil && w.edit == waiting
		return nil
	})
	if err != nil {
		return false, err
	}
	return <-found, nil
}

// configure passes the properties of a collection on to the core.
func (l *Loop) configure(id string) {
	if properties, wanted := l.plan.properties(id); wanted && !l.suspended.has(id) {
		l.core.Step(&reconcile.Input{Kind: reconcile.Configure, Collection: id, Properties: properties, Now: l.number(time.Now())})
	}
}
