package encode

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape/manager"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// compare adds the difference to the state that consumers have, and the field managers that made it, to an event,
// as configured. It leaves out unknown parts.
func (e *Encoder) compare(c *collection, i *reconcile.Item, ev *event.Event, o *source.Object) {
	if ev.Type != event.Modified && ev.Type != event.Added || !c.before && !c.patch && !c.changedBy {
		return
	}
	var before []byte
	f := factsOf(i)
	if ev.Type == event.Modified && f != nil && f.object == o {
		before = f.consumersHave()
	}
	if before != nil && c.patch {
		room := e.open.room(512)
		out, err := e.differ.maker.Append(room, before, ev.Object)
		if err != nil {
			e.objects.write(zap.ErrorLevel, "comparison with the published body failed, event published without patch",
				c, objectName(o.Namespace, o.Name), zap.Error(err))
		} else {
			ev.Patch, ev.Base = e.open.keep(room, out), f.known.At
		}
		if e.differ.maker.Coarse() {
			e.count(c, CostlyPatch, ev.Type)
		}
	}
	if before != nil && c.before {
		ev.Before, ev.Base = e.open.copied(before), f.known.At
	}
	if c.changedBy {
		e.changedBy(c, ev, o, before)
	}
}

// changedBy adds the field managers that changed an object. If they cannot be read, it adds nothing. If
// the comparison would take too many steps, it marks changedby as left out.
func (e *Encoder) changedBy(c *collection, ev *event.Event, o *source.Object, before []byte) {
	d, whole := &e.differ, o.Raw
	if c.redact != nil { // values that are redacted on both sides count as unchanged
		out, err := c.redact.Append(d.whole[:0], o.Raw, objectName(o.Namespace, o.Name))
		if err != nil {
			return
		}
		d.whole, whole = out, out
	}
	d.managers.HideValues = c.redact != nil
	var (
		changes []manager.Change
		err     error
	)
	if before != nil {
		changes, err = d.managers.By(before, whole)
	} else {
		changes, err = d.managers.Newest(whole, time.Time{})
	}
	if errors.Is(err, manager.ErrCostly) {
		ev.LeftOut = []string{"changedby"}
		e.count(c, CostlyChangedBy, ev.Type)
	}
	if err != nil || len(changes) == 0 {
		return
	}
	room := e.open.room(512)
	ev.ChangedBy = e.open.keep(room, manager.Append(room, changes))
}
