// Package manager finds which field managers changed an object, from its
// metadata.managedFields: which managers wrote, when, and which of the
// changed places they own. docs/configuration.md lists what managedFields do not show.
//
// A place is written as `spec.template.spec.containers[name="app"].image`. Names that
// are not words are quoted, as in `metadata.annotations["a.b/c"]`. Elements of sets are written as
// `metadata.finalizers[="x"]`.
package manager

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/kubebridge/internal/base/scan"
	"github.com/kubebridge/kubebridge/pkg/shape/internal/raw"
)

// DefaultMaxPaths is the number of places that are named for one manager, unless MaxPaths is set.
const DefaultMaxPaths = 20

// Change is what one field manager did, by one operation on one subresource.
type Change struct {
	// Manager is the name that the client chose, or one that the server took from its user agent.
	Manager string
	// Operation is Apply (server-side apply) or Update (any other write).
	Operation string
	// Subresource is "status" or "scale" for example, "" for the object itself.
	Subresource string
	// Time is when the manager last changed the set of its fields, in RFC 3339 with whole seconds;
	// "" if the server did not record it.
	Time string
	// Paths are the changed places that the manager owns and, if it is certain that it wrote, the places that it
	// owned before and that are gone. Nil means that the former state is not known.
	Paths []string
	// More is the number of further paths.
	More int
}

// perByte is the budget of one call, in steps per byte of the objects. Ordinary objects need up to 9.
const perByte = 12

// ErrCostly is returned if the comparison would take too many steps. Ordinary objects never reach the limit.
var ErrCostly = errors.New("too costly to compare")

// Finder finds the managers that changed an object. The zero value is ready; it keeps its
// memory from one object to the next, and is for one goroutine at a time.
type Finder struct {
	// MaxPaths is the number of places that are named for one manager; 0 means DefaultMaxPaths.
	MaxPaths int
	// HideValues replaces the content of brackets in paths by *: values of the
	// object and names that are not words. Paths that become equal are named once.
	HideValues bool

	scan     scan.Scanner
	ends     [2]scan.Ends // where the containers of the two objects end, once the objects are known to be valid
	entries  []entry
	pairs    map[[2]*byte]*pair // containers that were read, by the addresses of their first bytes
	members  []raw.Member       // memory of the pairs' members
	elements [][]byte           // memory of the pairs' elements
	scratch  []raw.Member       // a stack: each level uses the part above the one it found
	path     []byte
	depth    int
	seed     maphash.Seed    // for identifiers of places and elements
	parents  map[uint64]bool // places that have others below them in a FieldsV1; nil until it is needed
	former   int             // how many of the entries belong to the former state
	gone     bool            // report places that are gone, instead of places that exist
	certain  bool            // the manager certainly wrote: it also gets changes that may be another manager's
	change   *Change

	start, budget int64 // steps
	others        int64 // steps other than bytes read
}

// Steps returns the cost of the last call: bytes that were read or written, and members that were compared.
func (f *Finder) Steps() int64 { return f.scan.Steps() - f.start + f.others }

// entry is one entry of metadata.managedFields. All members except fields are quoted strings; nil if missing.
type entry struct {
	manager, operation, version, subresource, time, fields []byte
}

// By returns the managers that changed before into after. It returns only managers that certainly wrote.
// A write advances its manager's time, adds to the places that this manager owns, and
// takes the changed ones from all other managers. The writers follow from the first of these rules
// that applies to a manager:
//
//  1. the managers that are new or whose time advanced;
//  2. the manager with the newest time that owns more than before, because times are whole
//     seconds;
//  3. the manager with the newest time that owns a changed place.
//
// If rule 2 or 3 applies to several managers, it names none of them. If before has no
// managedFields, all managers that own a changed place are the writers.
//
// The result may be empty: managedFields do not show who removed a field by Update, who
// began a deletion, and which values the server filled in. It is also empty if after is older
// than before, as after the restore of a backup.
func (f *Finder) By(before, after []byte) ([]Change, error) {
	f.reset(len(before) + len(after))
	before, after = bytes.Trim(before, scan.WhiteSpace), bytes.Trim(after, scan.WhiteSpace)
	object, err := f.pairOf(before, after)
	if err != nil {
		return nil, fmt.Errorf("managedFields: %w", err)
	}
	defer f.forget()
	f.ends[0].Find(before)
	f.ends[1].Find(after)
	f.others += int64(len(before) + len(after))
	metadata, err := f.pairOf(object.a.member("metadata"), object.b.member("metadata"))
	if err == nil {
		err = f.read(metadata.a.member("managedFields"))
	}
	f.former = len(f.entries)
	if err == nil {
		err = f.read(metadata.b.member("managedFields"))
	}
	if err != nil {
		return nil, fmt.Errorf("managedFields: %w", err)
	}
	if is := metadata.b.version(); is > 0 && is < metadata.a.version() {
		return nil, nil
	}
	same := object.equalExcept("metadata") && metadata.equalExcept("managedFields", "resourceVersion")
	return f.writers(before, after, same)
}

// Newest returns the last writer if the former state is not known: the manager with
// the newest time, without paths. It returns nothing if several managers have that time,
// because times are whole seconds. It also returns nothing if that time is before since, a time at which the former
// state is known to have existed. If managedFields do not show the last write (see [Finder.By]), the result is the
// writer before it.
func (f *Finder) Newest(object []byte, since time.Time) ([]Change, error) {
	f.reset(len(object))
	fields, err := raw.Get(&f.scan, object, "metadata", "managedFields")
	if err == nil {
		err = f.read(fields)
	}
	if err != nil {
		return nil, fmt.Errorf("managedFields: %w", err)
	}
	newest := since.Truncate(time.Second)
	var changes []Change
	for i := range f.entries {
		c := f.entries[i].change()
		at, err := time.Parse(time.RFC3339, c.Time)
		if err != nil || at.Before(newest) || c.Manager == beforeFirstApply {
			continue // a manager without a time cannot be compared
		}
		if at.After(newest) {
			newest, changes = at, changes[:0]
		}
		changes = append(changes, c)
	}
	return oneManager(changes), nil
}

// forget drops references to the objects: the caller may reuse their memory.
func (f *Finder) forget() {
	f.ends[0].Forget()
	f.ends[1].Forget()
}

func (f *Finder) reset(bytes int) {
	f.entries, f.members, f.elements = f.entries[:0], f.members[:0], f.elements[:0]
	f.scratch, f.path, f.depth, f.former = f.scratch[:0], f.path[:0], 0, 0
	f.pairs, f.parents = map[[2]*byte]*pair{}, nil
	f.start, f.others, f.budget = f.scan.Steps(), 0, raw.Budget(perByte, bytes)
	f.MaxPaths = cmp.Or(f.MaxPaths, DefaultMaxPaths)
	if f.seed == (maphash.Seed{}) {
		f.seed = maphash.MakeSeed()
	}
}

// read adds an object's managedFields to the entries. nil adds none.
func (f *Finder) read(fields []byte) error {
	if fields == nil {
		return nil
	}
	s := &f.scan
	s.Reset(fields)
	return s.Elements(func() error {
		var e entry
		err := s.Members(func(name []byte, _ int) error {
			v, err := s.Value()
			if err != nil {
				return err
			}
			switch string(name) {
			case "manager":
				e.manager = v
			case "operation":
				e.operation = v
			case "apiVersion":
				e.version = v
			case "subresource":
				e.subresource = v
			case "time":
				e.time = v
			case "fieldsV1":
				e.fields = v
			}
			return nil
		})
		f.entries = append(f.entries, e)
		return err
	})
}

// compare returns 0 for two entries of one manager. Like the server, it ignores the version of Apply entries.
func (e *entry) compare(o *entry) int {
	order := cmp.Or(bytes.Compare(e.manager, o.manager), bytes.Compare(e.operation, o.operation), bytes.Compare(e.subresource, o.subresource))
	if order == 0 && !e.applies() {
		order = bytes.Compare(e.version, o.version)
	}
	return order
}

func (e *entry) applies() bool { return string(e.operation) == `"Apply"` }

func (e *entry) change() Change {
	text := func(v []byte) string {
		if len(v) == 0 || v[0] != '"' {
			return ""
		}
		return string(scan.Unquote(v))
	}
	return Change{Manager: text(e.manager), Operation: text(e.operation), Subresource: text(e.subresource), Time: text(e.time)}
}

// Append appends changes as the array that events carry.
func Append(dst []byte, changes []Change) []byte {
	dst = append(dst, '[')
	for i, c := range changes {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = quote(append(dst, `{"manager":`...), c.Manager)
		dst = quote(append(dst, `,"operation":`...), c.Operation)
		dst = quote(append(dst, `,"subresource":`...), c.Subresource)
		if c.Time != "" {
			dst = quote(append(dst, `,"time":`...), c.Time)
		}
		if c.Paths != nil {
			dst = append(dst, `,"paths":[`...)
			for j, p := range c.Paths {
				if j > 0 {
					dst = append(dst, ',')
				}
				dst = quote(dst, p)
			}
			dst = append(dst, ']')
		}
		if c.More > 0 {
			dst = strconv.AppendInt(append(dst, `,"more":`...), int64(c.More), 10)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

func quote(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // its error reports what is not UTF-8
	return dst
}
