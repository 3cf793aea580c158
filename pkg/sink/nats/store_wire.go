package nats

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// The keys of the bucket that are not the checkpoint's. Escaping makes none of them.
const (
	headToken = "=head"
	redoToken = "=redo-" // and a number
	longToken = "=long-" // and the digest of a key that is too long to be a token
)

const (
	// longestToken leaves room in a subject, of which servers take some 1000 bytes.
	longestToken = 512
	headerKey    = "Kubebridge-Key" // the key itself, beside a longToken

	headerPass   = "Kubebridge-Pass" // see clean
	headerWriter = "Kubebridge-Writer"

	headerOperation = "KV-Operation" // as NATS tools know it
	operationDelete = "DEL"
)

// BucketName is the bucket of a pipeline: named after bridge, cluster UID and sink.
func BucketName(id event.Identity) string {
	before, after := aroundUID(id)
	return before + bucketToken(id.ClusterUID) + after
}

// aroundUID is what a pipeline's bucket is called before and after the cluster's UID.
func aroundUID(id event.Identity) (before, after string) {
	return "kubebridge_" + bucketToken(id.Bridge) + "_", "_" + bucketToken(id.Sink)
}

func bucketToken(s string) string {
	return strings.ReplaceAll(event.EscapeToken(s), "=", "-") // buckets have no =
}

// token makes a key one of the bucket's; long reports that it cannot be read back
// from that.
func token(key string) (t string, long bool) {
	if t = event.EscapeToken(key); len(t) <= longestToken {
		return t, false
	}
	sum := sha256.Sum256([]byte(key))
	return longToken + hex.EncodeToString(sum[:]), true
}

func identityToken() string {
	t, _ := token(string(checkpoint.IdentityKey()))
	return t
}

// keyOf reverses token.
func keyOf(t string, h nats.Header) ([]byte, error) {
	if strings.HasPrefix(t, longToken) {
		key, err := base64.RawStdEncoding.DecodeString(h.Get(headerKey))
		if err != nil || len(key) == 0 {
			return nil, fmt.Errorf("%w: key %q does not say what it stands for", checkpoint.ErrCorrupt, t)
		}
		return key, nil
	}
	key, err := event.UnescapeToken(t)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", checkpoint.ErrCorrupt, err)
	}
	return []byte(key), nil
}

// put makes the message that sets a key, or deletes it when value is nil.
func put(prefix, key string, value []byte) *nats.Msg {
	t, long := token(key)
	m := &nats.Msg{Subject: prefix + t, Data: value, Header: nats.Header{}}
	if long {
		m.Header[headerKey] = []string{base64.RawStdEncoding.EncodeToString([]byte(key))}
	}
	if value == nil {
		remove(m)
	}
	return m
}

// remove makes a tombstone of it: see clean.
func remove(m *nats.Msg) { m.Header[headerOperation] = []string{operationDelete} }

// passOf is the pass that a message bears. One that somebody else wrote bears none, and is of the newest.
func passOf(h nats.Header) uint64 {
	pass, err := strconv.ParseUint(h.Get(headerPass), 10, 64)
	if err != nil {
		return math.MaxUint64
	}
	return pass
}

func redoKey(i int) string { return redoToken + strconv.Itoa(i) }

// head is the last message of every write.
type head struct {
	Version int    `json:"version"`
	Writer  string `json:"writer"`
	// Redo is how many messages hold, packed, a write that is not complete.
	Redo int `json:"redo,omitzero"`
	// Pass is that of the messages of the last write, and messages of one before Valid are dead: see clean.
	Pass  uint64 `json:"pass,omitzero"`
	Valid uint64 `json:"valid,omitzero"`
}

func (h head) encode() []byte {
	b, _ := json.Marshal(h) // a string and numbers: cannot fail
	return b
}

func decodeHead(b []byte) (head, error) {
	var h head
	if err := json.Unmarshal(b, &h); err != nil || h.Version < 1 {
		return head{}, fmt.Errorf("%w: its head %q does not parse", checkpoint.ErrCorrupt, b)
	}
	if err := checkpoint.CheckVersion(h.Version); err != nil {
		return head{}, err
	}
	return h, nil
}

// packed is a change within a redo. A null value deletes the key.
type packed struct {
	Key   []byte `json:"k"`
	Value []byte `json:"v"`
}

func unpack(b []byte) ([]event.KV, error) {
	var all []packed
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("%w: an incomplete write does not parse", checkpoint.ErrCorrupt)
	}
	changes := make([]event.KV, len(all))
	for i, p := range all {
		changes[i] = event.KV(p)
	}
	return changes, nil
}
