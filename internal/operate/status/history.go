package status

import (
	"context"
	"sync"
	"time"
)

const (
	sampleEvery = 10 * time.Second
	// samples is the number of samples in an hour: 360 points of three words for each sink.
	samples = 360
	// rateSpan is the time over which a rate is measured, in samples: a minute.
	rateSpan = 6
)

// point is a sample of a sink. A nil value is not known.
type point struct {
	rate *float64 // events a second since the previous point
	lag  *float64 // seconds
}

// history keeps samples of the last hour for every sink, and of the last minute for every
// collection. Its memory grows only with their number.
type history struct {
	report func() Report

	mu     sync.Mutex
	points map[string][]point // by sink, oldest first
	counts map[string][]count // by sink, and by key of sink and collection
}

// count is the number of events that were delivered up to a time.
type count struct {
	time time.Time
	n    uint64
}

func newHistory(report func() Report) *history {
	return &history{report: report, points: map[string][]point{}, counts: map[string][]count{}}
}

// Run takes samples until ctx is cancelled.
func (h *history) Run(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		h.sample(h.report())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (h *history) sample(r Report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	counts := make(map[string][]count, len(h.counts)) // new, so that sinks and collections that no longer exist are dropped
	add := func(key string, n uint64) {
		before := h.counts[key]
		if len(before) > 0 && before[len(before)-1].n > n {
			before = nil // the counter was reset
		}
		counts[key] = push(before, count{r.At, n}, rateSpan+1)
	}
	points := make(map[string][]point, len(h.points))
	for i := range r.Sinks {
		s := &r.Sinks[i]
		add(s.Name, s.Delivered)
		p := point{lag: s.lag(r.At, r.At.Add(-sampleEvery))}
		if c := counts[s.Name]; len(c) > 1 {
			p.rate = rate(c[len(c)-2:])
		}
		points[s.Name] = push(h.points[s.Name], p, samples)
		for j := range s.Collections {
			add(key(s, &s.Collections[j]), s.Collections[j].Delivered)
		}
	}
	h.counts, h.points = counts, points
}

func key(s *Sink, c *Collection) string { return s.Name + "\x00" + c.ID }

// push appends to a list that keeps the last limit values.
func push[T any](list []T, v T, limit int) []T {
	if len(list) == limit {
		copy(list, list[1:])
		list[limit-1] = v
		return list
	}
	return append(list, v)
}

// rate returns the events a second between the first and the last count; nil if it is not known.
func rate(c []count) *float64 {
	if len(c) < 2 {
		return nil
	}
	first, last := c[0], c[len(c)-1]
	seconds := last.time.Sub(first.time).Seconds()
	if seconds <= 0 {
		return nil
	}
	r := float64(last.n-first.n) / seconds
	return &r
}

// complete adds rates and lags to a report.
func (h *history) complete(r *Report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range r.Sinks {
		s := &r.Sinks[i]
		s.Rate, s.Lag = rate(h.counts[s.Name]), s.lag(r.At, r.At.Add(-sampleEvery))
		for j := range s.Collections {
			c := &s.Collections[j]
			c.Rate = rate(h.counts[key(s, c)])
			if r.At.Sub(c.LagAt) > rateSpan*sampleEvery { // it would say nothing about now
				c.Lag = nil
			}
		}
	}
}

// pointsOf returns a sink's points, oldest first.
func (h *history) pointsOf(sink string) []point {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]point(nil), h.points[sink]...)
}

// total returns the points of all sinks together: the sum of their rates, and the greatest lag.
func (h *history) total() []point {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []point
	for _, points := range h.points {
		if more := len(points) - len(out); more > 0 {
			out = append(make([]point, more), out...)
		}
		from := len(out) - len(points)
		for i, p := range points {
			t := &out[from+i]
			if p.rate != nil {
				sum := *p.rate
				if t.rate != nil {
					sum += *t.rate
				}
				t.rate = &sum
			}
			if p.lag != nil && (t.lag == nil || *p.lag > *t.lag) {
				t.lag = p.lag
			}
		}
	}
	return out
}
