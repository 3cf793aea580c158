package nexthistory

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/kubebridge/kubebridge/internal/history"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// position is a resourceVersion in one of the cluster's histories. The zero value is before all.
type position struct{ epoch, version uint64 }

func (p position) compare(q position) int {
	return cmp.Or(cmp.Compare(p.epoch, q.epoch), cmp.Compare(p.version, q.version))
}

// point is the one that is asked for.
type point struct{ history.Point }

func (p point) isTime() bool { return p.RV == 0 }

// position is that of a resourceVersion. Without an epoch it is of the first.
func (p point) position() position { return position{max(p.Epoch, 1), p.RV} }

// holds reports whether an event had happened by then, as far as the event alone says. A gap begins
// behind the resourceVersion that it has.
func (p point) holds(h *head) (bool, error) {
	if p.isTime() {
		return !h.time.After(p.Time), nil
	}
	at := h.at()
	if h.epoch != p.position().epoch || at == "" {
		return h.epoch <= p.position().epoch, nil
	}
	n, err := strconv.ParseUint(at, 10, 64)
	if err != nil {
		return false, fmt.Errorf("resourceVersion %q of %s cannot be compared: ask for a time", at, h.text[collection])
	}
	if h.typ == event.Gap {
		return n < p.RV, nil
	}
	return n <= p.RV, nil
}

// position is where an event stands; ok if that is known.
func (h *head) position() (p position, ok bool) {
	n, err := strconv.ParseUint(h.at(), 10, 64)
	return position{h.epoch, n}, err == nil
}
