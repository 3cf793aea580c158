package reconcile

import "github.com/kubebridge/kubebridge/pkg/event"

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
