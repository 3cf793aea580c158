package feed

import (
	"sync"

	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// sighted is an input about a seen object, with its memory.
type sighted struct {
	reconcile.Input
	sighting reconcile.Sighting
	object   *source.Object
	// release frees the object and the memory of the input. The loop calls it.
	release func()
}

// newSighted returns the input of an object. It reuses released memory if there is any.
func (r *Reader) newSighted(o *source.Object, origin reconcile.Origin) *sighted {
	s, _ := r.released.Get().(*sighted)
	if s == nil {
		s = &sighted{}
		s.release = func() { s.free(&r.released) }
	}
	s.object = o
	s.sighting = reconcile.Sighting{
		Origin: origin, Key: durable.ObjectKey(o.Namespace, o.Name), UID: o.UID, Version: o.ResourceVersion,
		APIVersion: o.APIVersion, Kind: o.Kind, Body: o,
	}
	s.Input = reconcile.Input{Kind: reconcile.Sighted, Sighting: &s.sighting}
	return s
}

func (s *sighted) free(to *sync.Pool) {
	s.object.Release()
	s.Input, s.sighting, s.object = reconcile.Input{}, reconcile.Sighting{}, nil // they would keep other memory alive
	to.Put(s)
}
