package bridge

import (
	"fmt"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// A cluster in which namespaces come and go does not cost memory for each collection that there ever was.
func TestRemovedCollectionsAreNotKept(t *testing.T) {
	store, err := file.OpenMem(identity)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	r := newUnplannedRig(t, &nowhere{}, store, nil)
	for i := range 10 {
		c := event.Collection{Resource: "configmaps", Namespace: fmt.Sprint("short-", i)}
		r.setCollection(c, CollectionOptions{})
		if !r.buffer.Allows(c.ID()) {
			t.Error("the collection is not buffered")
		}
		r.hide(c.ID())
		if r.buffer.Allows(c.ID()) {
			t.Error("the buffer knows the collection")
		}
	}
	r.stop()
	if len(r.targets)+len(r.shown)+len(r.unnamed) > 0 {
		t.Errorf("kept: %v, %v, %v", r.targets, r.shown, r.unnamed)
	}
}
