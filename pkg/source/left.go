package source

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

const (
	aliveFailures = 3 // failures in a row after which Alive pauses
	alivePause    = time.Minute
)

// Alive reports whether the object of that name and UID ("": any) exists, whether or not it
// is in the collection's selection. known is false if the request fails: the
// server refused it, or did not answer in time. Alive may be called at any
// time, from any goroutine. After three failures in a row it sends no request for a
// minute. It sends no request for a name that is not whole (see [event.WholeName]).
func (c *Collection) Alive(ctx context.Context, namespace, name, uid string) (alive, known bool) {
	if c.asked.tired() || !event.WholeName(namespace) || !event.WholeName(name) {
		return false, false
	}
	t := c.target
	t.Collection.Namespace = namespace
	got, err := c.get(ctx, t.path()+"/"+name)
	known = err == nil || notFound(err, t.Resource.Name, name)
	if ctx.Err() == nil {
		c.asked.came(known || listwatch.StatusCode(err) == 404)
	}
	return err == nil && (uid == "" || got == uid), known
}

// questions counts failed requests.
type questions struct {
	mu       sync.Mutex
	failures int
	until    time.Time // no request before this time
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

// leavable reports whether an object can leave the collection without being deleted.
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
