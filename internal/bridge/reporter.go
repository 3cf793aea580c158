package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/wait"

	planning "github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// reporter shows the state of one sink in the log, the metrics and the status.
type reporter struct {
	name    string // of the sink
	log     *zap.Logger
	metrics *Metrics
	outage  *outage
	shown   status.Sink // fields that do not change: see [SinkSpec.Shown]
	status  sinkStatus
}

func newReporter(shown status.Sink, log *zap.Logger, metrics *Metrics, shared *outage) *reporter {
	r := &reporter{name: shown.Name, shown: shown, log: log.With(zap.String("sink", shown.Name)), metrics: metrics, outage: shared}
	if r.outage == nil {
		r.outage = newOutage(r.log)
	}
	r.status.operation = operation{failing: "open the bus: it has not answered yet", since: time.Now()}
	return r
}

// reminder returns the reminder, which logs a failure repeatedly until it is over.
func (r *reporter) reminder() *reminder { return r.outage.reminder }

// routeKey is the reminder's key of a collection's suspensions.
func (r *reporter) routeKey(id string) string { return r.name + ": route of " + id }

// collectionKey is the reminder's key of a collection's other failures.
func (r *reporter) collectionKey(id string) string { return r.name + ": collection " + id }

// remove removes a collection from the status, and ends its reminders.
func (r *reporter) remove(id string) {
	r.status.remove(id)
	r.outage.met(r.name+": "+id, nil)
	r.reminder().works(r.routeKey(id))
	r.reminder().works(r.collectionKey(id))
}

// delivered counts records that are on the bus and in the checkpoint.
func (r *reporter) delivered(records []event.Record) {
	if n := len(records); n > 0 {
		r.metrics.records.WithLabelValues(r.name).Observe(float64(n))
	}
	type kind struct {
		collection *event.Collection
		typ        event.Type
	}
	delivered := map[kind]int{}
	for i := range records {
		ev := records[i].Event
		if ev.DeadLetter != nil {
			r.metrics.dead.WithLabelValues(r.name, ev.DeadLetter.Reason).Inc()
			continue
		}
		delivered[kind{ev.Collection, ev.Type}]++
		switch resource := ev.Collection.ResourceID(); {
		case ev.Type == event.Gap:
			r.metrics.gaps.WithLabelValues(r.name, resource, string(ev.Report.Reason)).Inc()
		case ev.Type == event.Synced && ev.Report.Reason == event.ReasonDrift && ev.Report.Counts != nil:
			n := ev.Report.Counts
			r.metrics.drift.WithLabelValues(r.name, resource).Add(float64(n.Added + n.Modified + n.Present + n.Deleted))
		}
	}
	for k, n := range delivered {
		r.metrics.delivered.WithLabelValues(r.name, k.collection.ResourceID(), k.typ.String()).Add(float64(n))
	}
	r.status.delivered(records)
}

// present returns the sink's present state, as far as it does not depend on its kind.
func (r *reporter) present() status.Sink {
	s := &r.status
	s.mu.Lock()
	defer s.mu.Unlock()
	out := r.shown
	failing, since := s.operation.failure()
	if failing == "" {
		failing, since = s.check.failure()
	}
	out.Ready, out.Failing, out.Since, out.Delivered, out.Collections = failing == "", failing, ifAny(since), s.count, []status.Collection{}
	out.LastError, out.LastEvent, out.LastCommit = s.lastError, ifAny(s.last), ifAny(s.committed)
	out.Queue = s.queue()
	for _, c := range s.collections {
		out.Collections = append(out.Collections, c.status())
	}
	for _, c := range s.waiting {
		out.Collections = append(out.Collections, c)
	}
	slices.SortFunc(out.Collections, func(a, b status.Collection) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Waiting shows the configured resources that cannot be watched now in the status. why has the reasons, by
// name.
func (r *reporter) Waiting(why map[string]error) {
	s := &r.status
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.waiting
	s.waiting = map[string]status.Collection{}
	for name, err := range why {
		now := status.Collection{ID: name, State: status.Discovering, Since: time.Now(), Error: err.Error()}
		if b, ok := before[name]; ok {
			now.Since = b.Since
		}
		now.LastError = &status.Trouble{Error: now.Error, Advice: advice(err, adviceCollection), At: now.Since}
		s.waiting[name] = now
		if errors.Is(err, planning.ErrNamespacesUnknown) { // their list is under way
			r.reminder().works(r.absenceKey(name))
			continue
		}
		message := "waiting for a resource"
		if errors.Is(err, planning.ErrSeveral) {
			message = "several resources have the name"
		}
		r.reminder().failed(r.absenceKey(name), failure{
			message: message, every: remindAbsence, err: err, advice: now.LastError.Advice,
			fields: []zap.Field{zap.String("sink", r.name), zap.String("resource", name)},
		})
	}
	for name := range before {
		if _, ok := why[name]; !ok {
			r.reminder().works(r.absenceKey(name))
		}
	}
}

// absenceKey is the reminder's key of a resource that is not there yet.
func (r *reporter) absenceKey(name string) string { return r.name + ": resource " + name }

// stateChanged shows and logs the state of a collection. It may be called from any goroutine.
func (r *reporter) stateChanged(id string, st source.State) {
	s := &r.status
	s.mu.Lock()
	c := s.collections[id]
	if c == nil { // it was removed
		s.mu.Unlock()
		return
	}
	before := *c
	suspended := errors.As(st.Err, new(*sink.RouteError)) || errors.As(st.Err, new(*sink.RecordError)) // the pipeline logs it
	var met error
	if !suspended {
		met = st.Err
	}
	// A failure is over with the first page of a list, not when the list is attempted again.
	attempt := st.Err == nil && st.Phase == source.Reconciling && before.State != status.Reconciling
	if !attempt {
		c.own = r.outage.met(r.name+": "+id, met)
	}
	c.State, c.Error, c.RetryAt = status.State(st.Phase), "", nil
	c.left = st.Left
	if before.State != c.State {
		c.Since = st.Since
		c.tally.read.Store(0)
	}
	if st.Err != nil {
		c.Error = st.Err.Error()
		c.RetryAt = ifAny(st.Until)
		c.LastError = &status.Trouble{Error: c.Error, Advice: advice(st.Err, adviceCollection), At: st.Since}
	}
	now := *c
	s.mu.Unlock()
	switch key := r.collectionKey(id); {
	case suspended, attempt:
	case st.Phase == source.Gone:
		r.reminder().works(key)
	case now.own:
		r.reminder().failed(key, failure{
			message: "collection " + string(st.Phase) + "; trying again", err: st.Err, advice: advice(st.Err, adviceCollection),
			fields: []zap.Field{zap.String("sink", r.name), zap.String("collection", id)},
		})
	default:
		if after := r.reminder().works(key); after > 0 && st.Err == nil {
			r.log.Info("collection goes on", zap.String("collection", id), zap.String("state", string(st.Phase)), zap.Duration("after", after))
		}
	}
}

// retry repeats do until it succeeds, ctx ends, or it fails with an error for which retrying does not help. The status
// shows the error. The log has the error when it begins, when it changes, every minute, and when it is over. The
// metrics have the duration of the successful attempt, and resets that the bus makes necessary.
func (r *reporter) retry(ctx context.Context, what string, do func() error) error {
	pause := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.3, Steps: 1 << 30, Cap: 5 * time.Second}
	defer r.reminder().works(r.name + ": " + what)
	for {
		again, err := r.attempt(ctx, &r.status.operation, what, do)
		if !again {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause.Step()):
		}
	}
}

// once is retry for what is done again and again anyway: it does not wait until do succeeds, and returns nil meanwhile.
func (r *reporter) once(ctx context.Context, what string, do func() error) error {
	again, err := r.attempt(ctx, &r.status.check, what, do)
	if again {
		return nil
	}
	return err
}

// attempt calls do, and shows the result in a part of the status. again: do has failed, and may succeed later.
func (r *reporter) attempt(ctx context.Context, shown *operation, what string, do func() error) (again bool, err error) {
	key, began := r.name+": "+what, time.Now()
	fails := failure{message: tryingAgain, fields: []zap.Field{zap.String("sink", r.name), zap.String("operation", what)}}
	if shown == &r.status.check {
		fails.lasts = remindOutage // it may not be called again, because the loop ends
	}
	r.status.begins(shown, what)
	defer r.status.begins(shown, "")
	if err = do(); err == nil {
		if h := r.metrics.seconds[what]; h != nil {
			h.WithLabelValues(r.name).Observe(time.Since(began).Seconds())
		}
		if after := r.reminder().works(key); after > 0 {
			r.log.Info("operation recovered", zap.String("operation", what), zap.Duration("after", after))
		}
		r.status.ends(shown, "", "")
		return false, nil
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if errors.Is(err, sink.ErrReset) {
		r.metrics.resets.WithLabelValues(r.name).Inc()
	}
	var refused *sink.RefusedError
	if errors.Is(err, sink.ErrFenced) || errors.Is(err, checkpoint.ErrFenced) || errors.Is(err, sink.ErrReset) || errors.As(err, &refused) || final(err) {
		return false, fmt.Errorf("%s: %w", what, err)
	}
	r.metrics.failures.WithLabelValues(r.name).Inc()
	fails.err, fails.advice = err, advice(err, adviceSink)
	if r.reminder().failed(key, fails) {
		r.metrics.outages.WithLabelValues(r.name).Inc()
	}
	r.status.ends(shown, what+": "+err.Error(), fails.advice)
	return true, nil
}

const tryingAgain = "operation failed, retrying"

// final reports whether retrying does not help against a store's error.
func final(err error) bool {
	for _, e := range []error{checkpoint.ErrForeign, checkpoint.ErrLocked, checkpoint.ErrUnusable, checkpoint.ErrCorrupt, checkpoint.ErrNewer, checkpoint.ErrOlder, checkpoint.ErrMoved} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
