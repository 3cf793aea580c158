// Package sinktest is the suite that every sink passes, run against a real bus.
//
// A sink's own test calls [Run] with a function that starts a fresh bus. What a
// bus cannot do (be stopped, refuse a size, fence) is left out of its [Harness],
// and the tests that need it are skipped. Faults that only one bus knows belong
// in that sink's own tests.
package sinktest

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// Message is a record as a consumer of the bus sees it.
type Message struct {
	Route     string // topic or subject; "" where the bus has none
	Key       string // "" where the bus has none
	Partition int    // 0 where the bus has none
	Value     []byte
	Headers   map[string]string // as on the wire, nothing decoded
}

// Harness is one bus, empty at first, and how to look at it.
type Harness struct {
	// New returns an unopened sink. All sinks of a harness have the same identity
	// and configuration.
	New func(t *testing.T) sink.Sink
	// Read returns every record on the bus, in order within each partition, read
	// by a client that is not the sink's and that sees what any consumer sees.
	Read func(t *testing.T) []Message
	// Route is one that records may use.
	Route string
	// Partitions is how many Route has; 0 is one.
	Partitions int
	// Stop stops the bus or cuts it off; Start brings it back with its data and
	// returns when it can be written to. Both nil when the bus cannot.
	Stop, Start func(t *testing.T)
	// MaxRecord is the bytes the bus takes per record; 0 when it has no limit.
	MaxRecord int
	// ExactlyOnce says that a record is never repeated and a second sink shuts
	// out the first.
	ExactlyOnce bool
	// Header says as which header a consumer sees an attribute. nil when the bus
	// has no headers.
	Header func(a event.Attribute) (name, value string)
	// Format of the records that the suite writes. [RunFormats] sets it.
	Format event.Format
	// IgnoreLeaks names the bus's own goroutines that come and go.
	IgnoreLeaks []goleak.Option
}

const (
	prompt   = 5 * time.Second // for what must not wait for the bus
	patience = 3 * time.Minute // for what waits for it to come back
)

// suiteTest is one test of the suite. skip says why a harness does not allow it; nil if all do.
type suiteTest struct {
	name string
	test func(t *testing.T, h *Harness)
	skip func(h *Harness) string
}

// leakTests compare the goroutines of the process, so nothing else may run beside them.
var leakTests = []suiteTest{
	{"CloseLeavesNothing", testClose, nil},
	{"CloseWhileBusDown", testCloseWhileDown, needStop},
}

var otherTests = []suiteTest{
	{"OrderPerKey", testOrderPerKey, nil},
	{"AcknowledgedIsThere", testAcknowledgedIsThere, nil},
	{"EmptyBatch", testEmptyBatch, nil},
	{"MemoryIsUsedAgain", testMemoryIsUsedAgain, nil},
	{"BroadcastReachesEveryPartition", testBroadcast, nil},
	{"HeadersCarryAttributes", testHeaders, needHeaders},
	{"OversizeRecord", testOversize, needLimit},
	{"WriteObeysContext", testWriteObeysContext, nil},
	{"BusStoppedInTheMiddle", testBusStopped, needStop},
	{"BusDownAtWrite", testBusDownAtWrite, needStop},
	{"BusDownAtOpen", testBusDownAtOpen, needStop},
	{"CheckSeesAnOutage", testCheck, needStop},
	{"OpenAgain", testOpenAgain, nil},
	{"AnotherBatchAfterAnError", testGivenUp, nil},
	{"SecondWriterFencesFirst", testFencing, needExactlyOnce},
	{"FencedWhileWriting", testFencedWhileWriting, needExactlyOnce},
	{"TailFromStart", testTailFromStart, nil},
	{"TailFromMark", testTailFromMark, nil},
	{"TailAfterCrash", testTailAfterCrash, nil},
	{"TailAfterCrashInTheMiddle", testTailAfterCrashInTheMiddle, needStop},
}

// Run runs every test that the harness allows, one after the other. start is called once per test and
// cleans up with t.Cleanup.
func Run(t *testing.T, start func(t *testing.T) *Harness) {
	RunAlone(t, start)
	RunOthers(t, start)
}

// RunAlone runs the tests beside which nothing else may run.
func RunAlone(t *testing.T, start func(t *testing.T) *Harness) {
	for _, c := range leakTests {
		t.Run(c.name, func(t *testing.T) { c.run(t, start(t)) })
	}
}

// RunOthers runs the tests that RunAlone does not run, one after the other.
func RunOthers(t *testing.T, start func(t *testing.T) *Harness) {
	for _, c := range otherTests {
		t.Run(c.name, func(t *testing.T) { c.run(t, start(t)) })
	}
}

// RunParallel is [Run] for buses of which each test has its own: the tests run beside each other, and
// beside all other parallel tests. t itself must not be parallel yet.
func RunParallel(t *testing.T, start func(t *testing.T) *Harness) {
	RunAlone(t, start)
	t.Parallel()
	for _, c := range otherTests {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, start(t))
		})
	}
}

// RunFormats is [RunParallel] for each format of records, or with -short for the first one.
func RunFormats(t *testing.T, start func(t *testing.T) *Harness) {
	last := event.Plain
	if testing.Short() {
		last = event.Structured
	}
	for format := event.Structured; format <= last; format++ {
		t.Run(format.String(), func(t *testing.T) {
			RunParallel(t, func(t *testing.T) *Harness {
				h := start(t)
				h.Format = format
				return h
			})
		})
	}
	t.Parallel()
}

func (c *suiteTest) run(t *testing.T, h *Harness) {
	if c.skip != nil {
		if why := c.skip(h); why != "" {
			t.Skip(why)
		}
	}
	c.test(t, h)
}

func needStop(h *Harness) string {
	if h.Stop == nil {
		return "the bus cannot be stopped"
	}
	return ""
}

func needLimit(h *Harness) string {
	if h.MaxRecord == 0 {
		return "the bus has no limit"
	}
	return ""
}

func needHeaders(h *Harness) string {
	if h.Header == nil {
		return "the bus has no headers"
	}
	return ""
}

func needExactlyOnce(h *Harness) string {
	if !h.ExactlyOnce {
		return "the sink does not fence"
	}
	return ""
}

// tailed is one call of a Log's callback.
type tailed struct {
	state []event.KV
	mark  []byte
}

// open opens a new sink as a pipeline does: Open, then Tail where there is one. It
// returns what Tail gave. The sink is closed when the test ends.
func open(t *testing.T, h *Harness, mark []byte) (sink.Sink, []tailed) {
	t.Helper()
	s := h.New(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close at the end: %v", err)
		}
	})
	reopen(t, s, mark)
	return s, tail(t, s, mark)
}

// reopen calls Open until it succeeds.
func reopen(t *testing.T, s sink.Sink, mark []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := s.Open(ctx, mark)
		if err == nil {
			return
		}
		if final(err) || !pause(ctx) {
			t.Fatalf("Open: %v", err)
		}
	}
}

func tail(t *testing.T, s sink.Sink, mark []byte) []tailed {
	t.Helper()
	log, ok := s.(sink.Log)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var got []tailed
	if err := log.Tail(ctx, mark, func(state []event.KV, mark []byte) error {
		got = append(got, tailed{state, mark})
		return nil
	}); err != nil {
		t.Fatalf("Tail: %v", err)
	}
	return got
}

// write writes a batch, calling again with the same one until it is taken.
func write(ctx context.Context, s sink.Sink, b *event.Batch) ([]byte, error) {
	for {
		mark, err := s.Write(ctx, b)
		if err == nil || final(err) || !pause(ctx) {
			return mark, err
		}
	}
}

func mustWrite(t *testing.T, s sink.Sink, b *event.Batch) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	mark, err := write(ctx, s, b)
	if err != nil {
		t.Fatalf("Write of batch %d: %v", b.Seq, err)
	}
	return mark
}

// pause is the pipeline's wait before it tries again. It reports false when ctx ended.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(10 * time.Millisecond):
		return true
	}
}

// await waits for a condition that another goroutine or the bus brings about.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !cond() {
		if !pause(ctx) {
			t.Fatalf("waited %v for: %s", patience, what)
		}
	}
}
