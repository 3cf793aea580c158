package auth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrOtherCluster is returned if the API server is of another cluster than the events on the bus.
var ErrOtherCluster = errors.New("another cluster answers")

// sourceRetry is how long it counts that the API server did not say which cluster it is of.
const sourceRetry = time.Second

// SourceOptions are the options of a [Source].
type SourceOptions struct {
	Cluster string // its configured name
	// APIServerUID returns the UID of the API server's cluster. Its error wraps [ErrOtherCluster] if it is certainly
	// another one.
	APIServerUID func(ctx context.Context) (string, error)
	BusUID       func() string // of the cluster whose events were read; "": none was read yet
	Log          *zap.Logger
}

// Source makes sure that the API server is of the cluster whose events the bus has: users and rights of another one,
// with the same names, would open this one's objects. Any goroutine may use it.
type Source struct {
	SourceOptions
	group singleflight.Group

	mu  sync.Mutex
	uid string
	err error
	at  time.Time // of the answer
}

// NewSource returns a source.
func NewSource(o SourceOptions) *Source { return &Source{SourceOptions: o} }

// Check returns nil if the API server is of the cluster on the bus, else an [UnansweredError], which wraps
// [ErrOtherCluster] for another one.
func (s *Source) Check(ctx context.Context) error {
	bus := s.BusUID()
	if bus == "" {
		return &UnansweredError{fmt.Sprintf("no event of cluster %q was read yet, "+
			"so it is not known whether the API server is of the cluster on the bus", s.Cluster), nil}
	}
	uid, err := s.apiServerUID(ctx)
	if err == nil && uid != bus {
		err = fmt.Errorf("%w: the events on the bus are of the cluster with the UID %s, the API server's namespace kube-system has %s",
			ErrOtherCluster, bus, uid)
	}
	switch {
	case errors.Is(err, ErrOtherCluster):
		return &UnansweredError{fmt.Sprintf("the API server that bridge serve asks is not of cluster %q on the bus", s.Cluster), err}
	case apierrors.IsForbidden(err):
		return &UnansweredError{fmt.Sprintf("bridge serve may not get the namespace kube-system, whose UID says which cluster it asks: "+
			"allow it at cluster %q, or set kubernetes.clusterUID", s.Cluster), err}
	case err != nil:
		return &UnansweredError{"it is not known now which cluster is asked: " + describeAPIError(s.Cluster, err), err}
	}
	return nil
}

func (s *Source) apiServerUID(ctx context.Context) (string, error) {
	s.mu.Lock()
	uid, err, age := s.uid, s.err, time.Since(s.at)
	s.mu.Unlock()
	if err == nil && uid != "" && age < allowedTTL || err != nil && age < sourceRetry {
		return uid, err
	}
	got, err, _ := s.group.Do("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
		defer cancel()
		uid, err := s.APIServerUID(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.uid, s.err, s.at = uid, err, time.Now()
		return uid, err
	})
	return got.(string), err
}

// Confirm checks until the cluster is known, and logs why it is not. It is an error if it is another one than on the
// bus.
func (s *Source) Confirm(ctx context.Context) error {
	logged := ""
	for {
		err := s.Check(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrOtherCluster):
			return err
		case s.BusUID() != "" && err.Error() != logged:
			logged = err.Error()
			s.Log.Warn("users cannot be checked at the API server", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(2 * sourceRetry):
		}
	}
}
