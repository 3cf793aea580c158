package attribution

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/internal/base/diskguard"
	"github.com/kubebridge/kubebridge/pkg/event"
)

const (
	// sendsAgain is for how long an API server repeats a batch that it cannot send, at least: the batch is dropped after four repetitions,
	// by default after 80 seconds.
	sendsAgain = 30 * time.Second
	// buffers is for how long an API server collects records before it sends them, by default at most.
	buffers = 30 * time.Second
	// maxDetail bounds the text of a loss.
	maxDetail = 1 << 10
)

func newLoss(since time.Time, detail string) *audit.Loss {
	return &audit.Loss{Since: since, Until: time.Now(), Detail: detail[:min(len(detail), maxDetail)]}
}

// unparsable returns a record that says that an event did not parse. Where records are declared complete, that is a loss.
func unparsable(input int, why error) audit.Record {
	return audit.Record{ID: rand.Text(), Input: input, Lost: newLoss(time.Time{}, "an audit event does not parse: "+why.Error())}
}

// lastTime returns the time of the last record that has one; known if none has.
func lastTime(records []audit.Record, known time.Time) time.Time {
	for i := range slices.Backward(records) {
		if at := records[i].Reached; !at.IsZero() {
			return at
		}
	}
	return known
}

// webhookStore keeps records of the webhook: see [webhook.Store]. What the webhook has refused may be lost: API servers repeat it a few times.
type webhookStore struct {
	*Inputs
	mu       sync.Mutex
	refused  time.Time // since when records may be missing; zero: none is
	why      error
	declared time.Time // when the last loss was noted
}

// newWebhookStore returns a store that begins with a loss if the webhook has not listened for so long that API servers may have dropped
// batches. An API server in the mode blocking-strict drops nothing: it refuses requests meanwhile.
func newWebhookStore(in *Inputs) *webhookStore {
	s := &webhookStore{Inputs: in}
	var until time.Time
	text, err := os.ReadFile(in.timePath())
	if err == nil {
		err = until.UnmarshalText(text)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		in.log.Warn("read of the time until which the webhook has listened failed", zap.Error(err))
	}
	if !until.IsZero() && !in.spec.Join.Complete && time.Since(until) >= sendsAgain {
		s.Refused(until.Add(-buffers), errors.New("the webhook did not listen"))
	}
	return s
}

// Append implements [webhook.Store]. Records of another replica have its inputs, or what a client has made up: here they are of the webhook.
func (s *webhookStore) Append(records []audit.Record) error {
	for i := range records {
		records[i].Input = fromWebhook
	}
	if err := s.Inputs.Append(records); err != nil {
		return err
	}
	s.declare(false)
	return nil
}

// declare notes in the inbox that records were refused, at most once in declareEvery, for all the time since the last note. ends says that the webhook
// ends: then it does not wait.
func (s *webhookStore) declare(ends bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused.IsZero() || !ends && time.Since(s.declared) < declareEvery {
		return
	}
	loss := audit.Record{ID: rand.Text(), Input: fromWebhook, Lost: newLoss(s.refused, "an API server repeats a batch at most four times: "+s.why.Error())}
	if s.Inputs.Append([]audit.Record{loss}) != nil {
		return // the next call tries it again
	}
	s.gaps.Add(1)
	s.shown.lost(s.why)
	s.log.Warn("audit records may be missing", zap.Time("since", s.refused), zap.Error(s.why))
	s.refused, s.why, s.declared = time.Time{}, nil, time.Now()
}

// Refused notes that records were refused, of requests from a time on. Zero: that is not known.
func (s *webhookStore) Refused(since time.Time, why error) {
	if since.IsZero() {
		since = time.Now().Add(-buffers)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused.IsZero() {
		s.refused, s.why = since, why
	} else if since.Before(s.refused) {
		s.refused = since
	}
}

// firstTime returns when the earliest request of some records came, zero if none has a time.
func firstTime(records []audit.Record) (first time.Time) {
	for i := range records {
		if at := records[i].Received; !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

func (in *Inputs) timePath() string { return filepath.Join(in.spec.Path, "webhook-time") }

// listens stores that the webhook has listened until now.
func (in *Inputs) listens() {
	if in.server.Load() == nil {
		return
	}
	text, _ := time.Now().MarshalText() // the year has four digits
	if err := diskguard.ReplaceFile(in.timePath(), text); err != nil {
		in.log.Warn("write of the time until which the webhook has listened failed", zap.Error(err))
	}
}

// loss returns a record that says that records are missing in the inbox; nil: none is. Its ID is the same if the same gap is read again, and that
// of no other gap: it has the identity of the inbox, and the position behind which records are missing.
func (r *recordReader) loss(gap error) *audit.Record {
	if gap == nil {
		return nil
	}
	behind := storedPosition{Inbox: r.inputs.id, Position: r.at}
	if r.other {
		behind = r.from
	}
	id := fmt.Sprintf("%s %s %s %d %s", r.inputs.id, behind.Inbox, behind.Session, behind.Number, gap)
	return &audit.Record{ID: id, Lost: newLoss(r.known, gap.Error())}
}

// publishLoss publishes in each collection that records may be missing: in those that a plan names later, after that. It returns the changes of the
// checkpoint, which are committed with the position.
func (r *recordReader) publishLoss(scope *Scope, number uint64, loss *audit.Record) (changes []event.KV) {
	for id := range scope.all() {
		changes = append(changes, r.Refuse(number, loss, id)...)
	}
	return changes
}

// declare publishes that there was no room for requests or changes, so that who made a change may be not known. It returns the changes of the
// checkpoint, which are committed with the position.
func (r *recordReader) declare(scope *Scope, now time.Time) []event.KV {
	f := r.Forgotten()
	if f.Number > 0 && (r.forgotten.Number == 0 || f.Since.Before(r.forgotten.Since)) {
		r.forgotten.Since = f.Since
	}
	r.forgotten.Number += f.Number
	if r.forgotten.Number == 0 || now.Sub(r.declared) < declareEvery {
		return nil
	}
	err := fmt.Errorf("no room for %d audit records or changes that waited: the oldest ones were given up", r.forgotten.Number)
	r.miss(err)
	loss := &audit.Record{ID: rand.Text(), Lost: newLoss(r.forgotten.Since, err.Error())}
	r.forgotten, r.declared = join.Forgotten{}, now
	return r.publishLoss(scope, r.at.Number, loss)
}
