// Package store keeps the states of objects that were read from a bus, and their history, in a pebble database.
//
// Each state of an object in a collection is a version at a position. A view is a position: it shows, for each name,
// the state with the highest epoch and resourceVersion among the newest versions of the collections (docs/events.md,
// the consumer's rules, step 8). So the same code reads what is served now, the pages of a list, and the past. What is
// written at a position beyond a view does not change it.
//
// A [Batch] is committed as a whole. Readers and one writer may work at the same time.
package store

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/kubebridge/internal/base/diskguard"
	"github.com/kubebridge/kubebridge/internal/base/links"
)

// format is the format of the database. A database of another format is refused.
const format = "5"

const (
	cacheBytes    = 64 << 20
	memTableBytes = 16 << 20
)

var (
	// ErrFormat is returned by Open for a database in a format that this program does not know.
	ErrFormat = errors.New("the data directory has another format: use an empty one")
	// ErrFailed is returned for every commit after one that has failed. Open the store again.
	ErrFailed = errors.New("an earlier write to the data directory failed")
)

// Position orders the states of one resource: by era, resourceVersion, and the order of reading.
type Position struct{ Era, Version, Seq uint64 }

// Compare returns -1, 0 or 1.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Era, q.Era), cmp.Compare(p.Version, q.Version), cmp.Compare(p.Seq, q.Seq))
}

// before returns the highest position below p, which is not the zero value.
func (p Position) before() Position {
	if p.Seq--; p.Seq == ^uint64(0) {
		if p.Version--; p.Version == ^uint64(0) {
			p.Era--
		}
	}
	return p
}

// Resource is a resource of a cluster: "pods", "deployments.apps".
type Resource struct{ Cluster, Name string }

// Name is the name of an object.
type Name struct{ Namespace, Name string }

// Version is a state of an object in a collection.
type Version struct {
	// Deleted is set if the collection does not hold the object any more. Body is then its last state.
	Deleted         bool
	Extent          Extent
	UID             string
	Epoch           uint64
	ResourceVersion uint64
	Time            time.Time // when the bridge saw it, in microseconds
	// Fields are the values of fields that field selectors know, by label, if Extent is not Whole and the bus has them.
	Fields map[string]string
	Body   []byte // JSON as the bus has it
}

// Extent is how much of an object a body has.
type Extent uint8

// The extents. The bus has no more than these of an object that it did not take whole.
const (
	Whole    Extent = iota
	Head            // apiVersion, kind, and metadata without annotations and managedFields
	Identity        // apiVersion, kind, and the metadata's name, namespace, UID and resourceVersion
)

// Object is an object in a view.
type Object struct {
	Name
	Version
	Collection string
	At         Position // of the version
}

// Options of a store.
type Options struct {
	FS vfs.FS // nil: the operating system's
}

// Store is a database in a directory.
type Store struct {
	db   *pebble.DB
	disk *diskguard.Guard

	mu     sync.RWMutex
	drops  map[Resource]map[string][]dropAt // of each collection, ascending
	floors map[Resource]Position            // below which Trim deletes, or has deleted: see trimmed

	trimming sync.Mutex            // for Trim
	trimmed  map[Resource]Position // below which Trim has deleted everything
}

// Open opens or creates the store in a directory.
func Open(dir string, o Options) (_ *Store, err error) {
	defer func() {
		if r := recover(); r != nil { // damaged files can make pebble panic
			err = fmt.Errorf("open %s: the database is damaged: %v", dir, r)
		}
	}()
	base := o.FS
	if base == nil {
		base = vfs.Default
		if err := links.Check(dir); err != nil {
			return nil, fmt.Errorf("open the copy: %w", err)
		}
	}
	s := &Store{drops: map[Resource]map[string][]dropAt{}, floors: map[Resource]Position{}, trimmed: map[Resource]Position{}, disk: diskguard.New(base, nil)}
	opts := &pebble.Options{
		FS: s.disk, Logger: logger{s.disk}, MemTableSize: memTableBytes, CacheSize: cacheBytes, FormatMajorVersion: pebble.FormatValueSeparation,
		EventListener: &pebble.EventListener{
			BackgroundError: s.disk.Fail,
			DataCorruption:  func(i pebble.DataCorruptionInfo) { s.disk.Fail(i.Details) },
		},
	}
	opts.Experimental.ValueSeparationPolicy = separation
	opts.Levels[0].FilterPolicy = bloom.FilterPolicy(10) // of all levels: most objects that an event brings are new, and a filter says so without a block
	if s.db, err = pebble.Open(dir, opts); err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", dir, err), s.db.Close())
	}
	return s, nil
}

// separation has pebble write bodies to files of their own, and not again when it merges tables: half of the CPU under
// constant changes, half more disk.
func separation() pebble.ValueSeparationPolicy {
	return pebble.ValueSeparationPolicy{Enabled: true, MinimumSize: 1 << 10, MaxBlobReferenceDepth: 10, RewriteMinimumAge: time.Minute, TargetGarbageRatio: 0.2}
}

// logger keeps pebble from ending the process.
type logger struct{ disk *diskguard.Guard }

func (logger) Infof(string, ...any)  {}
func (logger) Errorf(string, ...any) {}

func (l logger) Fatalf(format string, args ...any) { l.disk.Fail(fmt.Errorf(format, args...)) }

func (s *Store) load() error {
	text, err := s.get([]byte{keyFormat})
	switch {
	case err != nil:
		return err
	case text == nil:
		if err := s.db.Set([]byte{keyFormat}, []byte(format), pebble.Sync); err != nil {
			return err
		}
		if err := s.disk.Err(); err != nil {
			return err
		}
	case string(text) != format:
		return fmt.Errorf("%w (it has %q, this program %q)", ErrFormat, text, format)
	}
	return s.scan([]byte{keyDrop}, func(key, value []byte) error {
		var d drop
		rest, err := cutTexts(key[1:], &d.resource.Cluster, &d.resource.Name, &d.collection)
		if err != nil || len(rest) != 8 || len(value) != 8 {
			return errKey
		}
		d.dropAt = dropAt{binary.BigEndian.Uint64(rest), binary.BigEndian.Uint64(value)}
		s.addDrop(d)
		return nil
	})
}

// Close closes the database. Readers and batches must have ended.
func (s *Store) Close() error { return s.db.Close() }

// drop makes a collection hold no objects.
type drop struct {
	resource   Resource
	collection string
	dropAt
}

// dropAt says which versions do not count in views of an era and later ones: those up to a number in the order of
// reading.
type dropAt struct{ era, seq uint64 }

func (d dropAt) hides(at, view Position) bool { return d.era <= view.Era && at.Seq <= d.seq }

func searchEra(drops []dropAt, era uint64) (int, bool) {
	return slices.BinarySearchFunc(drops, era, func(d dropAt, era uint64) int { return cmp.Compare(d.era, era) })
}

func (s *Store) addDrop(d drop) {
	if s.drops[d.resource] == nil {
		s.drops[d.resource] = map[string][]dropAt{}
	}
	drops := slices.Clone(s.drops[d.resource][d.collection]) // readers may use the former one
	i, found := searchEra(drops, d.era)
	if !found {
		drops = slices.Insert(drops, i, d.dropAt)
	}
	drops[i].seq = max(drops[i].seq, d.seq)
	s.drops[d.resource][d.collection] = drops
}

// dropped reports whether a version does not count in a view, because its collection was dropped in between.
func (s *Store) dropped(r Resource, collection string, at, view Position) bool {
	s.mu.RLock()
	drops := s.drops[r][collection]
	s.mu.RUnlock()
	i, _ := searchEra(drops, view.Era+1)
	return i > 0 && drops[i-1].hides(at, view) // a later drop hides more
}

// ErrTrimmed is returned for a view that is being deleted, or was: see [Store.Trim].
var ErrTrimmed = errors.New("not retained any more")

// retained returns ErrTrimmed if Trim may have deleted what a view needs. Call it once an iterator was made, which does
// not see later deletions.
func (s *Store) retained(v View) error {
	s.mu.RLock()
	floor := s.floors[v.Resource]
	s.mu.RUnlock()
	if v.At.Compare(floor) < 0 {
		return fmt.Errorf("resourceVersion %d is %w", v.At.Version, ErrTrimmed)
	}
	return nil
}

// get returns a copy of a value; nil if there is none.
func (s *Store) get(key []byte) ([]byte, error) {
	value, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	return append([]byte{}, value...), nil
}

// rows returns the keys from lower up to upper with their values, which are valid until the next. failed gets its
// errors.
func rows(r pebble.Reader, lower, upper []byte, failed *error) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		it, err := r.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
		if err != nil {
			*failed = errors.Join(*failed, err)
			return
		}
		for ok := it.First(); ok && yield(it.Key(), it.Value()); ok = it.Next() {
		}
		*failed = errors.Join(*failed, it.Error(), it.Close())
	}
}

// scan calls fn for all keys with a prefix. Key and value are only valid during the call.
func (s *Store) scan(prefix []byte, fn func(key, value []byte) error) (err error) {
	for key, value := range rows(s.db, prefix, end(prefix), &err) {
		if err = fn(key, value); err != nil {
			break
		}
	}
	return err
}

// Records calls fn for the records whose names begin with prefix, in order. The value is only valid during the call.
func (s *Store) Records(prefix string, fn func(name string, value []byte) error) error {
	return s.scan(recordKey(prefix), func(key, value []byte) error { return fn(string(key[1:]), value) })
}

// Record returns a record; nil if there is none.
func (s *Store) Record(name string) ([]byte, error) { return s.get(recordKey(name)) }

const (
	flagDeleted = 1
	extentShift = 1 // two bits
	extentMask  = 3
	flagFields  = 8 // the JSON of fields, with its length, is before the body
)

func appendVersion(dst []byte, v *Version) []byte {
	begin, flags := len(dst), byte(v.Extent)<<extentShift
	if v.Deleted {
		flags |= flagDeleted
	}
	dst = append(dst, flags)
	dst = binary.AppendUvarint(dst, v.Epoch)
	dst = binary.AppendUvarint(dst, v.ResourceVersion)
	dst = binary.AppendVarint(dst, v.Time.UnixMicro())
	dst = binary.AppendUvarint(dst, uint64(len(v.UID)))
	dst = append(dst, v.UID...)
	if len(v.Fields) > 0 {
		dst[begin] |= flagFields
		fields, _ := json.Marshal(v.Fields) // texts
		dst = append(binary.AppendUvarint(dst, uint64(len(fields))), fields...)
	}
	return append(dst, v.Body...)
}

var errVersion = errors.New("the database has a version of an unknown form")

// splitVersion reads a value whose body stays a part of b.
func splitVersion(b []byte) (v Version, body []byte, err error) {
	rest, err := v.readHead(b)
	if err != nil {
		return v, nil, err
	}
	uid, rest, err := cutBytes(rest)
	if err != nil {
		return v, nil, err
	}
	if v.UID = string(uid); b[0]&flagFields == 0 {
		return v, rest, nil
	}
	fields, rest, err := cutBytes(rest)
	if err != nil || json.Unmarshal(fields, &v.Fields) != nil {
		return v, nil, errVersion
	}
	return v, rest, nil
}

// cutBytes returns the bytes at the beginning of b, before which their length is, and what follows.
func cutBytes(b []byte) (cut, rest []byte, err error) {
	length, size := binary.Uvarint(b)
	if size <= 0 || length > uint64(len(b)-size) {
		return nil, nil, errVersion
	}
	b = b[size:]
	return b[:length], b[length:], nil
}

// readHead reads what is before UID and body, and returns the rest.
func (v *Version) readHead(b []byte) (rest []byte, err error) {
	if len(b) == 0 {
		return nil, errVersion
	}
	v.Deleted, v.Extent = b[0]&flagDeleted != 0, Extent(b[0]>>extentShift&extentMask)
	if v.Extent > Identity || b[0] > flagFields|extentMask<<extentShift|flagDeleted {
		return nil, errVersion
	}
	b = b[1:]
	for _, to := range []*uint64{&v.Epoch, &v.ResourceVersion} {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			return nil, errVersion
		}
		*to, b = n, b[size:]
	}
	micros, size := binary.Varint(b)
	if size <= 0 {
		return nil, errVersion
	}
	v.Time = time.UnixMicro(micros).UTC()
	return b[size:], nil
}
