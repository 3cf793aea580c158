package pipeline

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/kubebridge/pkg/sink"
)

// losses collects what sinks lose, when it is asked for: a bus may refuse an event
// after Write has returned, and there may be no next Write.
type losses struct {
	desc *prometheus.Desc

	mu    sync.Mutex
	sinks map[string]sink.Lossy // by name
}

func newLosses() *losses {
	return &losses{
		desc: prometheus.NewDesc("kubebridge_events_lost_total", "Events that an at-most-once bus did not take, or may not have taken.",
			[]string{"sink"}, nil),
		sinks: map[string]sink.Lossy{},
	}
}

// of begins to collect from a sink that can lose events.
func (l *losses) of(name string, s sink.Sink) {
	if lossy, ok := s.(sink.Lossy); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.sinks[name] = lossy
	}
}

// Describe implements [prometheus.Collector].
func (l *losses) Describe(to chan<- *prometheus.Desc) { to <- l.desc }

// Collect implements [prometheus.Collector].
func (l *losses) Collect(to chan<- prometheus.Metric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, s := range l.sinks {
		to <- prometheus.MustNewConstMetric(l.desc, prometheus.CounterValue, float64(s.Lost()), name)
	}
}
