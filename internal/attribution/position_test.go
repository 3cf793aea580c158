package attribution

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/internal/attribution/attribute"
	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/inbox"
	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/internal/attribution/topic"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

const auditLine = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"1","stage":"ResponseComplete","requestURI":"/","verb":"create","user":{"username":"alice"},"objectRef":{"resource":"pods"},"responseStatus":{"code":201},"stageTimestamp":"2026-03-14T09:26:02.535897Z"}` + "\n"

// readable returns the records in the inbox that can be read.
func (a *Inputs) readable(t *testing.T) (all []audit.Record) {
	t.Helper()
	reader := a.inbox.Reader(inbox.Position{})
	defer reader.Close()
	for {
		item, err := reader.Next()
		var gap *inbox.GapError
		switch {
		case errors.Is(err, io.EOF):
			return all
		case errors.As(err, &gap):
			continue
		case err != nil:
			t.Fatal(err)
		}
		if item.Record != nil {
			all = append(all, *item.Record)
		}
	}
}

// await waits until a condition holds.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(endsHang); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// reads follows the audit log until a condition holds.
func (a *Inputs) reads(t *testing.T, until func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.follow(ctx) }()
	await(t, "the audit log is not read", until)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// reopen opens the inbox again, as a restart does.
func (a *Inputs) reopen(t *testing.T) {
	t.Helper()
	if err := a.inbox.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	if a.inbox, err = inbox.Open(filepath.Join(a.spec.Path, "inbox"), inbox.Options{MaxBytes: inbox.LeastMaxBytes}); err != nil {
		t.Fatal(err)
	}
	a.shown, a.caught = state{}, [inputs]caught{}
}

// An offset that cannot be decoded must not keep the bridge from starting. It counts as unknown: one loss is noted, and the input is read.
func TestBrokenOffsets(t *testing.T) {
	for _, text := range []string{`5`, `[]`, `"text"`, `{"device":1,"offset":"x","topicID":5}`} {
		a := newInputs(t, []byte(auditLine))
		if err := a.inbox.AppendAt(nil, fromFile, json.RawMessage(text)); err != nil {
			t.Fatal(err)
		}
		a.reads(t, func() bool { return a.Status().Records > 0 })
		all := a.readable(t)
		if len(all) != 2 || all[0].Lost == nil || !strings.Contains(all[0].Lost.Detail, "offset") || all[1].Actor.User.Name != "alice" {
			t.Errorf("offset %q: the inbox has %+v, want a loss and the record", text, all)
		}
		var at struct{ Offset int64 }
		if err := json.Unmarshal(a.inbox.Offset(fromFile), &at); err != nil || at.Offset != int64(len(auditLine)) {
			t.Errorf("offset %q: then %+v is kept, %v", text, at, err)
		}

		if err := a.inbox.AppendAt(nil, fromTopic, json.RawMessage(text)); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the loss is noted once
			_, from, ok := newIntake[topic.Position](t.Context(), a, fromTopic)
			if !ok || from.TopicID != "" || from.Next != nil {
				t.Errorf("offset %q: the topic is read from %+v, %v", text, from, ok)
			}
		}
		if all := a.readable(t); len(all) != 3 || all[2].Lost == nil || all[2].Input != fromTopic {
			t.Errorf("offset %q: the inbox has %+v, want one more loss", text, all)
		}
	}
}

// After a restart, the file is read on behind the last line, whether that was kept or left out, and also if it was renamed meanwhile.
func TestFileIsReadOnBehindTheInbox(t *testing.T) {
	read := strings.ReplaceAll(auditLine, `"verb":"create"`, `"verb":"get"`) // it is left out
	a := newInputs(t, []byte(auditLine+read))
	size := int64(len(auditLine + read))
	caught := func() bool { return !a.read(fromFile).at.IsZero() }
	a.reads(t, caught)
	offset := func() (at struct{ Offset int64 }) {
		if err := json.Unmarshal(a.inbox.Offset(fromFile), &at); err != nil {
			t.Error(err)
		}
		return at
	}
	if at := offset(); at.Offset != size {
		t.Errorf("the offset is %d, want %d", at.Offset, size)
	}
	a.reopen(t)
	if at := offset(); at.Offset != size {
		t.Errorf("after a restart the offset is %d, want %d", at.Offset, size)
	}
	numbers := a.inbox.Last()
	a.reads(t, caught)
	if a.inbox.Last() != numbers {
		t.Error("something was kept although nothing was written")
	}
	second := strings.ReplaceAll(auditLine, `"1"`, `"2"`)
	add(t, a.spec.File.Path, read+second)
	if err := os.Rename(a.spec.File.Path, strings.TrimSuffix(a.spec.File.Path, ".log")+"-2026-11-26T02-19-22.123.log"); err != nil {
		t.Fatal(err)
	}
	add(t, a.spec.File.Path, read+strings.ReplaceAll(auditLine, `"1"`, `"3"`))
	a.reopen(t)
	a.reads(t, caught)
	var ids []string
	for _, r := range a.readable(t) {
		ids = append(ids, r.ID)
	}
	if strings.Join(ids, " ") != "1 2 3" || a.gaps.Load() > 0 {
		t.Errorf("the inbox has %q and %d gaps, want each record once", ids, a.gaps.Load())
	}
}

// add adds lines to a file.
func add(t *testing.T, path, lines string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(lines)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// While records are left out, their offsets do not fill the inbox.
func TestOffsetsAloneAreRare(t *testing.T) {
	a := newInputs(t, nil)
	i, _, _ := newIntake[int](t.Context(), a, fromTopic)
	for offset := range 1000 {
		i.keep(t.Context(), nil, offset)
	}
	if n := a.inbox.Last(); n > 10 { // one, unless this takes long
		t.Errorf("%d offsets are kept", n)
	}
	i.flush(0)
	if at := string(a.inbox.Offset(fromTopic)); at != "999" {
		t.Errorf("the offset is %s at the end", at)
	}
}

// An inbox of an earlier version is refused, also one without records. The command that the error names empties it.
func TestFormerInboxIsRefused(t *testing.T) {
	for _, name := range []string{"file-position.json", "topic-position.json", "sent-position.json"} {
		dir := filepath.Join(t.TempDir(), "it's a directory")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		o := Options{Spec: &Spec{Path: dir}, Log: zap.NewNop()}
		_, err := Open(o, inbox.Options{})
		if !errors.Is(err, inbox.ErrFormer) {
			t.Fatalf("with %s, Open returns %v", name, err)
		}
		_, command, _ := strings.Cut(err.Error(), "`")
		command, _, _ = strings.Cut(command, "`")
		if text, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, text)
		}
		in, err := Open(o, inbox.Options{})
		if err != nil {
			t.Fatalf("after %s: %v", command, err)
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	}
}

// An inbox keeps its identity, also without a record: otherwise each start would be taken for a loss of its records.
func TestInboxKeepsItsIdentity(t *testing.T) {
	o := Options{Spec: &Spec{Path: t.TempDir()}, Log: zap.NewNop()}
	id := ""
	for range 3 {
		in, err := Open(o, inbox.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if in.id == "" || id != "" && in.id != id {
			t.Errorf("the identity is %q, want %q", in.id, id)
		}
		id = in.id
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A floor says how far the API server had come after a number of records was known. An answer that was asked for before is not one: another change, by
// a request with a later number, may have come in between. Each resource has floors of its own: its etcd may be another one, with other resourceVersions.
func TestFloorsAreAskedForBehindTheirRecords(t *testing.T) {
	var version atomic.Int64
	version.Store(100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		at := version.Add(1)
		if strings.HasSuffix(r.URL.Path, "/events") {
			at += 5_000_000
		}
		fmt.Fprintf(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"%d"}}`, at)
	}))
	defer server.Close()
	client, err := source.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	of := func(resource string) (attribute.Resource, source.Target) {
		return attribute.Resource{Storage: "core", Resource: join.Resource{Resource: resource}},
			source.Target{Collection: event.Collection{Resource: resource}, Resource: source.Resource{Version: "v1", Name: resource}}
	}
	maps, targetOfMaps := of("configmaps")
	events, targetOfEvents := of("events")
	a := newInputs(t, nil)
	a.spec.Join.MaxOpen = time.Millisecond
	a.client, a.targets = client, func() map[attribute.Resource]source.Target {
		return map[attribute.Resource]source.Target{maps: targetOfMaps, events: targetOfEvents}
	}
	begun := time.Now()                                                  // of the read that reaches the end of the file
	early, err := client.Version(t.Context(), targetOfMaps, time.Time{}) // the answer for another one
	if err != nil || early != "101" {
		t.Fatal(early, err)
	}
	if err := a.Append([]audit.Record{{ID: "1"}}); err != nil {
		t.Fatal(err)
	}
	a.hasRead(fromFile, begun)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.findFloors(ctx)
	}()
	floorOf := func(r attribute.Resource) floor {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.floors[r]
	}
	await(t, "there are no floors", func() bool { return floorOf(maps).version != "" && floorOf(events).version != "" })
	cancel()
	<-ended
	if f := floorOf(maps); f.number != 1 || f.version == early || event.Newer(f.version, "1000000") {
		t.Errorf("the floor of number %d is %s, which was known before, or is of other resourceVersions", f.number, f.version)
	}
	if f := floorOf(events); f.number != 1 || !event.Newer(f.version, "1000000") {
		t.Errorf("the floor of events of number %d is %s, which is of other resourceVersions", f.number, f.version)
	}
}
