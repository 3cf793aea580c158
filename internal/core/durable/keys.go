package durable

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/kubebridge/kubebridge/internal/core/reconcile"
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
	prefixNote     = "n/"
	prefixOwed     = prefixNote + "owed/"
	prefixBody     = "b/"
	prefixEntry    = "r/" // of a chronicle: its events that are about no change
)

const (
	digestsKey = prefixNote + "digests"
	// keyBytes is the length of the key of digests.
	keyBytes = 32
)

// BodyKey returns the key of the kept body of an object. key is the inventory key.
func BodyKey(collection, key string) []byte { return []byte(prefixBody + collection + "/" + key) }

// IsBody reports whether a key is one of [BodyKey].
func IsBody(key []byte) bool { return bytes.HasPrefix(key, []byte(prefixBody)) }

// OwedEditKey returns the key of a note that the last edit of a collection is still to be published.
func OwedEditKey(collection string) []byte { return []byte(prefixOwed + "edit/" + collection) }

// OwedPlanKey returns the key of a note that the plan has changed the collections of a resource, and its number
// is still to be published.
func OwedPlanKey(resource string) []byte { return []byte(prefixOwed + "plan/" + resource) }

// IsOwed reports whether a key is one of [OwedEditKey] or [OwedPlanKey].
func IsOwed(key []byte) bool { return bytes.HasPrefix(key, []byte(prefixOwed)) }

// Owed returns all keys of [OwedEditKey] and [OwedPlanKey] in a store.
func Owed(store checkpoint.Store) (keys []string, err error) {
	err = store.Scan([]byte(prefixOwed), func(key, _ []byte) error {
		keys = append(keys, string(key))
		return nil
	})
	return keys, err
}

// ObjectKey returns the inventory key of an object within its collection: namespace and name as events have them.
// namespace is "" for a cluster-scoped object.
func ObjectKey(namespace, name string) string {
	return event.BoundName(namespace) + "/" + event.BoundName(name)
}

func parseObjectKey(key []byte) (reconcile.Slot, error) {
	collection, object, found := strings.Cut(strings.TrimPrefix(string(key), prefixObject), "/")
	if !found || strings.Count(object, "/") != 1 {
		return reconcile.Slot{}, fmt.Errorf("%w: inventory key %q", checkpoint.ErrCorrupt, key)
	}
	return reconcile.Slot{Collection: collection, Key: object}, nil
}

func parseIntentKey(key []byte) (s reconcile.Slot, uid string, err error) {
	part := strings.SplitN(strings.TrimPrefix(string(key), prefixIntent), "/", 4)
	if len(part) != 4 {
		return s, "", fmt.Errorf("%w: intent key %q", checkpoint.ErrCorrupt, key)
	}
	return reconcile.Slot{Collection: part[0], Key: part[1] + "/" + part[2]}, part[3], nil
}
