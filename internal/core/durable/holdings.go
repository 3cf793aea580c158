package durable

import (
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
)

// Holdings has the numbers of a collection's inventory entries, by what consumers know of the objects.
type Holdings struct {
	Published   int `json:"published"`   // consumers have the object, possibly an older state
	Unpublished int `json:"unpublished"` // consumers do not have the object: a filter leaves it out, or it was a dead letter
	Skipped     int `json:"skipped"`     // consumers do not have the object: the first list was not published
	Void        int `json:"void"`        // entries of an earlier incarnation, which are not used
}

// Hold counts the inventory entries of a collection. r is its record in the store.
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
