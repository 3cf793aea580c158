package history_test

import (
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// A name that the user gives is shortened as in events.
func TestLongName(t *testing.T) {
	long := strings.Repeat("n", 180_000)
	if got, want := history.ParseName("shop/"+long), (history.Name{Namespace: "shop", Name: event.BoundName(long)}); got != want || got != history.NameOf("shop", long) {
		t.Errorf("it reads %.80q, want %.80q", got, want)
	}
}
