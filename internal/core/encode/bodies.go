package encode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// maxKept bounds a kept body, compressed, in bytes, because a store on a bus cannot have larger values than
// the bus. A larger body is not kept.
const maxKept = 128 << 10

// maxBody bounds an unpacked body, in bytes, so that a damaged checkpoint cannot use more memory.
const maxBody = 64 << 20

// maxRemoved bounds how many bodies that are no longer needed are removed with one batch.
const maxRemoved = 8000

// find returns the keys of up to limit kept bodies of a collection.
func (k *keeper) find(collection string, limit int) (keys [][]byte, err error) {
	enough := errors.New("enough")
	err = k.Store.Scan(durable.BodyKey(collection, ""), func(key, _ []byte) error {
		if len(keys) == limit {
			return enough
		}
		keys = append(keys, bytes.Clone(key))
		return nil
	})
	if err != nil && !errors.Is(err, enough) {
		k.Log.Warn("search for kept bodies failed, retrying with the next batch", zap.String("collection", collection), zap.Error(err))
		return nil, err
	}
	return keys, nil
}

// has reports whether the store has kept bodies of a collection, or will have some.
func (k *keeper) has(c *collection) bool {
	if c.keeps() || len(c.bodies) > 0 {
		c.bodiless = false
	} else if !c.bodiless {
		keys, err := k.find(c.id, 1)
		c.bodiless = err == nil && len(keys) == 0
	}
	return !c.bodiless
}

// Forgotten implements the loop's encoder.
func (e *Encoder) Forgotten(collection, key string) []event.KV {
	if !e.keeper.has(e.collection(collection)) {
		return nil
	}
	return []event.KV{{Key: durable.BodyKey(collection, key)}}
}

// unneeded returns changes that remove bodies of collections that no longer keep bodies.
func (e *Encoder) unneeded() (changes []event.KV) {
	e.mu.Lock()
	ids := slices.Sorted(maps.Keys(e.unkept))
	e.mu.Unlock()
	for _, id := range ids {
		c := e.collection(id)
		if !e.keeper.has(c) {
			e.mu.Lock()
			delete(e.unkept, id)
			e.mu.Unlock()
			continue
		}
		keys, _ := e.keeper.find(id, maxRemoved-len(changes))
		for _, key := range keys {
			changes = append(changes, event.KV{Key: key})
		}
	}
	return changes
}

// publication identifies one event of an object within its collection.
type publication struct {
	uid, version string
	run          uint64
	deleted      bool
}

func publicationOf(i *reconcile.Item) publication { return publicationIn(i.Run, i.Object) }

// publicationIn identifies an event of a run.
func publicationIn(run uint64, e *reconcile.ObjectEvent) publication {
	if e.Type == event.Deleted {
		return publication{e.Object.UID, e.Object.At, e.Object.Run, true}
	}
	return publication{e.Object.UID, e.Version, run, false}
}

// uncommitted is the last change of a kept body, while it is not in the store.
type uncommitted struct {
	publication
	value []byte // nil: it is removed
	diff  bool   // the event has the body before, or a patch
}

// packer packs and unpacks kept bodies:
//
//	length of the resourceVersion (uvarint), resourceVersion, stamp (16 bytes), body (zstd)
//
// The stamp combines the digest of the object and that of the shape. A body that was published with
// other redaction rules therefore does not match, and is never published again.
type packer struct {
	encoder *zstd.Encoder
	decoder *zstd.Decoder
	body    []byte // memory of the last unpacked body
}

// stampOf returns the stamp of the body that consumers have of an object.
func (r *rules) stampOf(o *reconcile.Object) reconcile.Digest {
	stamp := r.stamp
	for i, b := range o.AtDigest {
		stamp[i] ^= b
	}
	return stamp
}

func newPacker() *packer {
	p := &packer{}
	// The options are constant: these cannot fail.
	p.encoder, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	p.decoder, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxBody))
	return p
}

func (p *packer) pack(version string, stamp reconcile.Digest, body []byte) []byte {
	to := make([]byte, 0, len(body)/2+len(version)+64)
	to = append(binary.AppendUvarint(to, uint64(len(version))), version...)
	to = append(to, stamp[:]...)
	return p.encoder.EncodeAll(body, to)
}

// unpack returns the body of a value, or nil if the value belongs to another state or is damaged. The body is
// valid until the next call.
func (p *packer) unpack(value []byte, version string, stamp reconcile.Digest) []byte {
	n, w := binary.Uvarint(value)
	if w <= 0 || n != uint64(len(version)) || len(value) < w+len(version)+len(stamp) {
		return nil
	}
	value = value[w:]
	if string(value[:n]) != version || !bytes.HasPrefix(value[n:], stamp[:]) {
		return nil
	}
	body, err := p.decoder.DecodeAll(value[n+uint64(len(stamp)):], p.body[:0])
	if err != nil {
		return nil
	}
	p.body = body
	return body
}

// keeper keeps bodies.
type keeper struct {
	*Options
	lazy *packer // nil until it is needed, which most sinks never do
}

// lastPublished returns the body of an object that consumers have at o.At, or nil if it is not known for
// certain. The body is valid until the next call.
func (k *keeper) lastPublished(c *collection, key string, o *reconcile.Object) []byte {
	if !c.keeps() || o.AtDigest.IsZero() {
		return nil
	}
	u, found := c.bodies[key]
	value := u.value
	if !found {
		var err error
		if value, err = k.Store.Get(durable.BodyKey(c.id, key)); err != nil {
			k.Log.Warn("read of a kept body failed, going on without it", zap.String("collection", c.id), zap.Error(err))
			return nil
		}
	}
	if value == nil {
		return nil
	}
	return k.packer().unpack(value, o.At, c.stampOf(o))
}

// keep returns the change of the kept body that is committed with an event. The event's own body is kept if it
// is whole; otherwise the kept body is removed. changed is false if there is no change.
func (k *keeper) keep(c *collection, i *reconcile.Item, ev *event.Event) (change event.KV, changed bool) {
	if !c.keeps() || ev.DeadLetter != nil { // consumers keep their previous body
		return change, false
	}
	u := uncommitted{publication: publicationOf(i), diff: ev.Before != nil || ev.Patch != nil}
	if o := &i.Object.Object; !u.deleted && ev.Object != nil && ev.Truncated == nil && !o.AtDigest.IsZero() {
		u.value = k.packer().pack(o.At, c.stampOf(o), ev.Object)
		if len(u.value) > maxKept {
			u.value = nil
			k.count(c, NotKept, ev.Type)
		}
	}
	c.bodies[i.Object.Key] = u
	return event.KV{Key: durable.BodyKey(c.id, i.Object.Key), Value: u.value}, true
}

func (k *keeper) packer() *packer {
	if k.lazy == nil {
		k.lazy = newPacker()
	}
	return k.lazy
}
