package bridge

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kubebridge/kubebridge/internal/core/delivery"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
)

// A bus that does not work must not look ready, whether a check says so or an operation has no answer, and whatever else succeeds. The log
// repeats it once a minute, and no longer when nobody checks any more.
func TestReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		r := newReporter(status.Sink{Name: "s"}, zap.New(core), NewMetrics(prometheus.NewRegistry()), nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.reminder().run(ctx)
		write := func() { _ = r.retry(ctx, delivery.WriteToBus, func() error { return nil }) }
		bad, unusable := errors.New("it keeps nothing"), checkpoint.ErrUnusable
		check := func(result error) error { return r.once(ctx, delivery.CheckBus, func() error { return result }) }
		ready := func(want bool, says string) {
			t.Helper()
			if s := r.present(); s.Ready != want || !strings.Contains(s.Failing, says) || want != (s.Since == nil) {
				t.Errorf("ready %t, failing %q since %v; want %t, %q", s.Ready, s.Failing, s.Since, want, says)
			}
		}
		ready(false, "it has not answered yet")
		write()
		ready(true, "")

		for range 150 {
			if err := check(bad); err != nil {
				t.Fatal(err)
			}
			write()
			ready(false, "check the bus: it keeps nothing")
			time.Sleep(time.Second)
		}
		if n := logs.FilterField(zap.String("operation", delivery.CheckBus)).Len(); n != 3 {
			t.Errorf("%d lines in 2.5 minutes, want 3", n)
		}
		if err := check(nil); err != nil {
			t.Fatal(err)
		}
		ready(true, "")
		if err := check(unusable); !errors.Is(err, unusable) {
			t.Errorf("%v, want the error for good", err)
		}
		_ = check(bad)
		logs.TakeAll()
		time.Sleep(5 * time.Minute) // the loop has ended
		if n := logs.Len(); n > 2 {
			t.Errorf("%d lines about a check that nobody makes any more", n)
		}
		_ = check(nil)

		answer := make(chan error)
		go func() { _ = r.retry(ctx, delivery.WriteToBus, func() error { return <-answer }) }()
		time.Sleep(15 * time.Second)
		ready(true, "")
		time.Sleep(time.Second)
		ready(false, "write to the bus: no answer yet")
		answer <- nil
		synctest.Wait()
		ready(true, "")
	})
}
