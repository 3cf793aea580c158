// Package http sends events to an HTTP server, by the HTTP binding of CloudEvents 1.0.2: in the batched or structured content mode,
// or with the formats binary and plain in the binary content mode.
//
// Durable means that the server has answered 2xx; what it does with the events then is not known. Delivery is at least once: a request
// without such an answer is repeated, with the same ids. The events of one key are in one request at a time, so their order holds.
// An event about a collection is sent once, after all events before it and before all events behind it.
package http

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// Options are the options of a sink.
type Options struct {
	Config   Config
	MaxPause time.Duration // the longest Retry-After that is obeyed; 0: a minute
}

// Sink is a [sink.Sink] that sends requests.
type Sink struct {
	c        Config
	maxPause time.Duration
	client   *http.Client

	seq  uint64              // of the batch that done is about
	done map[sink.Place]bool // acknowledged records of that batch

	checkAt time.Time // when Check sends the next request

	mu    sync.Mutex
	pause time.Time // the server asked for no request until then
}

var (
	_ sink.Sink    = (*Sink)(nil)
	_ sink.Checker = (*Sink)(nil)
)

// New returns a sink. An error is about the configuration.
func New(o Options) (*Sink, error) {
	c, err := o.Config.Complete()
	if err != nil {
		return nil, err
	}
	return &Sink{c: c, maxPause: cmp.Or(o.MaxPause, time.Minute)}, nil
}

// Open reads the certificates and asks the server for any answer. It has nothing to write, so it cannot know whether events are accepted.
func (s *Sink) Open(ctx context.Context, _ []byte) error {
	if err := s.Close(); err != nil {
		return err
	}
	config, err := s.c.TLS.config()
	if err != nil {
		return err
	}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: s.c.Requests, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: 64 << 10,
	}
	s.client = &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	s.seq, s.done, s.checkAt = 0, nil, time.Time{}
	err = s.Check(ctx)
	if refused := (*certificateError)(nil); errors.As(err, &refused) {
		return &sink.RefusedError{What: s.c.root(), Err: refused.Err, Hint: refused.hint}
	}
	return err
}

// Close closes the connections.
func (s *Sink) Close() error {
	if s.client != nil {
		s.client.CloseIdleConnections()
	}
	return nil
}

// checkEvery is the time between two requests of Check, while the server answers.
const checkEvery = 5 * time.Second

// Check implements [sink.Checker]: any answer to OPTIONS is good.
func (s *Sink) Check(ctx context.Context) error {
	if time.Now().Before(s.checkAt) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, min(s.c.Timeout, 15*time.Second))
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodOptions, s.c.root(), nil)
	if err != nil {
		return err
	}
	answer, err := s.client.Do(r)
	if err != nil {
		return fmt.Errorf("reach %s: %w", s.c.root(), s.c.TLS.explain(withoutURL(err)))
	}
	s.checkAt = time.Now().Add(checkEvery)
	return answer.Body.Close()
}

// Write implements [sink.Sink].
func (s *Sink) Write(ctx context.Context, b *event.Batch) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if b.Seq != s.seq {
		s.seq, s.done = b.Seq, map[sink.Place]bool{}
	}
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	places := sink.Places(b.Records)
	var open []int // records to send
	for i := range b.Records {
		if s.done[places[i]] {
			continue
		}
		if last := len(open) - 1; last >= 0 && b.Records[i].Broadcast != b.Records[open[last]].Broadcast {
			if err := s.send(ctx, b, places, open); err != nil {
				return nil, err
			}
			open = open[:0]
		}
		open = append(open, i)
	}
	return nil, s.send(ctx, b, places, open)
}

// wait waits as long as the server has asked for.
func (s *Sink) wait(ctx context.Context) error {
	s.mu.Lock()
	left := time.Until(s.pause)
	s.mu.Unlock()
	if left <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(left):
		return nil
	}
}

// send sends records that are all about objects, or all about collections, and waits until nothing is in flight.
func (s *Sink) send(ctx context.Context, b *event.Batch, places []sink.Place, open []int) error {
	partitions := make([]partition, s.c.Requests)
	for _, i := range open {
		r, n := &b.Records[i], 0
		if !r.Broadcast {
			h := fnv.New32a()
			_, _ = h.Write([]byte(r.Key)) // never fails
			n = int(h.Sum32() % uint32(len(partitions)))
		}
		partitions[n].records = append(partitions[n].records, i)
	}
	var (
		running sync.WaitGroup
		failed  atomic.Bool // no partition begins another request; those in flight end
	)
	for n := range partitions {
		p := &partitions[n]
		running.Go(func() {
			p.failed = &failed
			if p.err = s.run(ctx, b.Records, p); p.err != nil {
				failed.Store(true)
			}
		})
	}
	running.Wait()
	return s.settle(places, partitions)
}

// partition has the records of some keys, of which one request at a time is in flight.
type partition struct {
	records []int // indexes in the batch
	sent    int   // how many of them are acknowledged
	err     error // why the next one is not
	failed  *atomic.Bool
}

var errStopped = errors.New("another request failed")

// settle remembers what is acknowledged, and returns the error that says most: about a record, a route, or the server.
func (s *Sink) settle(places []sink.Place, partitions []partition) error {
	var (
		other  error
		record *sink.RecordError
		route  *sink.RouteError
	)
	for n := range partitions {
		p := &partitions[n]
		for _, i := range p.records[:p.sent] {
			s.done[places[i]] = true
		}
		var (
			ofRecord *sink.RecordError
			ofRoute  *sink.RouteError
		)
		switch {
		case errors.As(p.err, &ofRecord):
			if record == nil || ofRecord.Index < record.Index {
				record = ofRecord
			}
		case errors.As(p.err, &ofRoute):
			if route == nil || ofRoute.Index < route.Index {
				route = ofRoute
			}
		case p.err != nil && (other == nil || errors.Is(other, errStopped)):
			other = p.err
		}
	}
	switch {
	case record != nil:
		return record
	case route != nil:
		return route
	}
	return other
}
