package attribution

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

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/attribution/attribute"
	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/inbox"
	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/internal/attribution/logfile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
)

// newInputs returns inputs that read a file with some lines.
func newInputs(t *testing.T, lines []byte) *Inputs {
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
	spec := &Spec{Path: dir, File: &logfile.Options{Path: path, Parser: audit.NewParser(audit.Options{}), Poll: time.Millisecond}}
	return &Inputs{
		spec: spec, log: zap.NewNop(), inbox: box, sinks: []string{"sink"}, begun: time.Now(), needed: map[string]inbox.Position{}, floors: map[attribute.Resource]floor{},
	}
}

// newDenying returns inputs of which refused requests are published and changes wait for their records, and an empty store.
func newDenying(t *testing.T) (*Inputs, *file.Store) {
	t.Helper()
	store, err := file.OpenMem(identity)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	a := newInputs(t, nil)
	a.spec.Denied, a.spec.Join = true, patient
	return a, store
}

// patient are the options of a join that gives up neither changes nor records while a test runs.
var patient = join.Options{Settle: time.Hour, Keep: time.Hour, MaxOpen: time.Minute, MaxChanges: 100, MaxRequests: 100}

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
	text, err := os.ReadFile("audit/testdata/apiserver-1.36.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, "{nonsense\n"...)
	a := newInputs(t, text)
	if s := a.Status(); !s.FileRead.IsZero() || s.Records != 0 || s.Refused != nil || s.Failing != "" {
		t.Errorf("before the start: %+v", s)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.follow(ctx) }()
	deadline := time.After(endsHang)
	for a.Status().FileRead.IsZero() { // it is set at the end of the file
		select {
		case <-time.After(time.Millisecond):
		case <-deadline:
			t.Fatalf("the file is not read: %+v", a.Status())
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s := a.Status()
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
	a := newInputs(t, nil)
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
		for strings.Contains(a.Status().Failing, path) != failing {
			select {
			case <-time.After(time.Millisecond):
			case <-deadline:
				t.Fatalf("failing, want %t: %+v", failing, a.Status())
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
	a := newInputs(t, nil)
	a.shown.met(storeRecords, fmt.Errorf("append: %w", inbox.ErrFull))
	before := a.Status()
	a.shown.met(deleteRecords, errors.New("broken disk"))
	a.shown.met(storeRecords, inbox.ErrFull)
	s := a.Status()
	if s.Failing != "store audit records: the audit inbox is full" || s.Since.IsZero() || !s.Since.Equal(before.Since) || !strings.Contains(s.LastError.Advice, "audit.maxBytes") {
		t.Errorf("status %+v", s)
	}
	a.shown.met(storeRecords, nil)
	if s := a.Status(); s.Failing != "delete audit records that are not needed: broken disk" {
		t.Errorf("status %+v", s)
	}
	a.shown.met(deleteRecords, nil)
	a.shown.lost(&logfile.GapError{Why: "the file was truncated"})
	if s := a.Status(); s.Failing != "" || !s.Since.IsZero() || s.LastError == nil || !strings.Contains(s.LastError.Error, "truncated") {
		t.Errorf("status %+v", s)
	}
}
