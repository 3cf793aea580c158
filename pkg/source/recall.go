package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

const (
	recallTimeout = 30 * time.Second // for all requests of a Recall
	// recallSingly is the maximum number of objects that are requested one by one. The server answers
	// such a request from one key.
	recallSingly = 32
)

// Name names an object of a collection.
type Name struct {
	Namespace string // "" in a resource without namespaces
	Name      string
}

var errFoundAll = errors.New("all were found")

// Recall calls found for each of the objects that the server still has at
// resourceVersion rv, with its body at rv. It is used for the last bodies of objects that have been deleted
// since. A server often serves an exact list (resourceVersionMatch=Exact) for
// some minutes after it answers a watch from rv with 410, until etcd is
// compacted. The collection's selectors apply.
//
// Recall ignores names that are not whole (see [event.WholeName]).
// It returns nil if an object is not found, if the server no longer has rv, if an
// answer is interrupted, and when its maximum time of 30 s is over. So an object that
// is not found may still have existed at rv. It returns an error if the server refuses the request, if ctx
// ends, or if found returns an error. It holds at most two pages in memory. Recall takes
// no slot of [Options].Lists, so it may be called from within Handle.
func (c *Collection) Recall(ctx context.Context, rv string, objects []Name, found func(*Object) error) error {
	objects = slices.DeleteFunc(slices.Clone(objects), func(n Name) bool { return !event.WholeName(n.Namespace) || !event.WholeName(n.Name) })
	if rv == "" || len(objects) == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, recallTimeout)
	defer cancel()
	err := c.recall(limited, rv, objects, found)
	var (
		fromCaller handlerError
		cut        cutError
	)
	switch {
	case errors.Is(err, errFoundAll):
		return nil
	case errors.As(err, &fromCaller):
		return fromCaller.error
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil, limited.Err() != nil, isForgotten(err), errors.As(err, &cut):
		return nil
	default:
		return fmt.Errorf("recall %s at resourceVersion %s: %w", c.target.Resource, rv, err)
	}
}

// futureRevision is etcd's error for a revision that it has not reached (ErrFutureRev).
const futureRevision = "etcdserver: mvcc: required revision is a future revision"

// isForgotten reports whether a server does not have the resourceVersion of an
// exact list: it is compacted, or not reached yet (504). Kubernetes before 1.34 answers the latter
// with 500, no reason and the message of etcd. Only the message distinguishes it from a failure.
func isForgotten(err error) bool {
	switch listwatch.StatusCode(err) {
	case http.StatusGone, http.StatusGatewayTimeout, http.StatusBadRequest:
		return true
	case http.StatusInternalServerError:
		s, _ := listwatch.AsStatus(err)
		return s.Status().Message == futureRevision
	default:
		return false
	}
}

func (c *Collection) recall(ctx context.Context, rv string, objects []Name, found func(*Object) error) error {
	wanted := make(map[Name]struct{}, len(objects))
	for _, n := range objects {
		wanted[n] = struct{}{}
	}
	k := c.copier()
	defer k.close()
	each := func(o *Object) error {
		n := Name{o.Namespace, o.Name}
		if _, ok := wanted[n]; !ok {
			return nil
		}
		delete(wanted, n)
		k.own(o)
		if err := found(o); err != nil {
			return err
		}
		if len(wanted) == 0 {
			return errFoundAll
		}
		return nil
	}
	begin := func(string) error { return nil }
	if len(objects) > recallSingly {
		_, err := c.pages(ctx, pageQuery{exact: rv}, begin, each)
		return err
	}
	for _, n := range objects {
		if _, err := c.pages(ctx, pageQuery{exact: rv, one: n, limit: 1}, begin, each); err != nil {
			return err
		}
	}
	return nil
}
