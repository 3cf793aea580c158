package encode

import (
	"crypto/hmac"
	"crypto/sha256"
	"hash"

	"github.com/minio/highwayhash"

	"github.com/kubebridge/kubebridge/internal/reconcile"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// digests make the digests of bodies. What has the digest of what consumers have is not published again, so users that write
// objects must not be able to give two bodies one digest. All digests are therefore keyed with the key of the checkpoint, which
// these users do not know.
type digests struct {
	plain *digester
	// sealed is for objects with redacted values, whose digests must not reveal these: readers of the checkpoint, which may be on a
	// bus, could try values until one fits. It also needs the hash key; nil: there is none.
	sealed *digester
}

func newDigests(key, hashKey []byte) digests {
	d := digests{plain: &digester{body: bodyHash(key)}}
	if len(hashKey) > 0 {
		// Another key for each purpose. HighwayHash is made to be fast, HMAC to keep the input secret.
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

// digester makes digests. A nil one makes none.
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

// significant returns a digest of what the ignore rules leave of an object, and of these rules.
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
