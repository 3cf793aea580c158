package durable

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/kubebridge/kubebridge/internal/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// The first bytes of keys.
const (
	prefixRecord   = "c/"
	prefixPosition = "p/"
	prefixObject   = "o/"
	prefixDraft    = "d/"
	prefixIntent   = "i/"
	prefixEpoch    = "s/"
	prefixOwed     = "n/owed/"
)

const (
	digestsKey = "n/digests"
	// keyBytes is the length of the key of digests.
	keyBytes = 32
)

// OwedEditKey is the key of a note: consumers have not been sent the last edit of a collection yet.
func OwedEditKey(collection string) []byte { return []byte(prefixOwed + "edit/" + collection) }

// OwedPlanKey is the key of a note: the plan has changed the collections of a resource, and consumers
// have not been sent its number yet.
func OwedPlanKey(resource string) []byte { return []byte(prefixOwed + "plan/" + resource) }

// IsOwed reports whether a key is that of such a note.
func IsOwed(key []byte) bool { return bytes.HasPrefix(key, []byte(prefixOwed)) }

// Owed returns the keys of all such notes in a store.
func Owed(store checkpoint.Store) (keys []string, err error) {
	err = store.Scan([]byte(prefixOwed), func(key, _ []byte) error {
		keys = append(keys, string(key))
		return nil
	})
	return keys, err
}

// ObjectKey is the inventory key of an object within its collection: namespace and name as events have them.
// namespace is "" for a cluster-scoped object.
func ObjectKey(namespace, name string) string {
	return event.BoundName(namespace) + "/" + event.BoundName(name)
}

// parseObjectKey reads the key of an inventory entry.
func parseObjectKey(key []byte) (reconcile.Slot, error) {
	collection, object, found := strings.Cut(strings.TrimPrefix(string(key), prefixObject), "/")
	if !found || strings.Count(object, "/") != 1 {
		return reconcile.Slot{}, fmt.Errorf("%w: inventory key %q", checkpoint.ErrCorrupt, key)
	}
	return reconcile.Slot{Collection: collection, Key: object}, nil
}

// parseIntentKey reads the key of an intent.
func parseIntentKey(key []byte) (s reconcile.Slot, uid string, err error) {
	part := strings.SplitN(strings.TrimPrefix(string(key), prefixIntent), "/", 4)
	if len(part) != 4 {
		return s, "", fmt.Errorf("%w: intent key %q", checkpoint.ErrCorrupt, key)
	}
	return reconcile.Slot{Collection: part[0], Key: part[1] + "/" + part[2]}, part[3], nil
}
