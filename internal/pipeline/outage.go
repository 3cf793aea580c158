package pipeline

import (
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubebridge/kubebridge/pkg/source"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// outage says in the log when the API server is lost, every minute until it is back, and then: not
// for each of the collections that a restart breaks off. Their own errors are at debug
// level, in the status and in the metrics.
type outage struct {
	log      *zap.Logger
	reminder *reminder // which repeats it, and every other failure

	mu      sync.Mutex
	failing map[string]bool // who cannot read now
	hit     map[string]bool // who could not since the outage began
	since   time.Time
	first   string // who could not
}

func newOutage(log *zap.Logger) *outage {
	return &outage{log: log, reminder: newReminder(log), failing: map[string]bool{}, hit: map[string]bool{}}
}

// met takes what somebody met who reads; nil is that he reads. It reports whether the
// error is not one of the server but of what is read, so that he has to say it himself.
func (o *outage) met(who string, err error) (own bool) {
	lost, own := o.judge(err)
	o.mu.Lock()
	defer o.mu.Unlock()
	began := len(o.failing) == 0
	switch {
	case lost && began:
		o.since, o.first = time.Now(), who
	case lost:
		o.log.Debug("cannot be read; trying again", zap.String("what", who), zap.Error(err))
	case err != nil && !own:
		o.log.Debug("trying again", zap.String("what", who), zap.Error(err))
	}
	if lost {
		o.failing[who], o.hit[who] = true, true
		o.reminder.failed(apiServer, failure{
			message: "the API server is lost, or overloaded; trying again", steady: true, err: err,
			fields: []zap.Field{zap.String("first", o.first), zap.Int("failing", len(o.failing))},
		})
		return own
	}
	if delete(o.failing, who); !began && len(o.failing) == 0 {
		o.log.Info("the API server is back: everything is read again", zap.Int("interrupted", len(o.hit)),
			zap.Duration("after", time.Since(o.since).Round(time.Millisecond)))
		clear(o.hit)
		o.reminder.works(apiServer)
	}
	return own
}

// apiServer is what the reminder has an outage of the API server under.
const apiServer = "the API server"

// judge distinguishes errors of the server from errors of the collection. An error that is
// neither is expected, and declared otherwise: a history that ended is a gap.
func (o *outage) judge(err error) (lost, own bool) {
	if errors.Is(err, source.ErrExpired) {
		return false, false
	}
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		for _, one := range joined.Unwrap() {
			l, w := o.judge(one)
			lost, own = lost || l, own || w
		}
		return lost && !own, own
	}
	switch {
	case err == nil, apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return false, false
	case errors.Is(err, discovery.ErrNoResource):
		return false, true
	case apierrors.IsServiceUnavailable(err), apierrors.IsTooManyRequests(err), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return true, false
	}
	own = errors.As(err, new(apierrors.APIStatus)) // it answered
	return !own, own
}
