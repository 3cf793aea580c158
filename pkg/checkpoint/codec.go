package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Version is the format of a checkpoint: of its keys and values, and of what the stores write beside
// them. A store marks with it what it writes, and refuses any other.
const Version = 3

// CheckVersion compares the format of a checkpoint with [Version]. The errors wrap [ErrOlder] or
// [ErrNewer].
func CheckVersion(version int) error {
	switch {
	case version > Version:
		return fmt.Errorf("%w: it has format %d, this version reads format %d", ErrNewer, version, Version)
	case version < Version:
		return fmt.Errorf("%w: it has format %d, this version reads format %d", ErrOlder, version, Version)
	}
	return nil
}

// The first bytes of keys. Every key of a store starts with one of them.
const (
	prefixIdentity = "!identity"
	prefixMark     = "!mark"
	prefixDigest   = "!digest"
	prefixReset    = "!reset"
	prefixPosition = "p/"
	prefixEntry    = "e/"
	prefixBody     = "b/"
	prefixIntent   = "i/"
	prefixNote     = "n/"
)

// Entry is what the bus has been told of one object, and what was last seen of it.
type Entry struct {
	UID string
	RV  string // resourceVersion last seen
	// Hash is of the body last seen; where values of it are hidden on the bus, it can
	// be made with their key only, or is of what is not hidden.
	Hash uint64
	// Told reports whether the bus knows the object. An entry that is not told
	// only remembers what was seen (a filtered object).
	Told bool
	// Entry is the resourceVersion at which the object was announced, with a
	// counter if that had happened before; part of the id of its deletion.
	Entry      string
	APIVersion string
	Kind       string
	// Again counts how often the bus was told of RV anew: with another body, or
	// because the object had left the selection and came back.
	Again uint64
	// Owner tells apart collections that share a namespace, see [OwnerOf].
	Owner uint64
	// Rest is a digest of what matters of the body last told, where some of it is
	// ignored; its upper 16 bits tell what is. 0: not known.
	Rest uint64
	// Body is a digest of the body last told, where it is kept under [BodyKeyOf];
	// another one there is not that. 0: none is kept.
	Body uint64
}

// OwnerOf stands for the selection of a collection in its entries: those of one
// resource and namespace may belong to several collections with selectors that
// exclude each other. It is 0 for a collection without selectors.
func OwnerOf(c *event.Collection) uint64 {
	if c.LabelSelector == "" && c.FieldSelector == "" {
		return 0
	}
	return max(xxhash.Sum64String(c.LabelSelector+"\x00"+c.FieldSelector), 1)
}

// Note is what is remembered of a collection beside its position.
type Note struct {
	// CRD and Namespace are the UIDs of what the objects cannot outlive, as of
	// the last complete list; "" where there is no such thing or it is not known.
	CRD       string `json:"crd,omitzero"`
	Namespace string `json:"namespace,omitzero"`
	// Resync is the run that is under way, "" for none.
	Resync string `json:"resync,omitzero"`
	// Resynced is when the last resync ended, or the collection was first listed.
	Resynced time.Time `json:"resynced,omitzero"`
	// Gone: what the objects lived in was deleted, and the bus was told so.
	Gone bool `json:"gone,omitzero"`
	// Lives counts how often the collection was closed: what is said of another
	// life is not said again.
	Lives uint64 `json:"lives,omitzero"`
	// Shape is the digest of what was hidden of the objects that were told, beside
	// what [DigestKey] has; "" for nothing.
	Shape string `json:"shape,omitzero"`
	// Filter tells the filter of the last complete list; "" for none.
	Filter string `json:"filter,omitzero"`
	// Reset is the run of the declared reset that is under way, "" for none.
	Reset string `json:"reset,omitzero"`
	// Due is the run of a declared reset of which the bus has not been told yet, ""
	// for none. It is there also where the collection is no longer watched.
	Due string `json:"due,omitzero"`
}

// NotePrefix starts every note's key.
func NotePrefix() []byte { return []byte(prefixNote) }

// NoteKey is where the note on a collection is kept.
func NoteKey(collection string) []byte { return []byte(prefixNote + collection) }

// NoteOf is the collection's ID in a note's key.
func NoteOf(key []byte) string { return string(key[len(prefixNote):]) }

// EncodeNote encodes a note as JSON.
func EncodeNote(n Note) []byte {
	b, _ := json.Marshal(n) // plain strings and a time: cannot fail
	return b
}

// DecodeNote reverses [EncodeNote]. Errors wrap [ErrCorrupt].
func DecodeNote(b []byte) (Note, error) {
	var n Note
	if err := json.Unmarshal(b, &n); err != nil {
		return Note{}, fmt.Errorf("%w: note %q", ErrCorrupt, b)
	}
	return n, nil
}

// IdentityKey is where a store keeps whose checkpoint it is.
func IdentityKey() []byte { return []byte(prefixIdentity) }

type identityRecord struct {
	Version  int            `json:"version"`
	Identity event.Identity `json:"identity"`
}

// EncodeIdentity encodes whose checkpoint it is, with the format's version.
func EncodeIdentity(id event.Identity) []byte {
	b, _ := json.Marshal(identityRecord{Version: Version, Identity: id}) // plain strings: cannot fail
	return b
}

// CheckIdentity compares a stored identity with want. The errors wrap
// [ErrCorrupt], [ErrOlder], [ErrNewer] or [ErrForeign] and say what differs. The cluster's
// configured name may change: its UID may not.
func CheckIdentity(stored []byte, want event.Identity) error {
	var r identityRecord
	if err := json.Unmarshal(stored, &r); err != nil || r.Version < 1 {
		return fmt.Errorf("%w: its identity record does not parse", ErrCorrupt)
	}
	if err := CheckVersion(r.Version); err != nil {
		return err
	}
	for _, f := range []struct{ name, got, want string }{
		{"cluster UID", r.Identity.ClusterUID, want.ClusterUID},
		{"bridge", r.Identity.Bridge, want.Bridge},
		{"sink", r.Identity.Sink, want.Sink},
	} {
		if f.got != f.want {
			return fmt.Errorf("%w: its %s is %q, this one is %q", ErrForeign, f.name, f.got, f.want)
		}
	}
	return nil
}

// MarkKey is where the mark of the last committed sink write is kept.
func MarkKey() []byte { return []byte(prefixMark) }

// DigestKey is where the digest of the shape that bodies were told in is kept.
func DigestKey() []byte { return []byte(prefixDigest) }

// ResetKey is there while a declared reset is due: every collection that no note is of
// then begins with one, and its value tells that reset from others.
func ResetKey() []byte { return []byte(prefixReset) }

// ResetRequested is the value of [ResetKey] that asks the next run for a reset.
func ResetRequested() []byte { return []byte("requested") }

// PositionPrefix starts every position's key.
func PositionPrefix() []byte { return []byte(prefixPosition) }

// PositionKey is the key of a collection's position.
func PositionKey(collection string) []byte { return []byte(prefixPosition + collection) }

// PositionOf is the collection's ID in a position's key.
func PositionOf(key []byte) string { return string(key[len(prefixPosition):]) }

// EncodePosition encodes a position. Its text is meant to be read by people too.
func EncodePosition(p event.Position) []byte { return AppendPosition(make([]byte, 0, 32), p) }

// AppendPosition appends what [EncodePosition] returns.
func AppendPosition(b []byte, p event.Position) []byte {
	state := "at"
	if p.Void {
		state = "void"
	}
	b = append(b, state...)
	b = strconv.AppendUint(append(b, ' '), p.Epoch, 10)
	return append(append(b, ' '), p.RV...)
}

// DecodePosition reverses [EncodePosition]. Errors wrap [ErrCorrupt].
func DecodePosition(b []byte) (event.Position, error) {
	f := strings.SplitN(string(b), " ", 3)
	if len(f) != 3 || (f[0] != "at" && f[0] != "void") {
		return event.Position{}, fmt.Errorf("%w: position %q", ErrCorrupt, b)
	}
	epoch, err := strconv.ParseUint(f[1], 10, 64)
	if err != nil {
		return event.Position{}, fmt.Errorf("%w: position %q", ErrCorrupt, b)
	}
	return event.Position{Epoch: epoch, RV: f[2], Void: f[0] == "void"}, nil
}

// EntryPrefix starts the inventory keys of a resource, of one namespace when
// namespace is not "". Neither part can contain a slash.
func EntryPrefix(resource, namespace string) []byte {
	return inventoryPrefix(prefixEntry, resource, namespace)
}

// AllEntries starts every inventory key.
func AllEntries() []byte { return []byte(prefixEntry) }

// EntryKey is the inventory key of an object; namespace is "" for a
// cluster-scoped one.
func EntryKey(resource, namespace, name string) []byte {
	return AppendEntryKey(make([]byte, 0, len(prefixEntry)+len(resource)+1+len(namespace)+1+len(name)), resource, namespace, name)
}

// AppendEntryKey appends what [EntryKey] returns.
func AppendEntryKey(b []byte, resource, namespace, name string) []byte {
	b = append(append(append(b, prefixEntry...), resource...), '/')
	return append(append(append(b, namespace...), '/'), name...)
}

// ParseEntryKey reverses [EntryKey]. Errors wrap [ErrCorrupt].
func ParseEntryKey(key []byte) (resource, namespace, name string, err error) {
	f := strings.SplitN(string(key), "/", 4)
	if len(f) != 4 || f[0]+"/" != prefixEntry {
		return "", "", "", fmt.Errorf("%w: inventory key %q", ErrCorrupt, key)
	}
	return f[1], f[2], f[3], nil
}

// BodyPrefix starts the keys of kept bodies of a resource, of one namespace when
// namespace is not "".
func BodyPrefix(resource, namespace string) []byte {
	return inventoryPrefix(prefixBody, resource, namespace)
}

// AllBodies starts every key of a kept body.
func AllBodies() []byte { return []byte(prefixBody) }

// BodyKeyOf is where the body last told is kept of the object of an inventory key.
func BodyKeyOf(entry []byte) []byte {
	return append(append(make([]byte, 0, len(entry)), prefixBody...), entry[len(prefixEntry):]...)
}

// EntryKeyOf reverses [BodyKeyOf].
func EntryKeyOf(body []byte) []byte {
	return append(append(make([]byte, 0, len(body)), prefixEntry...), body[len(prefixBody):]...)
}

// IntentPrefix starts the intent keys of a resource, of one namespace when
// namespace is not ""; of everything when both are "".
func IntentPrefix(resource, namespace string) []byte {
	if resource == "" {
		return []byte(prefixIntent)
	}
	return inventoryPrefix(prefixIntent, resource, namespace)
}

// IntentKey is where the intent to announce an object is kept. Its value is an
// encoded [Entry].
func IntentKey(resource, namespace, name, uid string) []byte {
	return []byte(prefixIntent + resource + "/" + namespace + "/" + name + "/" + uid)
}

// IsIntent reports whether a key is of an intent.
func IsIntent(key []byte) bool { return bytes.HasPrefix(key, []byte(prefixIntent)) }

// ParseIntentKey reverses [IntentKey]. Errors wrap [ErrCorrupt].
func ParseIntentKey(key []byte) (resource, namespace, name, uid string, err error) {
	f := strings.SplitN(string(key), "/", 5)
	if len(f) != 5 || f[0]+"/" != prefixIntent {
		return "", "", "", "", fmt.Errorf("%w: intent key %q", ErrCorrupt, key)
	}
	return f[1], f[2], f[3], f[4], nil
}

func inventoryPrefix(prefix, resource, namespace string) []byte {
	s := prefix + resource + "/"
	if namespace != "" {
		s += namespace + "/"
	}
	return []byte(s)
}

const (
	flagTold = 1 << iota
	flagEntryIsRV
	flagAgain
	flagOwner
	flagRest
	flagBody
)

// EncodeEntry encodes an inventory entry: some 35 bytes for the usual object.
func EncodeEntry(e Entry) []byte { return AppendEntry(make([]byte, 0, 64), &e) }

// AppendEntry appends what [EncodeEntry] returns.
func AppendEntry(b []byte, e *Entry) []byte {
	var flags byte
	for _, f := range [...]struct {
		flag byte
		set  bool
	}{{flagTold, e.Told}, {flagEntryIsRV, e.Entry == e.RV}, {flagAgain, e.Again != 0}, {flagOwner, e.Owner != 0}, {flagRest, e.Rest != 0}, {flagBody, e.Body != 0}} {
		if f.set {
			flags |= f.flag
		}
	}
	b = append(b, flags)
	b = binary.LittleEndian.AppendUint64(b, e.Hash)
	b = AppendUID(b, e.UID)
	b = AppendVersion(b, e.RV)
	if e.Entry != e.RV {
		b = AppendVersion(b, e.Entry)
	}
	if e.Again != 0 {
		b = binary.AppendUvarint(b, e.Again)
	}
	if e.Owner != 0 {
		b = binary.LittleEndian.AppendUint64(b, e.Owner)
	}
	if e.Rest != 0 {
		b = binary.LittleEndian.AppendUint64(b, e.Rest)
	}
	if e.Body != 0 {
		b = binary.LittleEndian.AppendUint64(b, e.Body)
	}
	b = AppendText(b, e.APIVersion)
	return append(b, e.Kind...)
}

// DecodeEntry reverses [EncodeEntry]. Errors wrap [ErrCorrupt].
func DecodeEntry(b []byte) (Entry, error) { return DecodeEntryLike(b, &Entry{}) }

// DecodeEntryLike is [DecodeEntry] for an entry that is likely to have the UID, the
// APIVersion and the Kind of like: it then shares these strings.
func DecodeEntryLike(b []byte, like *Entry) (Entry, error) {
	d := NewDecoder(b)
	flags := d.Take(1)
	hash := d.Take(8)
	var e Entry
	e.UID = d.UID(like.UID)
	e.RV = d.Version()
	if d.Failed() {
		return Entry{}, fmt.Errorf("%w: inventory entry of %d bytes", ErrCorrupt, len(b))
	}
	e.Told = flags[0]&flagTold != 0
	e.Hash = binary.LittleEndian.Uint64(hash)
	e.Entry = e.RV
	if flags[0]&flagEntryIsRV == 0 {
		e.Entry = d.Version()
	}
	if flags[0]&flagAgain != 0 {
		e.Again = d.Uvarint()
	}
	if flags[0]&flagOwner != 0 {
		e.Owner = d.Uint64()
	}
	if flags[0]&flagRest != 0 {
		e.Rest = d.Uint64()
	}
	if flags[0]&flagBody != 0 {
		e.Body = d.Uint64()
	}
	e.APIVersion = d.Text(like.APIVersion)
	if d.Failed() {
		return Entry{}, fmt.Errorf("%w: inventory entry of %d bytes", ErrCorrupt, len(b))
	}
	e.Kind = d.Rest(like.Kind)
	return e, nil
}

// OwnerIn is the Owner of an encoded entry. It decodes no more than it must.
func OwnerIn(b []byte) (uint64, error) {
	if len(b) > 0 && b[0]&flagOwner == 0 {
		return 0, nil
	}
	e, err := DecodeEntry(b)
	return e.Owner, err
}
