package stdout_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/sinktest"
	"github.com/kubebridge/kubebridge/pkg/sink/stdout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSuite(t *testing.T) {
	sinktest.Run(t, func(*testing.T) *sinktest.Harness {
		var out bytes.Buffer
		return &sinktest.Harness{
			New: func(t *testing.T) sink.Sink { return open(t, stdout.Options{Writer: &out}) },
			Read: func(*testing.T) []sinktest.Message {
				var msgs []sinktest.Message
				for line := range bytes.Lines(out.Bytes()) {
					msgs = append(msgs, sinktest.Message{Value: bytes.TrimSuffix(line, []byte("\n"))})
				}
				return msgs
			},
		}
	})
}

func open(t *testing.T, o stdout.Options) *stdout.Sink {
	t.Helper()
	s, err := stdout.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return s
}

// A consumer that splits at newlines must get one event per line, even if a body is indented.
func TestOneLinePerEvent(t *testing.T) {
	var out bytes.Buffer
	s := open(t, stdout.Options{Writer: &out})
	b := &event.Batch{Seq: 1, Records: []event.Record{
		{Value: []byte("{\n  \"id\": \"a\\nb\"\n}")},
		{Value: []byte(`{"id":"c"}`)},
	}}
	if _, err := s.Write(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if want := "{\"id\":\"a\\nb\"}\n{\"id\":\"c\"}\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// `bridge tail | head` must end, so the pipeline needs the error of the closed pipe.
func TestBrokenPipeIsReturned(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	s := open(t, stdout.Options{Writer: w})
	if _, err := s.Write(t.Context(), &event.Batch{Seq: 1, Records: []event.Record{{Value: []byte("{}")}}}); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("Write: %v, want EPIPE", err)
	}
}

// limited takes so many bytes, then fails once.
type limited struct {
	bytes.Buffer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left >= 0 && len(p) > l.left {
		n, _ := l.Buffer.Write(p[:l.left])
		l.left = -1
		return n, errors.New("disk full")
	}
	return l.Buffer.Write(p)
}

func TestCutLineIsFinished(t *testing.T) {
	w := &limited{left: 14}
	s := open(t, stdout.Options{Writer: w})
	b := &event.Batch{Seq: 1, Records: []event.Record{{Value: []byte(`{"id":"a"}`)}, {Value: []byte(`{"id":"b"}`)}}}
	if _, err := s.Write(t.Context(), b); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Fatalf("Write: %v", err)
	}
	if _, err := s.Write(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if want := "{\"id\":\"a\"}\n{\"id\":\"b\"}\n"; w.String() != want {
		t.Errorf("got %q, want %q", w.String(), want)
	}
}

func TestPretty(t *testing.T) {
	at := time.Date(2026, 1, 2, 12, 30, 1, 500e6, time.Local)
	since := at.Add(-1500 * time.Millisecond)
	pods := &event.Collection{Resource: "pods"}
	for _, c := range []struct {
		name, want string
		e          event.Event
	}{
		{
			"added", "12:30:01.500 ADDED    pods default/web rv=7 watch",
			event.Event{Type: event.Added, Origin: event.Watch, Collection: pods, Namespace: "default", Name: "web", ResourceVersion: "7", Object: []byte("{}")},
		},
		{
			"cluster-scoped, of a group", "12:30:01.500 MODIFIED clusterroles.rbac.authorization.k8s.io admin rv=8 reconcile",
			event.Event{
				Type: event.Modified, Origin: event.Reconcile, Collection: &event.Collection{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
				Name: "admin", ResourceVersion: "8", Object: []byte("{}"),
			},
		},
		{
			"a name that would steer the terminal", `12:30:01.500 ADDED    roles a/x\x1b[2J rv=9 watch`,
			event.Event{Type: event.Added, Origin: event.Watch, Collection: &event.Collection{Resource: "roles"}, Namespace: "a", Name: "x\x1b[2J", ResourceVersion: "9", Object: []byte("{}")},
		},
		{
			"left", "12:30:01.500 DELETED  pods:canary default/web rv=9 watch, left the selection, ended by rv 11",
			event.Event{
				Type: event.Deleted, Origin: event.Watch, Collection: &event.Collection{Resource: "pods", Entry: "canary", Namespace: "default"},
				Namespace: "default", Name: "web", ResourceVersion: "9", DeletionVersion: "11", Reason: "left", Object: []byte("{}"),
			},
		},
		{
			"gone or left", "12:30:01.500 DELETED  pods default/web rv=9 reconcile, gone or no longer selected, last state not known",
			event.Event{Type: event.Deleted, Origin: event.Reconcile, Collection: pods, Namespace: "default", Name: "web", ResourceVersion: "9", Reason: "unknown"},
		},
		{
			"synthesised deletion", "12:30:01.500 DELETED  pods default/web rv=9 reconcile, last state not known",
			event.Event{Type: event.Deleted, Origin: event.Reconcile, Collection: pods, Namespace: "default", Name: "web", ResourceVersion: "9"},
		},
		{
			"truncated", "12:30:01.500 ADDED    pods default/web rv=9 watch, body of 2000000 bytes left out",
			event.Event{
				Type: event.Added, Origin: event.Watch, Collection: pods, Namespace: "default", Name: "web", ResourceVersion: "9", Object: []byte("{}"),
				Truncated: &event.Truncation{Size: 2000000},
			},
		},
		{
			"who made a change", `12:30:01.500 ATTRIBUTED pods default/web rv=9 audit, modified by al\x1bce via ci, from 10.0.0.1, with kubectl/v1`,
			event.Event{
				Type: event.Attributed, Explained: event.Modified, Origin: event.Audit, Collection: pods, Namespace: "default", Name: "web", ResourceVersion: "9",
				Attribution: &event.Attribution{Request: &event.Request{
					User: event.User{Name: "ci"}, Impersonated: &event.User{Name: "al\x1bce"}, SourceIPs: []string{"10.0.0.1"}, UserAgent: "kubectl/v1 (linux)",
				}},
			},
		},
		{
			"who may have made a change", "12:30:01.500 ATTRIBUTED pods default/web rv=9 audit, deleted by one of 2 users or another one, incomplete",
			event.Event{
				Type: event.Attributed, Explained: event.Deleted, Origin: event.Audit, Collection: pods, Namespace: "default", Name: "web", ResourceVersion: "9",
				Attribution: &event.Attribution{Reason: "incomplete", Candidates: make([]event.Request, 2)},
			},
		},
		{
			"who was refused", "12:30:01.500 DENIED   pods default/web audit, delete by mallory, from 10.0.0.6",
			event.Event{
				Type: event.Denied, Origin: event.Audit, Collection: pods, Namespace: "default", Name: "web",
				Denial: &event.Denial{Request: event.Request{User: event.User{Name: "mallory"}, Verb: "delete", SourceIPs: []string{"10.0.0.6"}}},
			},
		},
		{
			"records that are lost", "12:30:01.500 LOST     pods: audit records may be missing, until noon: the file was replaced",
			event.Event{Type: event.Lost, Origin: event.Audit, Collection: pods, Loss: &event.Loss{Until: "noon", Detail: "the file was replaced"}},
		},
		{
			"who may not list", "12:30:01.500 DENIED   pods audit, list by mallory",
			event.Event{Type: event.Denied, Origin: event.Audit, Collection: pods, Denial: &event.Denial{Request: event.Request{User: event.User{Name: "mallory"}, Verb: "list"}}},
		},
		{
			"a gap before which nothing was complete", "12:30:01.500 GAP      pods: comparing with the published state; returned",
			event.Event{Type: event.Gap, Collection: pods, Report: &event.Report{Reason: "returned"}},
		},
		{
			"gap", "12:30:01.500 GAP      pods@a: comparing with the published state, rv 5; expired",
			event.Event{Type: event.Gap, Collection: &event.Collection{Resource: "pods", Namespace: "a"}, Report: &event.Report{Reason: "expired", Detail: "HTTP 410", From: "5"}},
		},
		{
			"reset", "12:30:01.500 GAP      pods: a list of all objects begins; reset",
			event.Event{Type: event.Gap, Collection: pods, Report: &event.Report{Reason: "reset", Reset: true, From: "5"}},
		},
		{
			"synced", "12:30:01.500 SYNCED   pods: complete up to rv 12 after 1.5s; 20 listed, 3 added, 1 deleted, 4 filtered; expired",
			event.Event{
				Type: event.Synced, Collection: pods, ResourceVersion: "12",
				Report: &event.Report{Reason: "expired", To: "12", Since: &since, Counts: &event.Counts{Listed: 20, Added: 3, Deleted: 1, Filtered: 4}},
			},
		},
		{
			"closed", "12:30:01.500 CLOSED   pods: no longer watched; removed",
			event.Event{Type: event.Closed, Collection: pods, Report: &event.Report{Reason: "removed"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.e.Time = at
			b := &event.Batch{Seq: 1, Records: []event.Record{{Event: &c.e}}}
			var plain, coloured bytes.Buffer
			if _, err := open(t, stdout.Options{Config: stdout.Config{Format: stdout.Pretty}, Writer: &plain}).Write(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			if got := plain.String(); got != c.want+"\n" {
				t.Errorf("got  %swant %s", got, c.want)
			}
			if _, err := open(t, stdout.Options{Config: stdout.Config{Format: stdout.Pretty, Color: true}, Writer: &coloured}).Write(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(coloured.String(), "\x1b["); n != 2 {
				t.Errorf("coloured line has %d escapes, want 2: %q", n, coloured.String())
			}
		})
	}
}

func TestUnknownFormat(t *testing.T) {
	_, err := stdout.New(stdout.Options{Config: stdout.Config{Format: "yaml"}})
	if err == nil || !strings.Contains(err.Error(), `"yaml"`) || !strings.Contains(err.Error(), "pretty") {
		t.Errorf("New: %v, want an error that names the value and the formats", err)
	}
}
