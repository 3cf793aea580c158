package durable

import (
	"github.com/kubebridge/kubebridge/internal/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
)

// Holdings is how many inventory entries a collection has, by what consumers know of the objects.
type Holdings struct {
	Published   int `json:"published"`   // consumers have the object; it may be out of date there
	Unpublished int `json:"unpublished"` // consumers do not have it: a filter leaves it out, or it was a dead letter
	Skipped     int `json:"skipped"`     // consumers do not have it: the first list was not published
	Void        int `json:"void"`        // of an earlier incarnation: they do not count
}

// Hold returns the holdings of a collection, whose record in the store is r.
func Hold(store checkpoint.Store, collection string, r reconcile.Record) (h Holdings, err error) {
	var like reconcile.Object
	err = store.Scan([]byte(prefixObject+collection+"/"), func(_, value []byte) error {
		o, _, err := decodeObject(value, &like)
		if err != nil {
			return giveUp(err)
		}
		like = o
		switch {
		case o.Judged < r.Incarnation:
			h.Void++
		case o.Status == reconcile.Unpublished:
			h.Unpublished++
		case o.Status == reconcile.Skipped:
			h.Skipped++
		default:
			h.Published++
		}
		return nil
	})
	return h, err
}
