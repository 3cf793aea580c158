package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// eventBus records the events about objects: type, uid, and the version of the body if it is known.
type eventBus struct {
	nowhere
	mu    sync.Mutex
	lines []string
}

// Write implements [sink.Sink].
func (b *eventBus) Write(_ context.Context, batch *event.Batch) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range batch.Records {
		if e := batch.Records[i].Event; !e.Type.OfCollection() {
			line := e.Type.String() + " " + e.UID
			var value struct {
				Data struct {
					Object    json.RawMessage `json:"object"`
					BodyKnown *bool           `json:"bodyknown"`
				} `json:"data"`
			}
			err := json.Unmarshal(batch.Records[i].Value, &value)
			o, parsed := source.ParseObject(value.Data.Object)
			switch {
			case err != nil || parsed != nil || bytes.Contains(value.Data.Object, []byte("secret")):
				line = "not as expected: " + string(batch.Records[i].Value)
			case value.Data.BodyKnown == nil:
				line += " " + o.ResourceVersion
			}
			b.lines = append(b.lines, line)
		}
	}
	return nil, nil
}

// TestListedUnderANameThatAnotherObjectHad: a deletion that only a list proves must have the last body that the API
// server still has, and come before the first event of the later object, however the list goes on. Memory is released
// exactly once.
func TestListedUnderANameThatAnotherObjectHad(t *testing.T) {
	const key, large = "a/web", 5 << 20 // larger than what may wait
	var (
		ctx      context.Context
		h        *loop.Handler
		released int
		mu       sync.Mutex // guards released
	)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	web := func(uid, version string) *source.Object {
		o, err := source.ParseObject(fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"a","name":"web","uid":%q,"resourceVersion":%q},"data":{"x":"secret"}}`, uid, version))
		must(err)
		return &o
	}
	release := func() {
		mu.Lock()
		defer mu.Unlock()
		released++
	}
	begun := func() {
		must(h.ListBegun(ctx, &reconcile.Input{Kind: reconcile.ListBegun, Reason: event.ReasonExpired}, ""))
	}
	listed := func(uid, version string, size int) {
		o := web(uid, version)
		s := &reconcile.Sighting{Origin: reconcile.List, Key: key, UID: uid, Version: version, APIVersion: "v1", Kind: "ConfigMap", Body: o}
		must(h.Listed(ctx, &reconcile.Input{Kind: reconcile.Sighted, Sighting: s}, size, func() {}, release))
	}
	former := func(uid, version string) { must(h.Former(ctx, key, web(uid, version), 100, release)) }
	ended := func(version string) {
		for _, in := range listEnd(version) {
			must(h.Input(ctx, in, 0, nil))
		}
	}
	waits := func(want bool) {
		t.Helper()
		replaced, err := h.Replaced(ctx)
		must(err)
		if slices.ContainsFunc(replaced, func(a reconcile.Absentee) bool {
			return a.Key == key && len(a.Objects) == 1 && a.Objects[0].UID == "u1"
		}) != want {
			t.Errorf("objects that wait: %v", replaced)
		}
	}
	for _, x := range []struct {
		what string
		list func()
		want []string
		free int // how often memory is released
	}{
		{"its body is known", func() { listed("u2", "11", 9); waits(true); former("u1", "7"); waits(false); ended("20") }, []string{"deleted u1 7", "added u2 11"}, 2},
		{"its body is not known", func() { listed("u2", "11", 9); ended("20") }, []string{"deleted u1", "added u2 11"}, 1},
		{"the body is of yet another object", func() { listed("u2", "11", 9); former("u0", "4"); ended("20") }, []string{"deleted u1", "added u2 11"}, 2},
		{"a body that nothing waits for", func() { former("u1", "7"); listed("u1", "5", 9); ended("20") }, nil, 2},
		{"the list broke off, and the object is another one", func() {
			listed("u2", "11", 9)
			begun()
			listed("u3", "12", 9)
			former("u1", "7")
			ended("20")
		}, []string{"deleted u1 7", "added u3 12"}, 3},
		{"the list broke off, and there is none", func() { listed("u2", "11", 9); begun(); waits(false); ended("20") }, nil, 1},
		{"it changes while the list is streamed", func() { listed("u2", "11", 9); listed("u2", "12", 9); waits(false); ended("20") }, []string{"deleted u1", "added u2 11", "modified u2 12"}, 2},
		{"no memory to wait", func() { listed("u2", "11", large); waits(false); ended("20") }, []string{"deleted u1", "added u2 11"}, 1},
		{"memory is given back", func() {
			for range 3 {
				listed("u2", "11", large/2)
				waits(true)
				begun()
			}
			ended("20")
		}, nil, 3},
	} {
		t.Run(x.what, func(t *testing.T) {
			store, err := file.OpenMem(identity)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			bus := &eventBus{}
			masked := encode.Settings{Redact: []shape.Rule{{Paths: []string{"data.*"}, With: shape.WithMask}}}
			r := newRig(t, bus, store, CollectionOptions{Settings: masked})
			r.reader.do <- func(c context.Context, handler *loop.Handler) error {
				ctx, h = c, handler
				begun()
				listed("u1", "5", 9)
				ended("10")
				_, err := h.Replaced(ctx) // all inputs are handled
				return err
			}
			done := make(chan struct{})
			r.reader.do <- func(context.Context, *loop.Handler) error {
				defer close(done)
				mu.Lock()
				released = 0
				mu.Unlock()
				begun()
				x.list()
				_, err := h.Replaced(ctx)
				return err
			}
			<-done
			r.stop()
			if got := bus.lines[1:]; !slices.Equal(got, x.want) && len(got)+len(x.want) > 0 {
				t.Errorf("%q, want %q", got, x.want)
			}
			if released != x.free {
				t.Errorf("memory is released %d times, want %d", released, x.free)
			}
		})
	}
}
