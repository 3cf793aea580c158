package e2e

import (
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// createLargest creates the largest widget that the API server and its etcd (1.5 MiB per request) accept, to within a kilobyte.
func (w *world) createLargest(name string) (uid, rv, blob string) {
	w.t.Helper()
	var err error
	for size := 1_572_864; size > 1<<20; size -= 1000 {
		blob = strings.Repeat("x", size)
		o, createErr := w.kube.Create(w.soon(), w.widgets, name, kube.Fields{"spec": map[string]any{"step": blob}})
		if createErr == nil {
			return string(o.GetUID()), o.GetResourceVersion(), blob
		}
		if err = createErr; !apierrors.IsRequestEntityTooLargeError(err) && !strings.Contains(err.Error(), "too large") {
			break
		}
	}
	w.must(err)
	return "", "", ""
}

func about(all []bus.Message, uid string) []bus.Message {
	return slices.DeleteFunc(slices.Clone(all), func(m bus.Message) bool { return m.UID() != uid })
}

// The largest object that a cluster can have is published completely on Kafka, because the bridge creates topics with a sufficient limit.
// NATS accepts 1 MiB by default: there the metadata is published, with the size and hash of the body.
func TestLargestObject(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{busKafka, busNATS} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{bus: kind})
			w.install()
			w.bridges(w.widgets)
			w.start()
			uid, rv, blob := w.createLargest("largest")
			m := about(w.published(uid, rv), uid)[0]
			switch whole := strings.Contains(string(m.Data.Object), blob); {
			case kind == busKafka && (!whole || m.Data.Truncated != nil):
				t.Errorf("Kafka has %d of %d bytes, truncated %+v", len(m.Data.Object), len(blob), m.Data.Truncated)
			case kind == busNATS && (whole || m.Data.Truncated == nil || m.Data.Truncated.Size < len(blob)):
				t.Errorf("NATS has %d bytes, truncated %+v", len(m.Data.Object), m.Data.Truncated)
			}
			w.delete(w.widgets, "largest")
			w.deletionPublished(uid)
		})
	}
}

// An object that is too large for NATS goes to the dead letters, also after a kill. Its first event on its own subject is that of a
// version that fits.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	w.install()
	w.bridges(w.widgets)
	w.config.Sinks[0].Oversize = "dead-letter"
	w.start()
	uid, rv, _ := w.createLargest("largest")
	never, neverRV, _ := w.createLargest("never")
	w.published(uid, rv)
	w.published(never, neverRV)
	w.bridge.Kill()
	w.start()
	_, err := w.kube.Patch(w.soon(), w.widgets, "largest", `{"spec":{"step":"small"}}`)
	w.must(err)
	w.delete(w.widgets, "never")
	w.onBus("the announcement", func(all []bus.Message) bool { return len(about(all, uid)) > 1 })
	w.delete(w.widgets, "largest")
	w.deletionPublished(uid)
	all := w.settle(w.widgets)

	var types []string
	for _, m := range about(all, uid) {
		types = append(types, m.Type())
		switch dead := strings.HasPrefix(m.Route, "kubebridge."); {
		case dead != (m.Attributes["deadletterreason"] == "oversize"):
			t.Errorf("%s is on %s with reason %q", m.ID(), m.Route, m.Attributes["deadletterreason"])
		case dead && (m.Data.Truncated == nil || m.Attributes["deadletterlimit"] != "1048576" || !strings.HasPrefix(m.Attributes["deadletterroute"], "k8s.")):
			t.Errorf("the dead letter has %v, truncated %+v", m.Attributes, m.Data.Truncated)
		}
	}
	if want := []string{"added", "added", "deleted"}; !slices.Equal(types, want) {
		t.Errorf("of an object that fits later there were published %v, want %v", types, want)
	}
	if of := about(all, never); len(of) != 1 || !strings.HasPrefix(of[0].Route, "kubebridge.") {
		t.Errorf("of an object that never fits there were published %v", of)
	}
}

// With oversize: fail, the collection stops at the object that does not fit, the status names the object, and
// other collections continue.
func TestOversizeFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	w.install()
	w.bridges(w.widgets, kube.ConfigMaps)
	w.config.Sinks[0].Oversize = "fail"
	w.start()
	w.createLargest("largest")
	w.create(w.widgets, "behind")
	w.awaitStatus(func(s bridge.Status) bool {
		c := s.Find(w.collection(w.widgets))
		return c.State == "waiting" && strings.Contains(c.Error, w.ns+"/largest")
	})
	for _, m := range w.settle(kube.ConfigMaps) {
		if !m.OfCollection() && m.Collection() == w.collection(w.widgets) {
			t.Errorf("%s passed", m.ID())
		}
	}
}
