package source

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/kubebridge/kubebridge/pkg/event"
)

const (
	aliveFailures = 3 // in a row, and it is not asked for
	alivePause    = time.Minute
)

// Alive reports whether the object of that name and UID ("": any) exists, whether or not it
// is in the collection's selection. known is false where that could not be found
// out: the server refused, or did not answer in time. It may be called at any
// time, from any goroutine. After three failures in a row it asks nothing for a
// minute. It does not ask for a name that is not whole (see [event.WholeName]).
func (c *Collection) Alive(ctx context.Context, namespace, name, uid string) (alive, known bool) {
	if c.asked.tired() || !event.WholeName(namespace) || !event.WholeName(name) {
		return false, false
	}
	t := c.target
	t.Collection.Namespace = namespace
	got, err := c.get(ctx, t.path()+"/"+name)
	known = err == nil || notFound(err, t.Resource.Name, name)
	if ctx.Err() == nil {
		c.asked.came(known || statusCode(err) == 404)
	}
	return err == nil && (uid == "" || got == uid), known
}

// questions counts those that came to nothing.
type questions struct {
	mu       sync.Mutex
	failures int
	until    time.Time // none before
}

func (q *questions) tired() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return time.Now().Before(q.until)
}

func (q *questions) came(answered bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if answered {
		q.failures = 0
		return
	}
	if q.failures++; q.failures >= aliveFailures {
		q.failures, q.until = 0, time.Now().Add(alivePause)
	}
}

// leavable reports whether an object can leave the collection and live on.
func (t Target) leavable() bool {
	if t.Collection.LabelSelector != "" {
		return true
	}
	s, err := fields.ParseSelector(t.Collection.FieldSelector)
	if err != nil {
		return true
	}
	for _, r := range s.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			return true
		}
	}
	return false
}
