package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"time"
)

// The first byte of a key says what it is.
const (
	keyFormat  = 'a'
	keyVersion = 'v' // resource, namespace, name, collection, position from the newest
	keyChange  = 'c' // resource, position
	keyMoment  = 'm' // resource, time
	keyDrop    = 'd' // resource, collection, era; the value is the number of the last version that does not count
	keyRecord  = 'r' // the caller's name
)

// errKey is returned for a key that this package has not written.
var errKey = errors.New("the database has a key of an unknown form")

// A text in a key ends with 0, 1; a zero byte in it is 0, 255. So keys have the order of texts, and none is a prefix of
// another.
func appendText(key []byte, s string) []byte {
	for i := range len(s) {
		if key = append(key, s[i]); s[i] == 0 {
			key = append(key, 255)
		}
	}
	return append(key, 0, 1)
}

// cutText returns the text at the beginning of a key, and what follows.
func cutText(key []byte) (string, []byte, error) {
	var text []byte
	for {
		i := bytes.IndexByte(key, 0)
		if i < 0 || i+1 >= len(key) {
			return "", nil, errKey
		}
		text = append(text, key[:i]...)
		end := key[i+1]
		if key = key[i+2:]; end == 1 {
			return string(text), key, nil
		}
		text = append(text, 0)
	}
}

// cutTexts reads texts at the beginning of a key, and returns what follows.
func cutTexts(key []byte, to ...*string) (rest []byte, err error) {
	for _, text := range to {
		if *text, key, err = cutText(key); err != nil {
			return nil, err
		}
	}
	return key, nil
}

// end returns the first key after all that begin with prefix.
func end(prefix []byte) []byte {
	out := bytes.Clone(prefix)
	for i := len(out) - 1; i >= 0; i-- {
		if out[i]++; out[i] != 0 {
			return out[:i+1]
		}
	}
	return nil
}

const positionBytes = 24

func appendPosition(key []byte, p Position) []byte {
	key = binary.BigEndian.AppendUint64(key, p.Era)
	key = binary.BigEndian.AppendUint64(key, p.Version)
	return binary.BigEndian.AppendUint64(key, p.Seq)
}

func readPosition(b []byte) Position {
	return Position{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])}
}

// newestFirst returns a position whose keys have the opposite order.
func (p Position) newestFirst() Position { return Position{^p.Era, ^p.Version, ^p.Seq} }

func resourceKey(kind byte, r Resource) []byte {
	return appendText(appendText([]byte{kind}, r.Cluster), r.Name)
}

func objectKey(r Resource, o Name) []byte {
	return appendText(appendText(resourceKey(keyVersion, r), o.Namespace), o.Name)
}

func versionKey(r Resource, o Name, collection string, p Position) []byte {
	return appendPosition(appendText(objectKey(r, o), collection), p.newestFirst())
}

type versionID struct {
	Name
	collection string
	at         Position
}

func readVersionKey(prefix int, key []byte) (v versionID, err error) {
	rest, err := cutTexts(key[prefix:], &v.Namespace, &v.Name.Name, &v.collection)
	if err != nil || len(rest) != positionBytes {
		return v, errKey
	}
	v.at = readPosition(rest).newestFirst()
	return v, nil
}

func changeKey(r Resource, p Position) []byte { return appendPosition(resourceKey(keyChange, r), p) }

type change struct {
	versionID
	time time.Time // of its version
}

func appendChange(value []byte, o Name, collection string, t time.Time) []byte {
	value = appendText(appendText(appendText(value, o.Namespace), o.Name), collection)
	return binary.AppendVarint(value, t.UnixMicro())
}

func readChange(prefix int, key, value []byte) (c change, err error) {
	if len(key) != prefix+positionBytes {
		return c, errKey
	}
	c.at = readPosition(key[prefix:])
	rest, err := cutTexts(value, &c.Namespace, &c.Name.Name, &c.collection)
	micros, size := binary.Varint(rest)
	if err != nil || size != len(rest) {
		return c, errKey
	}
	c.time = time.UnixMicro(micros).UTC()
	return c, nil
}

func momentKey(r Resource, micros int64) []byte {
	return binary.BigEndian.AppendUint64(resourceKey(keyMoment, r), uint64(micros)^1<<63) // earlier than 1970 first
}

func dropKey(r Resource, collection string, era uint64) []byte {
	return binary.BigEndian.AppendUint64(appendText(resourceKey(keyDrop, r), collection), era)
}

func recordKey(name string) []byte { return append([]byte{keyRecord}, name...) }
