package pipeline

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// maxSuspects bounds what a verification remembers of differences.
const maxSuspects = 10_000

// surveyRetry is how long a survey that broke off waits.
const surveyRetry = 30 * time.Second

// survey is a list beside a live watch (design rule 4): a resync, which tells the
// present state again and leaves to the watch what that has told or is yet to tell, or a
// verification, which tells nothing.
type survey struct {
	run     string // of a resync; "": a verification
	begun   time.Time
	stop    context.CancelFunc
	touched map[string]struct{} // keys of which the watch has told since
	seen    *keySet
	counts  event.Counts
	rv      string // of the list; "" while it is under way
	// Of a resync. Listed objects that the watch tells of instead, and those whose end it
	// is to tell, true while it has not, and how many it has not; and those that nobody is
	// told of.
	late     map[string]bool
	awaited  int
	filtered *keySet
	// Where changes may not matter: objects that were listed as they are known, and those
	// that were told as present when the watch had such a change of them, before the list
	// or instead of it.
	present, retold map[string]struct{}
	// Of a verification. The inventory may trail the list: what differs is only
	// judged when the watch has passed the list's resourceVersion.
	suspects map[string]suspect
}

// suspect is an object that the list and the inventory differ in.
type suspect struct {
	uid, rv string // as listed; "": not listed
	hash    uint64
}

// touch notes that the watch told of an object, or that it was retold.
func (s *survey) touch(key []byte) {
	if s != nil {
		s.touched[string(key)] = struct{}{}
		delete(s.suspects, string(key))
		if s.late[string(key)] {
			s.late[string(key)] = false
			s.awaited--
		}
	}
}

// untold reports whether a resync is under way in which nothing was told of an object.
func (s *survey) untold(key []byte) bool {
	if s == nil || s.run == "" {
		return false
	}
	_, touched := s.touched[string(key)]
	_, present := s.present[string(key)]
	return !touched && !present
}

// isLate notes a listed object that the watch tells of.
func (s *survey) isLate(key []byte, awaited bool) {
	if len(s.late) >= maxSuspects {
		s.counts.Unchanged++ // nothing tells of it for certain
		return
	}
	if s.late[string(key)] = awaited; awaited {
		s.awaited++
	}
}

// beginSurvey lists a member that is in step, beside its watch.
func (l *Lane) beginSurvey(ctx context.Context, m *member, run string) error {
	if run != "" {
		if err := l.room(ctx); err != nil {
			return err
		}
		next := m.note
		next.Resync = run
		l.emit(m, &event.Event{
			Type: event.Gap, Origin: event.Resync, Time: time.Now(), ResourceVersion: m.position.RV, Run: run,
			Report: &event.Report{Reason: reasonResync, From: m.position.RV},
		}, m.noted(next))
		l.log.Info("resync begins", m.field())
	}
	listing, stop := context.WithCancel(l.collect)
	s := &survey{
		run: run, begun: time.Now(), stop: stop,
		touched: map[string]struct{}{}, seen: newKeySet(), late: map[string]bool{}, filtered: newKeySet(), present: map[string]struct{}{}, retold: map[string]struct{}{}, suspects: map[string]suspect{},
	}
	m.survey = s
	target := m.target
	l.running.Go(func() {
		rv, err := l.cluster.survey(listing, target, surveyHandler{l, m, s})
		if err == nil && rv == "" {
			err = fmt.Errorf("a list without a resourceVersion")
		}
		_ = l.pass(listing, parcel{member: m, survey: s, ended: err, signal: source.Signal{Kind: source.ListEnded, RV: rv}})
	})
	return nil
}

// surveyHandler hands what a survey lists to the lane.
type surveyHandler struct {
	lane   *Lane
	member *member
	survey *survey
}

// Handle implements source.Handler.
func (h surveyHandler) Handle(ctx context.Context, s source.Signal) error {
	return h.lane.pass(ctx, parcel{member: h.member, signal: s, survey: h.survey})
}

// endSurvey ends a survey, or breaks it off; a resync is then begun again later.
func (l *Lane) endSurvey(m *member) {
	if m.survey != nil {
		m.survey.stop()
		m.survey = nil
	}
}

func (l *Lane) surveyed(ctx context.Context, p parcel) error {
	m, s := p.member, p.survey
	if m.survey != s {
		return nil // broken off
	}
	switch {
	case p.ended != nil:
		l.log.Warn("a list beside the watch broke off; it is tried again", m.field(), zap.Error(p.ended))
		m.notBefore = time.Now().Add(surveyRetry)
		l.endSurvey(m)
		return nil
	case p.signal.Kind == source.Listed:
		return l.surveyedObject(ctx, m, p.signal.Object)
	case p.signal.Kind == source.ListEnded:
		s.rv = p.signal.RV
		if s.run != "" {
			if err := l.awaitEnds(m); err != nil {
				return err
			}
		}
		return l.passed(ctx, m)
	}
	return nil
}

// awaitEnds has a resync wait until the watch has told the end of what was gone when the
// list was made: until then it exists for consumers, and nothing in the resync says so.
func (l *Lane) awaitEnds(m *member) error {
	s := m.survey
	return l.inv.each(m.prefix(), func(key []byte, e *checkpoint.Entry) bool {
		_, touched := s.touched[string(key)]
		return e.Told && m.holds(key, e) && !touched && !s.seen.has(key)
	}, func(o object) error {
		s.isLate(o.key, true)
		return nil
	})
}

func (l *Lane) surveyedObject(ctx context.Context, m *member, o *source.Object) error {
	s := m.survey
	key := m.entryKey(o.Namespace, o.Name)
	s.counts.Listed++
	s.seen.add(key)
	known, err := l.inv.get(key)
	if err != nil {
		return err
	}
	hash, err := l.hash(m, o)
	if err != nil {
		return err
	}
	exactly := known != nil && known.UID == o.UID && known.RV == o.ResourceVersion
	_, touched := s.touched[string(key)]
	_, retold := s.retold[string(key)]
	switch {
	case s.run == "":
	case retold:
		return nil
	case exactly && known.Told:
		s.counts.Present++
		if m.lens.ignore != nil {
			s.present[string(key)] = struct{}{}
		}
		return l.tell(ctx, m, o, telling{
			typ: event.Present, origin: event.Resync, entry: known.Entry, again: known.Again, hash: hash, rest: known.Rest, known: known,
		})
	case exactly && m.lens.filter == nil: // the first list was not to be told
		s.counts.Skipped++
		return nil
	case exactly:
		s.counts.Filtered++
		s.filtered.add(key)
		return nil
	default:
		s.isLate(key, !touched)
		return nil
	}
	if touched || exactly && (known.Hash == hash || known.APIVersion != o.APIVersion) {
		s.counts.Unchanged++
		return nil
	}
	if len(s.suspects) < maxSuspects {
		s.suspects[string(key)] = suspect{o.UID, o.ResourceVersion, hash}
	}
	return nil
}

// resynced ends a resync.
func (l *Lane) resynced(ctx context.Context, m *member) error {
	s := m.survey
	if err := l.room(ctx); err != nil {
		return err
	}
	if err := l.account(m); err != nil {
		return err
	}
	next := m.note
	next.Resync, next.Resynced = "", time.Now()
	l.log.Info("resync ends", m.field(), zapCounts(s.counts))
	l.emit(m, &event.Event{
		Type: event.Synced, Origin: event.Resync, Time: time.Now(), ResourceVersion: m.position.RV, Run: s.run,
		Report: &event.Report{Reason: reasonResync, To: m.position.RV, Since: &s.begun, Counts: &s.counts},
	}, m.noted(next))
	l.endSurvey(m)
	return nil
}

// account counts what the watch told beside a resync, and has what that did not tell
// of what was listed.
func (l *Lane) account(m *member) error {
	s, c := m.survey, &m.survey.counts
	c.Unchanged += s.awaited
	for key := range s.touched {
		known, err := l.inv.get([]byte(key))
		if err != nil {
			return err
		}
		listed, filtered := s.seen.has([]byte(key)), s.filtered.has([]byte(key))
		_, late := s.late[key]
		here := known != nil && m.holds([]byte(key), known)
		if _, retold := s.retold[key]; retold && listed {
			if c.Present++; !here || !known.Told {
				c.Deleted++
			}
			continue
		}
		switch told := here && known.Told; {
		case told && !listed:
			c.Added++
		case told && filtered:
			c.Filtered--
			c.Modified++
		case told && late:
			c.Modified++
		case told, !listed: // present, and perhaps told again; or come and gone
		case here && late:
			c.Filtered++
		case here && filtered:
		case late: // it ended before it could be told
			c.Listed--
		case filtered:
			c.Filtered--
			c.Listed--
		default: // it was present
			c.Deleted++
		}
	}
	return nil
}

// passed ends a resync once the watch has told all that the list left to it, and judges
// a verification once the watch has passed its list.
func (l *Lane) passed(ctx context.Context, m *member) error {
	s := m.survey
	if s == nil || s.rv == "" {
		return nil
	}
	through := compareRV(m.position.RV, s.rv) >= 0
	switch {
	case s.run != "" && (through || s.awaited == 0):
		return l.resynced(ctx, m)
	case s.run != "", !through:
		return nil
	}
	drift := 0
	err := l.inv.each(m.prefix(), func(key []byte, e *checkpoint.Entry) bool {
		_, touched := s.touched[string(key)]
		return m.holds(key, e) && !touched && !s.seen.has(key) && compareRV(e.RV, s.rv) <= 0
	}, func(object) error {
		drift++
		return nil
	})
	if err != nil {
		return err
	}
	for key, want := range s.suspects {
		known, err := l.inv.get([]byte(key))
		if err != nil {
			return err
		}
		if known == nil || known.UID != want.uid || known.RV != want.rv || known.Hash != want.hash {
			drift++
		}
	}
	l.endSurvey(m)
	m.verified = time.Now()
	l.metrics.drift.WithLabelValues(l.id.Sink, m.resource).Add(float64(drift))
	if drift == 0 {
		l.log.Debug("verified", m.field(), zap.Int("listed", s.counts.Listed))
		return nil
	}
	l.log.Warn("the cluster holds other than what the bus was told; reconciling", m.field(), zap.Int("objects", drift))
	if err := l.halt(ctx, m, observed); err != nil {
		return err
	}
	m.because = reasonDrift
	l.set(m, event.Position{Epoch: m.position.Epoch, RV: m.position.RV, Void: true})
	l.start(m)
	return nil
}

// tick does what members ask for at intervals.
func (l *Lane) tick(ctx context.Context) error {
	now := time.Now()
	if err := l.resume(ctx, now); err != nil {
		return err
	}
	for _, m := range l.members {
		if !m.inStep() || m.survey != nil || !m.running || now.Before(m.notBefore) || !l.status.watching(m.id) {
			continue
		}
		o := &m.options
		switch {
		case m.note.Resync != "", o.Resync > 0 && now.Sub(m.note.Resynced) > o.Resync:
			// One that broke off has told some of it, under the ids of its run.
			if err := l.beginSurvey(ctx, m, newRun()); err != nil {
				return err
			}
			continue
		case o.VerifyEvery > 0 && now.Sub(m.verified) > o.VerifyEvery:
			m.verified = now.Add(rand.N(o.VerifyEvery / 10)) // so that collections drift apart
			if err := l.beginSurvey(ctx, m, ""); err != nil {
				return err
			}
			continue
		}
		if o.SyncedEvery == 0 || now.Before(m.nextSync) {
			continue
		}
		m.nextSync = now.Add(o.SyncedEvery)
		if err := l.room(ctx); err != nil {
			return err
		}
		l.emit(m, &event.Event{
			Type: event.Synced, Origin: event.Watch, Time: now, ResourceVersion: m.position.RV, Run: newRun(),
			Report: &event.Report{Reason: reasonPeriodic, To: m.position.RV},
		}, nil)
	}
	return nil
}

// newRun names a reset, a resync or a repeated synced. In seconds, a clock that is set
// back would come to the same ones again.
func newRun() string { return strconv.FormatInt(time.Now().UnixNano(), 36) }

// Resync announces the present state of collections again: of all of a resource,
// or of one by its ID. It returns the IDs of those that it concerns.
func (l *Lane) Resync(ctx context.Context, resource string) ([]string, error) {
	var ids []string
	err := l.do(ctx, func(ctx context.Context) error {
		for _, m := range l.members {
			if m.id != resource && m.resource != resource {
				continue
			}
			ids = append(ids, m.id)
			if m.note.Resync == "" {
				if err := l.room(ctx); err != nil {
					return err
				}
				next := m.note
				next.Resync = newRun()
				l.quietly(m, m.noted(next)...)
			}
		}
		return nil
	})
	if err != nil { // the lane may still be at it
		return nil, err
	}
	return ids, nil
}
