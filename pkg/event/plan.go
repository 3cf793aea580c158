package event

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
)

// PlanDigest returns the digest of a resource's collections: the first 16 hexadecimal digits of the
// SHA-256 of one line for each collection, in the order of the IDs. A line consists of the ID, a
// space, the decimal number of the plan that last edited the collection, and a newline.
func PlanDigest(edits map[string]uint64) string {
	h := sha256.New()
	for _, id := range slices.Sorted(maps.Keys(edits)) {
		fmt.Fprintf(h, "%s %d\n", id, edits[id])
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}
