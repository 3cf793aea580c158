package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/attribution/attribute"
	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/inbox"
	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/internal/attribution/logfile"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// newAuditing returns an auditing that reads a file with some lines.
func newAuditing(t *testing.T, lines []byte) *auditing {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	if err := os.WriteFile(path, lines, 0o600); err != nil {
		t.Fatal(err)
	}
	box, err := inbox.Open(filepath.Join(dir, "inbox"), inbox.Options{MaxBytes: inbox.LeastMaxBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = box.Close() })
	spec := &AuditSpec{Path: dir, File: &logfile.Options{Path: path, Parser: audit.NewParser(audit.Options{}), Poll: time.Millisecond}}
	return &auditing{spec: spec, log: zap.NewNop(), inbox: box, sinks: []string{"sink"}, begun: time.Now(), needed: map[string]inbox.Position{}, floors: map[attribute.Resource]floor{}}
}

// newDenying returns an auditing that publishes denied requests and waits for records, and an empty store.
func newDenying(t *testing.T) (*auditing, *file.Store) {
	t.Helper()
	store, err := file.OpenMem(identity)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	a := newAuditing(t, nil)
	a.spec.Denied, a.spec.Join = true, patient
	return a, store
}

// patient are the options of a join that gives up neither changes nor records while a test runs.
var patient = join.Options{Settle: time.Hour, Keep: time.Hour, MaxOpen: time.Minute, MaxChanges: 100, MaxRequests: 100}

// followsAudit lets the rig read audit records until the returned function is called.
func (r *rig) followsAudit(a *auditing) (end func()) {
	ctx, stop := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.followAudit(ctx, a) }()
	return func() {
		stop()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
	}
}

// created is the record of the creation of a ConfigMap.
func created(name, version, user string) audit.Record {
	return audit.Record{
		ID: user, Stage: audit.Complete, Level: audit.RequestResponse, Verb: "create", Resource: "configmaps", Namespace: "a", Name: name, Code: 201,
		Answer:   &audit.Answer{Namespace: "a", Name: name, UID: "uid-" + name, Version: version},
		Received: time.Now(), Reached: time.Now(), Actor: audit.Actor{User: audit.User{Name: user}},
	}
}

// Each line of the audit log is in the status: as a record, by the reason why it is none, or as one that could not be read.
func TestAuditStatus(t *testing.T) {
	text, err := os.ReadFile("../attribution/audit/testdata/apiserver-1.36.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, "{nonsense\n"...)
	a := newAuditing(t, text)
	if s := a.status(); s.FileRead != nil || s.Records != 0 || s.Refused != nil || s.Failing != "" {
		t.Errorf("before the start: %+v", s)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.follow(ctx) }()
	deadline := time.After(endsHang)
	for a.status().FileRead == nil { // it is set at the end of the file
		select {
		case <-time.After(time.Millisecond):
		case <-deadline:
			t.Fatalf("the file is not read: %+v", a.status())
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s := a.status()
	events := s.Records + s.Unparsable
	for _, n := range s.Dropped {
		events += n
	}
	if want := bytes.Count(text, []byte("\n")); events != uint64(want) || s.Unparsable != 1 || s.Records == 0 || s.Dropped["read"] == 0 {
		t.Errorf("%d of %d lines are counted: %+v", events, want, s)
	}
	if s.Bytes == 0 || s.MaxBytes != inbox.LeastMaxBytes || s.LastError != nil {
		t.Errorf("status %+v", s)
	}
}

// A file that does not exist is in the status: the API server may write another one.
func TestAuditFileMissing(t *testing.T) {
	a := newAuditing(t, nil)
	path := a.spec.File.Path
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.follow(ctx) }()
	shows := func(failing bool) {
		t.Helper()
		deadline := time.After(endsHang)
		for strings.Contains(a.status().Failing, path) != failing {
			select {
			case <-time.After(time.Millisecond):
			case <-deadline:
				t.Fatalf("failing, want %t: %+v", failing, a.status())
			}
		}
	}
	shows(true)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	shows(false)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A failure is in the status with its remedy until the operation succeeds, and afterwards as the last error.
func TestAuditFailing(t *testing.T) {
	a := newAuditing(t, nil)
	a.shown.met(storeRecords, fmt.Errorf("append: %w", inbox.ErrFull))
	before := a.status()
	a.shown.met(deleteRecords, errors.New("broken disk"))
	a.shown.met(storeRecords, inbox.ErrFull)
	s := a.status()
	if s.Failing != "store audit records: the audit inbox is full" || s.Since == nil || !s.Since.Equal(*before.Since) || !strings.Contains(s.LastError.Advice, "audit.maxBytes") {
		t.Errorf("status %+v", s)
	}
	a.shown.met(storeRecords, nil)
	if s := a.status(); s.Failing != "delete audit records that are not needed: broken disk" {
		t.Errorf("status %+v", s)
	}
	a.shown.met(deleteRecords, nil)
	a.shown.lost(&logfile.GapError{Why: "the file was truncated"})
	if s := a.status(); s.Failing != "" || s.Since != nil || s.LastError == nil || !strings.Contains(s.LastError.Error, "truncated") {
		t.Errorf("status %+v", s)
	}
}

// All reasons are in the status, so that metrics begin at 0.
func TestAttributionStatus(t *testing.T) {
	got := attributionStatus(attribute.New(attribute.Options{}).Counts(), false)
	if len(got.Candidates) != len(join.Reasons()) || got.Candidates[string(join.Several)] != 0 {
		t.Errorf("candidates %v", got.Candidates)
	}
	got = attributionStatus(attribute.Counts{Waiting: 1, Exact: 2, Candidates: map[join.Reason]uint64{join.Several: 3}, Unknown: 4, Dropped: 5}, false)
	want := status.Attribution{Waiting: 1, Exact: 2, NoRecord: 4, Dropped: 5}
	if got.Candidates["several"] != 3 || got.Waiting != want.Waiting || got.Exact != want.Exact || got.NoRecord != want.NoRecord || got.Dropped != want.Dropped {
		t.Errorf("got %+v", got)
	}
}

// A published change waits in the status until its record comes. Then it is counted as exact.
func TestAttributionFollowsAChange(t *testing.T) {
	store, err := file.OpenMem(identity)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	a := newAuditing(t, nil)
	a.spec.Join = patient
	r := newAuditedRig(t, &nowhere{}, store, CollectionOptions{}, a.spec)
	defer r.stop()
	defer r.followsAudit(a)()
	r.reads(append([]*reconcile.Input{{Kind: reconcile.ListBegun, Reason: source.ReasonSnapshot}}, listEnd("10")...)...)
	r.reads(watched(reconcile.Seen, "new", "11", "10"))
	r.shows("published", func(s status.Sink, _ status.Collection) bool {
		return s.Attribution != nil && s.Attribution.Waiting == 1 && s.Attribution.Exact == 0
	})
	if err := a.Append([]audit.Record{created("new", "11", "alice")}); err != nil {
		t.Fatal(err)
	}
	r.shows("attributed", func(s status.Sink, _ status.Collection) bool {
		return s.Attribution.Waiting == 0 && s.Attribution.Exact == 1
	})
	metrics := prometheus.NewPedanticRegistry()
	metrics.MustRegister(NewCollector(func() status.Report { return status.Report{Audit: a.status(), Sinks: []status.Sink{r.Status()}} }))
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	results := 0
	for _, f := range families {
		if f.GetName() == "kubebridge_attributions_total" {
			results = len(f.GetMetric())
		}
	}
	if want := len(join.Reasons()) + 4; results != want {
		t.Errorf("kubebridge_attributions_total has %d series, want %d", results, want)
	}
}
