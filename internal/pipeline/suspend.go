package pipeline

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

const (
	suspendFirst = 5 * time.Second // then twice as long, and so on
	suspendMost  = 2 * time.Minute
)

// suspension is a member whose route the bus refuses (design rule 11): it is taken
// out of the lane, so that the others flow on, and tried again later.
type suspension struct {
	member *member
	err    error
}

// suspend takes out of the batch, from the refused record on, the collections that
// use its route. What the bus has taken of them before that stays. Their intents are
// taken back of what went that way; the bus may have taken what went another.
func (b *batch) suspend(e *sink.RouteError) {
	refused := b.of[e.Index]
	members := map[*member]bool{refused.member: true}
	untold := map[origin]bool{}
	for i := e.Index; i < len(b.Records); i++ {
		if b.Records[i].Route == e.Route {
			members[b.of[i].member] = true
			untold[b.of[i].origin] = true
		}
	}
	for _, v := range b.before {
		if untold[v.origin] && checkpoint.IsIntent(v.Key) {
			b.move(origin{nil, quiet}, event.KV{Key: v.Key})
		}
	}
	for m := range members {
		b.drop(m, refused.record)
		b.suspended = append(b.suspended, suspension{m, e})
	}
	b.Commit.Changes = changes(b.moves)
}

// suspendAll stops the members that the last batches had to leave behind, drops
// what is enqueued of them, and has them begin again, later, from what is
// committed. It is called between two signals.
func (l *Lane) suspendAll(ctx context.Context) error {
	for len(l.suspended) > 0 {
		m, err := l.suspended[0].member, l.suspended[0].err
		if l.members[m.id] == m && m.running {
			if err := l.halt(ctx, m, func(p parcel) bool { return p.member == m }); err != nil {
				return err
			}
		}
		l.current.drop(m, 0)
		delete(l.moved, m)
		if l.idle() { // nothing is left whose commit would give it back
			l.budget.Release(l.current.held)
			l.current.held = 0
		}
		l.inv.drop(m)
		if err := l.forgetTentative(m); err != nil {
			return err
		}
		m.declared = m.note.Reset == m.reset
		m.pause = min(max(2*m.pause, suspendFirst), suspendMost)
		m.resumes = time.Now().Add(m.pause)
		l.reminder().failed(l.routeKey(m.id), failure{
			message: "collection suspended: the bus refuses its route; the others go on", err: err, advice: advice(err),
			lasts:  2 * suspendMost, // what was refused may be filtered out by then
			fields: []zap.Field{zap.String("sink", l.id.Sink), m.field(), zap.Duration("for", m.pause)},
		})
		l.stateChanged(m.id, m.resource, source.State{Phase: source.Waiting, Since: time.Now(), Until: m.resumes, Err: err})
		l.metrics.suspended.WithLabelValues(l.id.Sink, m.resource).Inc()
		l.suspended = l.suspended[1:]
	}
	l.suspended = nil
	return nil
}

// forgetTentative has a member know again what the store does.
func (l *Lane) forgetTentative(m *member) error {
	m.position, m.stated, m.quiet = event.Position{}, event.Position{}, 0
	resynced := m.note.Resynced
	m.note = checkpoint.Note{}
	if _, err := l.recallMember(m); err != nil {
		return err
	}
	if m.note.Resynced.IsZero() {
		m.note.Resynced = resynced
	}
	return l.inv.readIntents(checkpoint.IntentPrefix(m.resource, m.target.Collection.Namespace))
}

// resume starts members again whose suspension is over.
func (l *Lane) resume(ctx context.Context, now time.Time) error {
	for _, m := range l.members {
		if !m.resumes.IsZero() && now.After(m.resumes) {
			m.resumes = time.Time{}
			if err := l.align(ctx, m); err != nil {
				return err
			}
			l.start(m)
		}
	}
	return nil
}
