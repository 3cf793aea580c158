package feed

import (
	"testing"

	"github.com/kubebridge/kubebridge/pkg/source"
)

// A restart knows what the objects of the last complete list lived and died with: otherwise it would not
// notice that their definition was deleted and made again.
func TestOwnerText(t *testing.T) {
	for _, o := range []source.Owner{{}, {CRD: "a"}, {Namespace: "b"}, {CRD: "a", Namespace: "b"}} {
		if got := parseOwner(ownerText(o)); got != o {
			t.Errorf("%+v is read as %+v", o, got)
		}
	}
}
