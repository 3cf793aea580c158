package event_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// resourceVersions are compared as in k8s.io/apimachinery. The package does not import it, so that consumers do not
// depend on it.
func TestVersions(t *testing.T) {
	versions := []string{"", "0", "00", "1", "9", "10", "99", "100", "18446744073709551616", "-1", "1a", "a", "٣"}
	for _, a := range versions {
		for _, b := range versions {
			newer, older := a != b, false
			if n, err := resourceversion.CompareResourceVersion(a, b); err == nil {
				newer, older = n > 0, n < 0
			}
			if got := event.Newer(a, b); got != newer {
				t.Errorf("Newer(%q, %q) is %t", a, b, got)
			}
			if got := event.Older(a, b); got != older {
				t.Errorf("Older(%q, %q) is %t", a, b, got)
			}
		}
	}
}
