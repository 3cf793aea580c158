package source

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// A cluster in which namespaces come and go does not cost memory for each namespace that there ever was.
func TestProbesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := inMemory(t, http.HandlerFunc(pageOf("10", "")))
		probe := func(namespace string) {
			if rv, err := client.Version(t.Context(), configMaps(event.Collection{Namespace: namespace}), time.Now().Add(-probeFresh)); rv != "10" || err != nil {
				t.Fatalf("%s, %v", rv, err)
			}
		}
		most := 0
		for i := range 1000 {
			probe(fmt.Sprint("short-", i))
			most = max(most, len(client.probes.last))
			time.Sleep(time.Second)
		}
		if bound := int(2 * probeKept / time.Second); most > bound {
			t.Errorf("%d probes are kept, want at most %d", most, bound)
		}
	})
}
