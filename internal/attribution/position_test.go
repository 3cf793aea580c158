package attribution

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
		all = append(all, item.Record)
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

// A position that cannot be decoded must not keep the bridge from starting. It counts as unknown: one loss is noted, and the input is read.
func TestBrokenPositions(t *testing.T) {
	for _, text := range []string{"", "\x00\x00\x00\x00", `{"device":1,"ino`, `"text"`, `{"device":1,"offset":"x","topicID":5}`} {
		a := newInputs(t, []byte(auditLine))
		position := filepath.Join(a.spec.Path, "file-position.json")
		if err := os.WriteFile(position, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		follow := func(until func() bool) {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- a.follow(ctx) }()
			await(t, "the audit log is not read", until)
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("position %q: %v", text, err)
			}
		}
		follow(func() bool { return a.inbox.Last() >= 2 && a.Status().Records > 0 })
		all := a.readable(t)
		if len(all) != 2 || all[0].Lost == nil || !strings.Contains(all[0].Lost.Detail, "position") || all[1].Actor.User.Name != "alice" {
			t.Errorf("position %q: the inbox has %+v, want a loss and the record", text, all)
		}
		var at struct{ Offset int64 }
		if err := readJSON(position, &at); err != nil || at.Offset != int64(len(auditLine)) {
			t.Errorf("position %q: then %+v is stored, %v", text, at, err)
		}

		position = filepath.Join(a.spec.Path, "topic-position.json")
		if err := os.WriteFile(position, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the loss is noted once
			from, ok := readPosition[topic.Position](t.Context(), a, position, fromTopic)
			if !ok || from.TopicID != "" || from.Next != nil {
				t.Errorf("position %q: the topic is read from %+v, %v", text, from, ok)
			}
		}
		if all := a.readable(t); len(all) != 3 || all[2].Lost == nil || all[2].Input != fromTopic {
			t.Errorf("position %q: the inbox has %+v, want one more loss", text, all)
		}
	}
}

// An identity that cannot be decoded must not keep the bridge from starting. The inbox gets another one, which stays.
func TestBrokenIdentity(t *testing.T) {
	for _, text := range []string{"", "\x00\x00\x00\x00", `"ABC`, `{}`, `""`} {
		a := newInputs(t, nil)
		if err := os.WriteFile(filepath.Join(a.spec.Path, "inbox-id.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := a.identify(); err != nil || a.id == "" {
			t.Errorf("identity %q: it becomes %q, %v", text, a.id, err)
			continue
		}
		id := a.id
		a.id = ""
		if err := a.identify(); err != nil || a.id != id {
			t.Errorf("identity %q: after a restart it is %q, %v, want %q", text, a.id, err, id)
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
