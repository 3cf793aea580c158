package encode

import (
	"crypto/hmac"
	"crypto/sha256"
	"hash"

	"github.com/minio/highwayhash"

	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// digests makes the digests of bodies. A body with the same digest as the published body is not published again, so users that write
// objects must not be able to make two bodies with one digest. All digests are therefore keyed with the key of the checkpoint, which
// these users do not know.
type digests struct {
	plain *digester
	// sealed makes the digests of objects with redacted values. These digests must not reveal the values: readers of the checkpoint, which
	// may be on a bus, could otherwise try values until a digest matches. nil: there is no hash key, which it also needs.
	sealed *digester
}

func newDigests(key, hashKey []byte) digests {
	d := digests{plain: &digester{body: bodyHash(key)}}
	if len(hashKey) > 0 {
		// There is one key per purpose. HighwayHash is fast; HMAC keeps the input secret.
		d.sealed = &digester{
			body: bodyHash(hmacOf(hashKey, "kubebridge digest\n", string(key))),
			seal: hmac.New(sha256.New, hmacOf(hashKey, "kubebridge digest seal\n", string(key))),
		}
	}
	return d
}

// bodyHash returns HighwayHash-128. key has 32 bytes.
func bodyHash(key []byte) hash.Hash {
	h, err := highwayhash.New128(key)
	if err != nil {
		panic(err) // the key has another length
	}
	return h
}

func hmacOf(key []byte, parts ...string) []byte {
	mac := hmac.New(sha256.New, key)
	for _, part := range parts {
		mac.Write([]byte(part))
	}
	return mac.Sum(nil)
}

// digester makes digests. A nil digester makes empty digests.
type digester struct {
	body, seal hash.Hash // seal may be nil
	buffer     [sha256.Size]byte
}

// digest returns the digest of an object.
func (d *digester) digest(o *source.Object) (sum reconcile.Digest) {
	if d == nil {
		return sum
	}
	d.body.Reset()
	o.Hash(d.body)
	return d.sum()
}

// significant returns a digest of the fields of an object that the ignore rules do not cover, and of these rules.
func (d *digester) significant(o *source.Object, r *rules) (sum reconcile.Digest) {
	if d == nil {
		return sum
	}
	d.body.Reset()
	d.body.Write(r.ignored)
	if err := r.ignore.Hash(d.body, o.Raw); err != nil {
		return sum
	}
	return d.sum()
}

func (d *digester) sum() (sum reconcile.Digest) {
	out := d.body.Sum(d.buffer[:0])
	if d.seal != nil {
		d.seal.Reset()
		d.seal.Write(out)
		out = d.seal.Sum(d.buffer[:0])
	}
	copy(sum[:], out)
	return sum
}
