package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// shortened returns a long name as events have it.
func shortened(name string) string {
	if len(name) <= 2048 {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.ToValidUTF8(name[:1024], "") + "%" + hex.EncodeToString(sum[:])
}

// The API server limits the names of Roles only by the size of an object. Events of such Roles are published on every bus, also those that
// a start derives from a list, and other objects are not affected.
func TestLongNames(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ bus, oversize string }{{busNATS, "truncate"}, {busNATS, "dead-letter"}, {busKafka, "truncate"}} {
		t.Run(x.bus+" "+x.oversize, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{bus: x.bus, types: []kube.Type{roles}})
			w.config.Sinks[0].Oversize = x.oversize
			w.start()
			names := []string{strings.Repeat("n", 1_100), strings.Repeat("N", 180_000), strings.Repeat("é:", 100_000)}
			var uids []string
			for _, name := range names {
				o, err := w.kube.Create(w.soon(), roles, name, kube.Fields{"rules": []any{}})
				w.must(err)
				uids = append(uids, string(o.GetUID()))
				m := about(w.published(string(o.GetUID()), o.GetResourceVersion()), string(o.GetUID()))[0]
				if got := m.Attributes["name"]; got != shortened(name) {
					t.Errorf("the attribute name of one of %d bytes has %d: %.80q", len(name), len(got), got)
				}
				if m.Attributes["deadletterreason"] != "" || m.Data.Truncated != nil {
					t.Errorf("the event of a name of %d bytes is a dead letter: %q, truncated: %+v", len(name), m.Attributes["deadletterreason"], m.Data.Truncated)
				}
				if got, _ := m.Body()["metadata"].(map[string]any)["name"].(string); got != name {
					t.Errorf("the object's name has %d bytes, want %d", len(got), len(name))
				}
			}
			w.create(roles, "ordinary")
			w.settle(roles)

			w.bridge.Kill()
			w.must(w.kube.DeleteAll(w.soon(), roles, ""))
			w.start()
			for _, uid := range uids {
				w.deletionPublished(uid)
			}
			w.settle(roles)
		})
	}
}

// nested returns nested lists.
func nested(levels int) any {
	v := any([]any{})
	for range levels - 1 {
		v = []any{v}
	}
	return v
}

// createDeepest creates the most deeply nested widget that the API server accepts.
func (w *world) createDeepest(name string) (uid, rv string, levels int) {
	w.t.Helper()
	var err error
	for levels = 10_000; levels > 9_900; levels-- {
		o, createErr := w.kube.Create(w.soon(), w.widgets, name, kube.Fields{"spec": nested(levels - 1)})
		if createErr == nil {
			return string(o.GetUID()), o.GetResourceVersion(), levels
		}
		err = createErr
	}
	w.must(err)
	return "", "", 0
}

// An object that is nested too deeply for consumers is published without its body. Other objects are not affected, neither in
// watches nor in lists, and the bus can be read.
func TestDeepObjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	w.install()
	w.bridges(w.widgets)
	w.start()
	deepest, rv, levels := w.createDeepest("deepest")
	t.Logf("the API server takes %d levels", levels)
	o, err := w.kube.Create(w.soon(), w.widgets, "ordinary", kube.Fields{"spec": nested(400)})
	w.must(err)
	m := about(w.published(deepest, rv), deepest)[0]
	if x := m.Data.Truncated; x == nil || x.Levels != 500 || x.Size < 2*levels || m.Body()["metadata"] == nil || m.Body()["spec"] != nil {
		t.Errorf("the deepest object is published as %.300s", m.Raw)
	}
	if m := about(w.published(string(o.GetUID()), o.GetResourceVersion()), string(o.GetUID()))[0]; m.Data.Truncated != nil || m.Body()["spec"] == nil {
		t.Errorf("an object of 401 levels is published as %.300s", m.Raw)
	}
	w.published(w.patch(w.widgets, "deepest", "changed"))
	w.bridge.Kill()
	_, rv = w.patch(w.widgets, "deepest", "changed again")
	w.start() // with a list
	w.published(deepest, rv)
	w.settle(w.widgets)
	config := w.writeConfig(w.config)
	if out := w.prints("history", w.widgets.ResourceID(), w.ns+"/deepest", "-c", config); !strings.Contains(out, "nested in more than 500 levels") {
		t.Errorf("bridge history prints\n%s", out)
	}
	if out := w.prints("state", "--at", rv, "-n", w.ns, w.widgets.ResourceID(), "-c", config); !strings.Contains(out, "deepest") || !strings.Contains(out, "ordinary") {
		t.Errorf("bridge state prints\n%s", out)
	}
	w.delete(w.widgets, "deepest") // a list of it is nested too deeply for client-go
	w.deletionPublished(deepest)
	w.settle(w.widgets)
}
