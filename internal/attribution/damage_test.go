package attribution

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/inbox"
	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
)

// damage damages the last records of the inbox.
func (a *Inputs) damage(t *testing.T) {
	t.Helper()
	if err := a.inbox.Close(); err != nil {
		t.Fatal(err)
	}
	damaged := false
	dir := filepath.Join(a.spec.Path, "inbox")
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || bytes.Count(text, []byte("kbsb")) < 5 {
			return err
		}
		at := 0
		for range 3 {
			at += bytes.Index(text[at+1:], []byte("kbsb")) + 1
		}
		text[at+60] ^= 1
		damaged = true
		return os.WriteFile(path, text, 0o600)
	})
	if err != nil || !damaged {
		t.Fatal("no file is damaged", err)
	}
	if a.inbox, err = inbox.Open(dir, inbox.Options{MaxBytes: inbox.LeastMaxBytes}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.inbox.Close() })
}

// If the last records in the inbox are damaged, changes do not wait for a record that comes behind them.
func TestDamagedEnd(t *testing.T) {
	store, err := file.OpenMem(identity)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	a := newInputs(t, nil)
	a.spec.Join = join.Options{Settle: time.Millisecond, Keep: time.Millisecond, MaxOpen: time.Minute, MaxChanges: 100, MaxRequests: 100}
	for range 5 {
		if err := a.Append([]audit.Record{created("other", "5", "alice")}); err != nil {
			t.Fatal(err)
		}
	}
	a.damage(t)
	if n := len(a.readable(t)); n != 2 || a.inbox.Last() != 5 {
		t.Fatalf("%d of %d records can be read, want 2 of 5", n, a.inbox.Last())
	}
	r := newRig(t, &nowhere{}, store, a.spec, configMaps)
	defer r.stop()
	defer r.followsAudit(a)()
	r.snapshot("10")
	r.reads(watched("new", "11", "10"))
	r.shows("there is no record", func(s shown) bool {
		a.hasRead(fromFile, time.Now())
		return s.Waiting == 0 && s.NoRecord == 1
	})
}
