package api

import (
	"cmp"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/kubebridge/internal/past/mirror"
)

// Metrics are the metrics of requests. See docs/metrics.md.
type Metrics struct {
	requests *prometheus.CounterVec
	watches  *prometheus.GaugeVec
}

// NewMetrics returns metrics that are registered.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "kubebridge", Subsystem: "serve", Name: "requests_total", Help: "Requests that `bridge serve` has answered, without probes, by verb and HTTP code. A watch counts when it ends.",
		}, []string{"verb", "code"}),
		watches: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "kubebridge", Subsystem: "serve", Name: "watches", Help: "Watches of clients that are open at `bridge serve`.",
		}, []string{"resource"}),
	}
	r.MustRegister(m.requests, m.watches)
	return m
}

// writeBytes is the largest part of an answer that has a time of its own: a client must read 8.5 KiB a second.
const writeBytes = 256 << 10

// countingWriter is an answer whose code is counted, and for whose parts the client has a limited time.
type countingWriter struct {
	http.ResponseWriter
	verb string
	code int
	time time.Duration
}

func (c *countingWriter) WriteHeader(code int) {
	c.code = cmp.Or(c.code, code)
	c.ResponseWriter.WriteHeader(code)
}

func (c *countingWriter) Write(b []byte) (int, error) {
	c.code = cmp.Or(c.code, http.StatusOK)
	return writeParts(c.ResponseWriter, c.extend, b)
}

// writeParts writes parts, and calls extend before each of them.
func writeParts(w io.Writer, extend func(), b []byte) (n int, err error) {
	for part := range slices.Chunk(b, writeBytes) {
		extend()
		wrote, err := w.Write(part)
		n += wrote
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// FlushError is what [http.ResponseController] calls.
func (c *countingWriter) FlushError() error {
	c.extend()
	return http.NewResponseController(c.ResponseWriter).Flush()
}

// extend gives the client time for the next part.
func (c *countingWriter) extend() {
	_ = http.NewResponseController(c.ResponseWriter).SetWriteDeadline(time.Now().Add(c.time)) // tests' recorders have none
}

// Unwrap lets [http.ResponseController] flush and set deadlines.
func (c *countingWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (m *Metrics) count(c *countingWriter) {
	m.requests.WithLabelValues(c.verb, strconv.Itoa(cmp.Or(c.code, http.StatusOK))).Inc()
}

// State is how far a resource is served.
type State struct {
	Resource string
	Time     time.Time // of the last event, by the bridge's clock
	Current  bool      // no gap is open, and the first list has ended
}

// States returns the resources that the bus has, except those that are not published any more, or without all types.
func States(m *mirror.Mirror, cluster string) (all []State) {
	for _, r := range m.Resources(cluster) {
		if r.Closed || r.Unpublished() != "" {
			continue
		}
		_, err := r.Latest()
		all = append(all, State{Resource: r.ID.Name, Time: r.Time, Current: err == nil && r.Gap() == ""})
	}
	return all
}

var (
	eventTime = prometheus.NewDesc("kubebridge_serve_last_event_timestamp_seconds", "When the bridge had the last event of the resource that `bridge serve` has read.", []string{"resource"}, nil)
	current   = prometheus.NewDesc("kubebridge_serve_current", "1 if the resource is served as of its last event; 0 while a gap is open, its list has not ended, or objects were not published (`snapshot: skip`).", []string{"resource"}, nil)
)

// NewCollector returns the metrics of the states.
func NewCollector(states func() []State) prometheus.Collector { return collector(states) }

type collector func() []State

func (c collector) Describe(to chan<- *prometheus.Desc) {
	to <- eventTime
	to <- current
}

func (c collector) Collect(to chan<- prometheus.Metric) {
	for _, s := range c() {
		is := 0.0
		if s.Current {
			is = 1
		}
		to <- prometheus.MustNewConstMetric(current, prometheus.GaugeValue, is, s.Resource)
		if s.Time.IsZero() { // messages were lost, and none was read again
			continue
		}
		to <- prometheus.MustNewConstMetric(eventTime, prometheus.GaugeValue, float64(s.Time.UnixMilli())/1000, s.Resource)
	}
}
