package feed

import (
	"testing"

	"github.com/kubebridge/kubebridge/pkg/source"
)

// A restart must still have the owner of the objects in the last complete list: their definition or namespace.
// Otherwise it would not notice that the definition was deleted and created again.
func TestOwnerText(t *testing.T) {
	for _, o := range []source.Owner{{}, {CRD: "a"}, {Namespace: "b"}, {CRD: "a", Namespace: "b"}} {
		if got := parseOwner(ownerText(o)); got != o {
			t.Errorf("%+v is read as %+v", o, got)
		}
	}
}
