package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

const (
	probeTimeout = 15 * time.Second
	// probeFresh is the maximum age of a probe that another collection of the same resource
	// can share.
	probeFresh = 5 * time.Second
	// probeKept is how long after its request a probe is kept at least: the collections of one resource look for it at about the same time.
	probeKept = time.Minute
	// Probes per second, and burst, over all collections. With these values, 500 collections of
	// different resources are all probed within ten seconds after a restart.
	probeRate  = 50
	probeBurst = 100
)

// probes holds the latest probe of each resource. Collections of one resource in all pipelines share it.
type probes struct {
	limit *rate.Limiter
	mu    *sync.Mutex
	last  map[string]*probe
	swept time.Time // when old probes were forgotten
}

// probe is a consistent LIST of one object's metadata. Its resourceVersion is the server's present resourceVersion.
type probe struct {
	sent time.Time // zero: not sent yet; guarded by probes.mu
	done chan struct{}
	rv   string
	err  error
}

// errHistory: the position does not belong to the server's history.
var errHistory = errors.New("the server's history is another one")

// probe returns the server's present resourceVersion, or errHistory if it is older than the resourceVersion seen. The
// result is from a request that was sent after since.
func (c *Collection) probe(ctx context.Context, seen string, since time.Time) (rv string, err error) {
	asked := time.Now()
	for {
		p, err := c.client.probe(ctx, c.target, since)
		if err != nil {
			return "", fmt.Errorf("probe: %w", err)
		}
		switch {
		case !event.Older(p.rv, seen):
			return p.rv, nil
		case !p.sent.Before(asked):
			return p.rv, fmt.Errorf("%w: it is at resourceVersion %s, and %s was seen", errHistory, p.rv, seen)
		}
		since = asked // the shared probe may be older than seen
	}
}

// Version returns the resourceVersion of the storage of a target at some time after since: all changes that were made before since are
// not later.
func (c *Client) Version(ctx context.Context, t Target, since time.Time) (string, error) {
	p, err := c.probe(ctx, t, since)
	if err != nil {
		return "", fmt.Errorf("probe: %w", err)
	}
	return p.rv, nil
}

func (c *Client) probe(ctx context.Context, t Target, since time.Time) (*probe, error) {
	req := c.rest.Get().AbsPath(t.path()).MaxRetries(0).Param("limit", "1").SetHeader("Accept", metadataOnly(listForm))
	key := t.path()
	// Selectors would make the server search for a match. An account that may list only one
	// name must select this name, though.
	if s, err := fields.ParseSelector(t.Collection.FieldSelector); err == nil {
		if name, ok := s.RequiresExactMatch("metadata.name"); ok {
			req, key = req.Param("fieldSelector", "metadata.name="+name), key+"/"+name
		}
	}
	for {
		c.probes.mu.Lock()
		p := c.probes.last[key]
		mine := p == nil || !p.sent.IsZero() && !p.sent.After(since)
		if mine {
			c.probes.sweep(time.Now())
			p = &probe{done: make(chan struct{})}
			c.probes.last[key] = p
		}
		c.probes.mu.Unlock()
		if mine {
			c.send(ctx, p, req)
		}
		select {
		case <-p.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		// The caller that sent the probe may have been cancelled before the answer.
		if mine || !errors.Is(p.err, context.Canceled) {
			return p, p.err
		}
		c.probes.forget(key, p)
	}
}

// sweep forgets old probes: those of a namespace that no longer exists would stay. p.mu is held.
func (p *probes) sweep(now time.Time) {
	if now.Sub(p.swept) < probeKept {
		return
	}
	p.swept = now
	maps.DeleteFunc(p.last, func(_ string, old *probe) bool { return !old.sent.IsZero() && now.Sub(old.sent) >= probeKept })
}

func (p *probes) forget(key string, old *probe) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last[key] == old {
		delete(p.last, key)
	}
}

func (c *Client) send(ctx context.Context, p *probe, req *rest.Request) {
	defer close(p.done)
	if err := c.probes.limit.Wait(ctx); err != nil {
		p.err = context.Canceled
		return
	}
	c.probes.mu.Lock()
	p.sent = time.Now()
	c.probes.mu.Unlock()
	own, cancel := context.WithTimeout(freshly(ctx), probeTimeout)
	defer cancel()
	result := req.Do(own)
	raw, err := result.Raw()
	if err != nil {
		p.err = listwatch.PlainCause(result.Error()) // err does not have the reason
		switch {
		case ctx.Err() != nil:
			p.err = context.Canceled
		case own.Err() != nil:
			p.err = fmt.Errorf("no answer within %s", probeTimeout)
		}
		return
	}
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if p.err = json.Unmarshal(raw, &list); p.err == nil && !listwatch.Resumable(list.Metadata.ResourceVersion) {
		p.err = listwatch.ErrNoVersion
	}
	p.rv = list.Metadata.ResourceVersion
}

// metadataOnly is the Accept header for metadata instead of objects.
func metadataOnly(form string) string {
	return "application/json;as=" + form + ";v=v1;g=meta.k8s.io,application/json"
}
