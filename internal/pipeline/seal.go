package pipeline

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"

	"github.com/kubebridge/kubebridge/pkg/source"
)

// hash is the object's Hash, such that it says nothing of what is hidden of it: who may
// read the checkpoint, on a bus perhaps many, could try values until one fits. With
// the key of the hidden values it is a keyed one. Without, it is of the object as it
// may be seen, where a change of hidden values alone is none.
func (l *Lane) hash(m *member, o *source.Object) (uint64, error) {
	if err := l.look(m); err != nil {
		return 0, err
	}
	switch key := l.shape.Secrets.Key; {
	case m.lens.hide == nil:
		return o.Hash(), nil
	case len(key) > 0:
		return l.seal(o.Hash()), nil
	}
	seen, err := source.ParseObject(l.seen(m, o))
	if err != nil {
		return 0, nil // it leaves without its body, too
	}
	return seen.Hash(), nil
}

// rest is a digest of what matters of an object, with the identity of the rules that
// say so, which says as little of what is hidden as hash; 0 is like no other.
func (l *Lane) rest(m *member, o *source.Object) uint64 {
	key, raw := l.shape.Secrets.Key, o.Raw
	hidden := m.lens.hide != nil
	if hidden && len(key) == 0 {
		raw = l.seen(m, o)
	}
	digest, err := m.lens.ignore.Digest(raw)
	if err != nil {
		return 0
	}
	if hidden && len(key) > 0 {
		digest = l.seal(digest)
	}
	return m.lens.ignoreID | max(digest>>16, 1)
}

// seen is the object as it may be seen, until the next call; nil if that cannot be
// made.
func (l *Lane) seen(m *member, o *source.Object) []byte {
	out, err := m.lens.hide.Append(l.scratch[:0], o.Raw, o.Namespace+"/"+o.Name)
	if err != nil {
		return nil
	}
	l.scratch = out
	return out
}

// seal makes of a digest one that cannot be made without the key.
func (l *Lane) seal(digest uint64) uint64 {
	if l.mac == nil {
		l.mac = hmac.New(sha256.New, l.shape.Secrets.Key)
	}
	l.mac.Reset()
	l.sealed = binary.LittleEndian.AppendUint64(append(l.sealed[:0], "checkpoint\x00"...), digest)
	l.mac.Write(l.sealed)
	l.sealed = l.mac.Sum(l.sealed[:0])
	return binary.LittleEndian.Uint64(l.sealed)
}
