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

// Tokens that are not keys of the checkpoint. No key is escaped to one of them.
const (
	headToken = "=head"
	redoToken = "=redo-" // followed by a number
	longToken = "=long-" // followed by the digest of a key that is too long for a token
)

const (
	// longestToken keeps subjects below the limit of servers, which is about 1000 bytes.
	longestToken = 512
	headerKey    = "Kubebridge-Key" // has the key if the token is a longToken

	headerPass   = "Kubebridge-Pass" // the number of the cleaning pass: see store_clean.go
	headerWriter = "Kubebridge-Writer"

	headerOperation = "KV-Operation" // the header that NATS tools use for deletions
	operationDelete = "DEL"
)

// BucketName returns the name of a pipeline's bucket, which has the names of bridge and sink and the cluster's UID.
func BucketName(id event.Identity) string {
	before, after := aroundUID(id)
	return before + bucketToken(id.ClusterUID) + after
}

// aroundUID returns the parts of a bucket's name before and after the cluster's UID.
func aroundUID(id event.Identity) (before, after string) {
	return "kubebridge_" + bucketToken(id.Bridge) + "_", "_" + bucketToken(id.Sink)
}

func bucketToken(s string) string {
	return strings.ReplaceAll(event.EscapeToken(s), "=", "-") // names of buckets must not contain =
}

// token returns the token of a key. long is true if the key cannot be derived
// from the token.
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

// put returns the message that sets a key, or deletes it if value is nil.
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

// remove turns a message into a tombstone: see store_clean.go.
func remove(m *nats.Msg) { m.Header[headerOperation] = []string{operationDelete} }

// passOf returns the cleaning pass of a message. A message without one was not written by a bridge, and is never dead.
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
	// Redo is the number of messages of a packed write that is not complete.
	Redo int `json:"redo,omitzero"`
	// Pass is the cleaning pass of the last write. Messages with a pass lower than Valid are dead: see store_clean.go.
	Pass  uint64 `json:"pass,omitzero"`
	Valid uint64 `json:"valid,omitzero"`
}

func (h head) encode() []byte {
	b, _ := json.Marshal(h) // cannot fail: a string and numbers
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

// packed is one change in a redo. A null value deletes the key.
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
