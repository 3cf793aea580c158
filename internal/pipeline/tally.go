package pipeline

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// tally is what a member's goroutines count for the status. Anyone may read it.
type tally struct {
	objects atomic.Int64 // in the inventory; below 0: not known
	read    atomic.Int64 // by the list under way
}

// unknownObjects is so far below 0 that no event lifts it above.
const unknownObjects = math.MinInt64 / 2

// count takes stock of a member's inventory, which events then move.
func (l *Lane) count(m *member) {
	m.tally.objects.Store(unknownObjects)
	if m.position.RV == "" || m.position.Void {
		return // a list will tell
	}
	n := int64(0)
	err := l.reads.Scan(m.prefix(), func(key, value []byte) error {
		if _, ok := l.inv.enqueued(key); ok {
			return nil
		}
		owner, err := checkpoint.OwnerIn(value)
		if err != nil {
			return fmt.Errorf("inventory %s: %w", key, err)
		}
		if owner == m.owner {
			n++
		}
		return nil
	})
	if err != nil { // who works with the entry will end the lane
		l.log.Warn("objects cannot be counted", m.field(), zap.Error(err))
		return
	}
	for key, p := range l.inv.allEnqueued() {
		if p.entry != nil && m.holds([]byte(key), p.entry) {
			n++
		}
	}
	m.tally.objects.Store(n)
}

// load is what a batch weighs. Its batch's goroutine sets it, anyone may read it.
type load struct {
	records, bytes atomic.Int64
	oldest         atomic.Int64 // when its first event was read, in Unix nanoseconds; 0: it is empty
}

// is shows b; nil is nothing.
func (w *load) is(b *batch) {
	if b == nil || len(b.Records) == 0 {
		w.records.Store(0)
		w.bytes.Store(0)
		w.oldest.Store(0)
		return
	}
	w.records.Store(int64(len(b.Records)))
	w.bytes.Store(int64(b.bytes))
	w.oldest.Store(b.Records[0].Event.Time.UnixNano())
}

// advice says what a person can do about an error that is tried again.
func advice(err error) string {
	var route *sink.RouteError
	switch {
	case apierrors.IsForbidden(err):
		return "let the bridge's account get, list and watch the resource"
	case apierrors.IsUnauthorized(err):
		return "renew the bridge's credentials: its service account or kubeconfig"
	case errors.Is(err, source.ErrNoResource):
		return "install what defines the resource, correct its name, or take it out of the configuration"
	case errors.Is(err, source.ErrNotWatchable):
		return "take it out of the configuration: the API server cannot list and watch it"
	case errors.Is(err, source.ErrUnknownGroup):
		return "repair the server behind the APIService (kubectl get apiservices), delete the APIService, or name its group in exclude"
	case errors.As(err, &route):
		return "create the topic or stream, or let the bridge write to it"
	case apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err), apierrors.IsInternalError(err):
		return "the API server is short of something: look at its load if this lasts"
	default:
		return "look at what the error names if this lasts: it is tried again, and nothing is lost meanwhile"
	}
}
