package pipeline

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

	"github.com/kubebridge/kubebridge/internal/attribute"
	"github.com/kubebridge/kubebridge/internal/audit"
	"github.com/kubebridge/kubebridge/internal/audit/inbox"
	"github.com/kubebridge/kubebridge/internal/audit/join"
	"github.com/kubebridge/kubebridge/internal/audit/logfile"
	"github.com/kubebridge/kubebridge/internal/status"
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
	return &auditing{spec: spec, log: zap.NewNop(), inbox: box}
}

// Each line of the audit log is in the status: as a record, by the reason why it is none, or as one that could not be read.
func TestAuditStatus(t *testing.T) {
	text, err := os.ReadFile("../audit/testdata/apiserver-1.36.jsonl")
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
	got := attributionStatus(attribute.New(attribute.Options{}).Counts())
	if len(got.Candidates) != len(join.Reasons()) || got.Candidates[string(join.Several)] != 0 {
		t.Errorf("candidates %v", got.Candidates)
	}
	got = attributionStatus(attribute.Counts{Waiting: 1, Exact: 2, Candidates: map[join.Reason]uint64{join.Several: 3}, Unknown: 4, Dropped: 5})
	want := status.Attribution{Waiting: 1, Exact: 2, NoRecord: 4, Dropped: 5}
	if got.Candidates["several"] != 3 || got.Waiting != want.Waiting || got.Exact != want.Exact || got.NoRecord != want.NoRecord || got.Dropped != want.Dropped {
		t.Errorf("got %+v", got)
	}
}
