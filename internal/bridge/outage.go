package bridge

import (
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubebridge/kubebridge/internal/buffer"
	"github.com/kubebridge/kubebridge/pkg/source"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// outage logs outages of the API server: when an outage begins, every minute while it lasts, and when it is over. A
// restart interrupts every collection; their errors are only in the debug log, the status and the metrics.
type outage struct {
	log      *zap.Logger
	reminder *reminder // repeats the message of this and every other failure

	mu      sync.Mutex
	failing map[string]bool // readers that cannot read now
	hit     map[string]bool // readers that failed since the outage began
	since   time.Time
	first   string // the reader that failed first
	refused bool   // the API server does not accept the credentials
}

// refuses reports whether the API server does not accept the credentials.
func (o *outage) refuses() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.refused
}

func newOutage(log *zap.Logger) *outage {
	return &outage{log: log, reminder: newReminder(log), failing: map[string]bool{}, hit: map[string]bool{}}
}

// met records the result of a reader's attempt; nil means that it reads. It reports whether the
// error concerns only this reader's resource and not the server. The reader then logs it.
func (o *outage) met(who string, err error) (own bool) {
	lost, own := o.judge(err)
	o.mu.Lock()
	defer o.mu.Unlock()
	began := len(o.failing) == 0
	switch {
	case lost && began:
		o.since, o.first = time.Now(), who
	case lost:
		o.log.Debug("read failed, API server unavailable; trying again", zap.String("what", who), zap.Error(err))
	case err != nil && !own:
		o.log.Debug("read interrupted; trying again", zap.String("what", who), zap.Error(err))
	}
	if lost {
		o.failing[who], o.hit[who] = true, true
		f := failure{
			message: "the API server is lost, or overloaded; trying again", steady: true, err: err,
			fields: []zap.Field{zap.String("first", o.first), zap.Int("failing", len(o.failing))},
		}
		if o.refused = errors.Is(err, source.ErrCredentials); o.refused {
			f.message, f.advice = "the API server does not accept the credentials; trying again", renewCredentials
		}
		o.reminder.failed(apiServer, f)
		return own
	}
	if delete(o.failing, who); !began && len(o.failing) == 0 {
		o.log.Info("the API server is back: everything is read again", zap.Int("interrupted", len(o.hit)),
			zap.Duration("after", time.Since(o.since).Round(time.Millisecond)))
		clear(o.hit)
		o.refused = false
		o.reminder.works(apiServer)
	}
	return own
}

// apiServer is the reminder's key of an outage of the API server.
const apiServer = "the API server"

// judge distinguishes errors of the server from errors of the collection. An error that is
// neither is expected and leads to an event: for example, an expired resourceVersion leads to a gap.
func (o *outage) judge(err error) (lost, own bool) {
	switch {
	case errors.Is(err, source.ErrExpired):
		return false, false
	case errors.Is(err, source.ErrCredentials):
		return true, false
	case errors.Is(err, buffer.ErrUnreadable), errors.As(err, new(*source.ResourceError)):
		// the disk of the buffer, or what serves the resource
		return false, true
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
	own = errors.As(err, new(apierrors.APIStatus)) // the server answered with an error
	return !own, own
}
