package reconcile

import (
	"testing"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// prepared is a [Prepared] of functions; nil: the object passes, and its event is neither minor nor lost.
type prepared struct {
	passes func(event.Type) bool
	minor  func(*Object) bool
	lost   func(*ObjectEvent) bool
}

func (p *prepared) Passes(t event.Type) bool { return p.passes == nil || p.passes(t) }

func (p *prepared) Minor(known *Object) bool { return p.minor != nil && p.minor(known) }

func (p *prepared) Lost(e *ObjectEvent) bool { return p.lost != nil && p.lost(e) }

// preparedOf returns the functions of a sighting.
func preparedOf(s *Sighting) *prepared {
	if s.Prepared == nil {
		s.Prepared = &prepared{}
	}
	return s.Prepared.(*prepared)
}

// TestEventsCarryWhatIsPrepared: the encoder makes an event of what it has prepared of the sighting. Without it, the origin of the event is wrong.
func TestEventsCarryWhatIsPrepared(t *testing.T) {
	b := inStep(t)
	of := &prepared{}
	carries := func(s *Sighting) { s.Prepared = of }
	end := gone(Watch, "a", "12")
	carries(end.Sighting)
	b.do(seen(Watch, "a", "11", carries), end)
	items := b.core.Items()
	if len(items) != 2 {
		t.Fatalf("there are %d events, want that the object is added and deleted", len(items))
	}
	for i := range items {
		if e := items[i].Object; e.Prepared != of {
			t.Errorf("the event %s carries %v", e.Type, e.Prepared)
		}
	}
}
