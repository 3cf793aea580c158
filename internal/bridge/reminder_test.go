package bridge

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/internal/base/pause"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// The log of the last minute shows every outage, with its duration and the number of attempts, however rare the
// attempts are.
func TestEveryOutageIsRepeated(t *testing.T) {
	broken := errors.New("no broker answers")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
	for _, test := range []struct {
		name  string
		fails func(ctx context.Context, l *reporter) // fails until ctx ends, or once
		every time.Duration
	}{
		{"the bus", func(ctx context.Context, l *reporter) {
			_ = l.retry(ctx, "write to the bus", func() error { return broken }) // the error is that ctx has ended
		}, time.Minute},
		{"a bus whose errors take long", func(ctx context.Context, l *reporter) {
			_ = l.retry(ctx, "write to the bus", func() error { pause.For(ctx, 7*time.Minute); return broken })
		}, time.Minute},
		{"reading the checkpoint", func(ctx context.Context, l *reporter) {
			_, _ = (&retryingReader{&fullDisk{fails: 1 << 30, with: broken}, ctx, nil, l.reminder(), "s"}).Get(nil)
		}, time.Minute},
		{"the API server", func(_ context.Context, l *reporter) { l.outage.met("pods", broken) }, time.Minute},
		{"a collection that may not be listed", func(_ context.Context, l *reporter) {
			l.stateChanged("pods", source.State{Phase: source.Waiting, Err: forbidden})
		}, time.Minute},
		{"a resource that does not exist", func(_ context.Context, l *reporter) {
			l.Waiting(map[string]error{"podz": discovery.ErrNoResource})
		}, 10 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core, logs := observer.New(zap.WarnLevel)
				l := newReporter(status.Sink{Name: "s"}, zap.New(core), NewMetrics(prometheus.NewRegistry()), nil)
				l.status.add(status.Collection{ID: "pods", Resource: "pods"}, &tally{})
				ctx, cancel := context.WithCancel(t.Context())
				go l.reminder().run(ctx)
				began := time.Now()
				go test.fails(ctx, l)
				time.Sleep(15*time.Minute + 30*time.Second)
				cancel()
				synctest.Wait()
				if len(logs.All()) == 0 {
					t.Fatal("nothing is logged")
				}
				last := logs.All()[0].Time
				for _, line := range logs.All()[1:] {
					fields := line.ContextMap()
					if silent := line.Time.Sub(last); silent > test.every+time.Second {
						t.Errorf("nothing is logged for %v", silent)
					}
					last = line.Time
					lasted, _ := fields["failingFor"].(time.Duration)
					if got := line.Time.Sub(began); lasted > got || lasted < got-7*time.Minute-time.Second {
						t.Errorf("after %v: %s %v", got, line.Message, fields)
					}
					if attempts, ok := fields["attempts"].(int64); fields["error"] == nil || ok && attempts < 1 {
						t.Errorf("no error or no attempts: %s %v", line.Message, fields)
					}
				}
				if end := began.Add(15 * time.Minute); end.Sub(last) > test.every {
					t.Errorf("the last line is of %v after the begin", last.Sub(began))
				}
				if n := len(logs.All()); n > 20 {
					t.Errorf("%d lines in 15 minutes", n)
				}
			})
		})
	}
}

// A full disk fails with the name of another file each time. This does not fill the log, and another cause is still logged at once.
func TestOneKindIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		r := newReminder(zap.New(core))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.run(ctx)
		n := 0
		full := func() error {
			n++
			return fmt.Errorf("open the checkpoint: %w", &fs.PathError{Op: "open", Path: fmt.Sprintf("/data/MANIFEST-%06d", 95+n), Err: syscall.ENOSPC})
		}
		fails := func(during time.Duration, errs ...func() error) (lines int) {
			logs.TakeAll()
			for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(readAgain) {
				r.failed("read", failure{message: tryingAgain, err: errs[n%len(errs)]()})
			}
			return logs.Len()
		}
		if got := fails(40*time.Second, full); got != 1 {
			t.Errorf("a full disk is logged %d times in 40 s, want once", got)
		}
		broken := func() error { n++; return syscall.EIO }
		if got := fails(time.Second, broken); got != 1 {
			t.Errorf("another cause is logged %d times in a second, want once", got)
		}
		if got := fails(10*time.Minute, full, broken); got < 10 || got > 22 {
			t.Errorf("two causes in turn are logged %d times in 10 minutes, want twice a minute", got)
		}
		names := func() error { n++; return errors.New(strings.Repeat("x", n%1000)) }
		if got := fails(10*time.Minute, names); got > 10*(remindMost+1) {
			t.Errorf("a thousand causes are logged %d times in 10 minutes", got)
		}
	})
}

// Operations that work are not logged again. Thousands of collections without a permission do not fill the log.
func TestRemindersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		r := newReminder(zap.New(core))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.run(ctx)
		for i := range 1000 {
			r.failed(fmt.Sprint(i), failure{message: "no", err: errors.New("forbidden")})
		}
		logs.TakeAll()
		time.Sleep(90 * time.Second)
		if got := logs.TakeAll(); len(got) != remindMost+1 || got[remindMost].ContextMap()["failing"] != int64(1000-remindMost) {
			t.Errorf("%d lines, the last is %v", len(got), got[len(got)-1])
		}
		for i := range 1000 {
			if after := r.works(fmt.Sprint(i)); after != 90*time.Second {
				t.Errorf("it lasted %v", after)
			}
		}
		if r.works("0") != 0 {
			t.Error("what works fails")
		}
		r.failed("route", failure{message: "suspended", err: errors.New("no topic"), lasts: 2 * time.Minute})
		time.Sleep(5 * time.Minute)
		if got := logs.TakeAll(); len(got) < 2 || len(got) > 3 {
			t.Errorf("what nobody tries any more is said %d times", len(got))
		}
		time.Sleep(5 * time.Minute)
		if got := logs.All(); len(got) > 0 {
			t.Errorf("still said: %v", got)
		}
	})
}

// The begin of a list, which may fail again, does not end the failure.
func TestAttemptIsNoSuccess(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	l := newReporter(status.Sink{Name: "s"}, zap.New(core), NewMetrics(prometheus.NewRegistry()), nil)
	l.status.add(status.Collection{ID: "pods", Resource: "pods"}, &tally{})
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
	for _, err := range []error{forbidden, errors.New("connection refused")} {
		for range 3 {
			l.stateChanged("pods", source.State{Phase: source.Waiting, Err: err})
			l.stateChanged("pods", source.State{Phase: source.Reconciling})
		}
		l.stateChanged("pods", source.State{Phase: source.Reconciling}) // a page has been read
		l.stateChanged("pods", source.State{Phase: source.Watching})
	}
	var said []string
	for _, line := range logs.All() {
		said = append(said, line.Message)
	}
	want := fmt.Sprint([]string{
		"collection waiting; trying again", "collection goes on",
		"the API server is lost, or overloaded; trying again", "the API server is back: everything is read again",
	})
	if fmt.Sprint(said) != want {
		t.Errorf("said is %q, want %s", said, want)
	}
}

// A server that no longer has a collection's history still answers: it is neither unreachable nor overloaded.
func TestExpiredIsNoOutage(t *testing.T) {
	for _, cause := range []error{
		apierrors.NewResourceExpired("too old"), errors.New("3 watches from it ended at once"),
		apierrors.NewInternalError(errors.New("etcd event received with PrevKv=nil")),
	} {
		core, logs := observer.New(zap.InfoLevel)
		o := newOutage(zap.New(core))
		if own := o.met("pods", fmt.Errorf("resourceVersion 5 is %w: %w", source.ErrExpired, cause)); own || logs.Len() > 0 {
			t.Errorf("%v: its own %t, log %v", cause, own, logs.All())
		}
	}
}

// The advice must fit the error that it is shown with.
func TestAdvice(t *testing.T) {
	l := newReporter(status.Sink{Name: "s"}, zap.NewNop(), NewMetrics(prometheus.NewRegistry()), nil)
	runbook, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for _, x := range []struct {
		err       error
		otherwise string
		want      string
	}{
		{fmt.Errorf("open the bus: %w", refused), adviceSink, "check the sink's addresses"},
		{errors.New("INVALID_TRANSACTION_TIMEOUT: raise transaction.max.timeout.ms"), adviceSink, adviceSink}, // no address is wrong
		{&sink.RouteError{Err: refused}, adviceSink, "see KubebridgeRouteSuspended"},
		{&sink.RecordError{Err: errors.New("too large")}, adviceRoute, "see KubebridgeRouteSuspended"},
		{fmt.Errorf("commit the checkpoint: %w", syscall.ENOSPC), adviceSink, "make room on the disk"},
		{errors.New("a watch ended"), adviceCollection, adviceCollection},
		{refused, adviceCollection, adviceCollection}, // of the API server
		{fmt.Errorf("pattern %q: %w", "*.*", discovery.ErrUnknownGroup), adviceCollection, "repair the server behind the APIService"},
		{discovery.ErrNoResource, adviceCollection, "correct its name"},
	} {
		got := advice(x.err, x.otherwise)
		if !strings.Contains(got, x.want) {
			t.Errorf("%v: the advice is %q, want %q", x.err, got, x.want)
		}
		if _, section, named := strings.Cut(got, "Kubebridge"); named {
			section, _, _ = strings.Cut(section, " ")
			if !strings.Contains(string(runbook), "\n## Kubebridge"+section+"\n") {
				t.Errorf("the runbook has no section for the advice %q", got)
			}
		}
	}
	l.Waiting(map[string]error{"podz": discovery.ErrNoResource})
	if c := l.present().Collections[0]; c.LastError == nil || c.LastError.Advice != advice(discovery.ErrNoResource, adviceCollection) {
		t.Errorf("a resource that does not exist: %+v", c.LastError)
	}
}
