package consumer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// The first element of a record's key says what it is. The key is a JSON array of texts.
const (
	recordBirth      = "birth"      // cluster
	recordPlan       = "plan"       // cluster, resource
	recordCollection = "collection" // cluster, ID
	recordProgress   = "progress"   // cluster, ID, topic, partition
	recordSlot       = "slot"       // cluster, ID, namespace, name
	recordEnding     = "ending"     // number of the deletion; with Lookup only
)

var errKind = errors.New("it is of an unknown kind")

type savedPlan struct {
	Birth, Number uint64
	Digest        string
}

type savedCollection struct {
	Resource         string
	Incarnation, Run uint64
	Closed           bool         `json:",omitzero"`
	Reason           event.Reason `json:",omitzero"`
	Topics           map[string]int
}

type savedProgress struct {
	Topic      string
	Partition  int
	Phase      Phase
	Run, Syncs uint64
	AsOf       AsOf
	Edit       uint64
}

type savedSlot struct {
	Run     uint64
	Version string
	Deleted bool            `json:",omitzero"`
	Ending  uint64          `json:",omitzero"`
	Object  *event.Received `json:",omitzero"`
}

type savedEnding struct{ Cluster, Collection, Namespace, Name string }

// unsaved are the parts of a state that have changed since the last Save.
type unsaved struct {
	births      map[string]bool
	plans       map[resourceKey]bool
	collections map[collectionKey]bool
	progress    map[progressKey]bool
	slots       map[slotKey]bool
	endings     map[uint64]bool
	drops       map[collectionKey]bool // with Lookup: all slots that were saved do not count any more
}

type progressKey struct {
	collectionKey
	place
}

type slotKey struct {
	collectionKey
	Name
}

func newUnsaved() *unsaved {
	return &unsaved{
		map[string]bool{},
		map[resourceKey]bool{},
		map[collectionKey]bool{},
		map[progressKey]bool{},
		map[slotKey]bool{},
		map[uint64]bool{},
		map[collectionKey]bool{},
	}
}

func (u *unsaved) slot(l *slot) {
	if u != nil {
		u.slots[slotKey{collectionKey{l.name.Cluster, l.collection}, l.name}] = true
	}
}

func (u *unsaved) ended(number uint64) {
	if u != nil {
		u.endings[number] = true
	}
}

// read marks what every message of a collection changes.
func (u *unsaved) read(key collectionKey, at place) {
	if u != nil {
		u.collections[key] = true
		u.progress[progressKey{key, at}] = true
	}
}

// dropped marks everything that a collection's copy has.
func (u *unsaved) dropped(c *collection) {
	if u == nil {
		return
	}
	u.collections[c.key], u.drops[c.key] = true, true
	for at := range c.progress {
		u.progress[progressKey{c.key, at}] = true
	}
	for _, l := range c.slots {
		u.slot(l)
	}
}

// Save calls put for each part of the state that has changed since the last call, as a record for a store; value is nil if the record is to be
// deleted. A store that keeps these records, together with how far each partition was read, lets a consumer continue after
// a restart: see [State.Load]. Durable must be set. Save ends at an error of put and returns it; the parts then count as changed still.
//
// With Lookup, put is also called with nil and a key that ends with a comma: all records whose keys begin so are to be deleted. Such a call comes
// before those for the new records. It is long because each kind of record has a block, and a store needs them in this order.
func (s *State) Save(put func(key string, value []byte) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.unsaved
	if u == nil {
		return nil
	}
	if s.failed != nil {
		return fmt.Errorf("look up what the copy has of an object: %w", s.failed)
	}
	write := func(value any, key ...string) error {
		name, err := json.Marshal(key)
		if err != nil {
			return err
		}
		var text []byte
		if value != nil {
			if text, err = json.Marshal(value); err != nil {
				return err
			}
		}
		return put(string(name), text)
	}
	for cluster := range u.births {
		if err := write(s.births[cluster], recordBirth, cluster); err != nil {
			return err
		}
	}
	for key := range u.plans {
		p := s.plans[key]
		if err := write(savedPlan{p.birth, p.number, p.digest}, recordPlan, key.cluster, key.resource); err != nil {
			return err
		}
	}
	for key := range u.collections {
		var value any
		if c := s.collections[key]; c != nil {
			value = savedCollection{c.resource.resource, c.incarnation, c.run, c.closed, c.reason, c.topics}
		}
		if err := write(value, recordCollection, key.cluster, key.id); err != nil {
			return err
		}
	}
	for key := range u.progress {
		var value any
		if c := s.collections[key.collectionKey]; c != nil && c.progress[key.place] != nil {
			p := c.progress[key.place]
			value = savedProgress{key.topic, key.partition, p.phase, p.run, p.syncs, p.asOf, p.edit}
		}
		if err := write(value, recordProgress, key.cluster, key.id, key.String()); err != nil {
			return err
		}
	}
	if s.Lookup != nil {
		for key := range u.drops {
			name, err := json.Marshal([]string{recordSlot, key.cluster, key.id, ""})
			if err != nil {
				return err
			}
			if err := put(strings.TrimSuffix(string(name), `""]`), nil); err != nil {
				return err
			}
		}
		for number := range u.endings {
			var value any
			if i, found := slices.BinarySearchFunc(s.ended, number, func(e ending, n uint64) int { return cmp.Compare(e.number, n) }); found {
				e := &s.ended[i]
				value = savedEnding{e.name.Cluster, e.owner.key.id, e.name.Namespace, e.name.Name}
			}
			if err := write(value, recordEnding, strconv.FormatUint(number, 10)); err != nil {
				return err
			}
		}
	}
	for key := range u.slots {
		var value any
		if c := s.collections[key.collectionKey]; c != nil && c.slots[key.Name] != nil {
			l := c.slots[key.Name]
			value = savedSlot{l.run, l.version, l.deleted, l.ending, l.object}
		}
		if err := write(value, recordSlot, key.cluster, key.id, key.Namespace, key.Name.Name); err != nil {
			return err
		}
	}
	if s.Lookup != nil {
		for key := range u.collections {
			if c := s.collections[key]; c != nil {
				clear(c.slots)
			}
		}
	}
	s.unsaved = newUnsaved()
	return nil
}

// OfObject reports whether a record is about an object. With Lookup, Load needs no such records.
func OfObject(key string) bool { return strings.HasPrefix(key, `["`+recordSlot+`",`) }

func (p place) String() string { return fmt.Sprintf("%s/%d", p.topic, p.partition) }

// Load restores a state from the records that Save has passed to a store, in any order. The state must be empty, with Durable set. Whether the last
// message of a partition was its end is not saved: with Compacted, collections are in step again after a further message.
func (s *State) Load(records iter.Seq2[string, []byte]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
	type saved struct {
		key   []string
		value []byte
	}
	var late []saved // what belongs to a collection
	for name, value := range records {
		var key []string
		if err := json.Unmarshal([]byte(name), &key); err != nil || len(key) < 2 {
			return fmt.Errorf("load the copy: a record has the key %q", name)
		}
		if key[0] == recordSlot && s.Lookup != nil {
			continue
		}
		if key[0] == recordProgress || key[0] == recordSlot || key[0] == recordEnding {
			late = append(late, saved{key, slices.Clone(value)})
			continue
		}
		if err := s.loadRecord(key, value); err != nil {
			return fmt.Errorf("load the copy: record %s: %w", name, err)
		}
	}
	slices.SortFunc(late, func(a, b saved) int { return slices.Compare(a.key, b.key) })
	for _, r := range late {
		if err := s.loadOfCollection(r.key, r.value); err != nil {
			return fmt.Errorf("load the copy: record %q: %w", r.key, err)
		}
	}
	slices.SortFunc(s.ended, func(a, b ending) int { return cmp.Compare(a.number, b.number) })
	if n := len(s.ended); n > 0 {
		s.endings = s.ended[n-1].number
	}
	s.unsaved = newUnsaved()
	return nil
}

func (s *State) loadRecord(key []string, value []byte) error {
	switch {
	case key[0] == recordBirth:
		var birth uint64
		err := json.Unmarshal(value, &birth)
		s.births[key[1]] = birth
		return err
	case key[0] == recordPlan && len(key) == 3:
		var p savedPlan
		err := json.Unmarshal(value, &p)
		s.plans[resourceKey{key[1], key[2]}] = plan{p.Birth, p.Number, p.Digest}
		return err
	case key[0] == recordCollection && len(key) == 3:
		var x savedCollection
		err := json.Unmarshal(value, &x)
		c := newCollection(collectionKey{key[1], key[2]}, resourceKey{key[1], x.Resource}, x.Incarnation)
		c.run, c.closed, c.reason = x.Run, x.Closed, x.Reason
		if x.Topics != nil {
			c.topics = x.Topics
		}
		s.collections[c.key] = c
		return err
	}
	return errKind
}

func (s *State) loadOfCollection(key []string, value []byte) error {
	if key[0] == recordEnding {
		return s.loadEnding(key[1], value)
	}
	if len(key) < 4 {
		return errKind
	}
	c := s.collections[collectionKey{key[1], key[2]}]
	if c == nil {
		return errors.New("its collection has no record")
	}
	if key[0] == recordProgress {
		var p savedProgress
		err := json.Unmarshal(value, &p)
		c.progress[place{p.Topic, p.Partition}] = &progress{p.Phase, p.Run, p.Syncs, synced{p.AsOf, p.Edit}}
		return err
	}
	if len(key) != 5 {
		return errKind
	}
	l, err := loadSlot(c, c.nameOf(key[3], key[4]), value)
	if err != nil {
		return err
	}
	c.slots[l.name] = l
	if l.object != nil {
		s.names[l.name] = append(s.names[l.name], l)
	}
	if l.deleted {
		s.ended = append(s.ended, ending{l.ending, c, l.name})
	}
	return nil
}

func (s *State) loadEnding(number string, value []byte) error {
	var x savedEnding
	n, err := strconv.ParseUint(number, 10, 64)
	if err := errors.Join(err, json.Unmarshal(value, &x)); err != nil {
		return err
	}
	c := s.collections[collectionKey{x.Cluster, x.Collection}]
	if c == nil { // dropped since
		c = newCollection(collectionKey{x.Cluster, x.Collection}, resourceKey{}, 0)
	}
	s.ended = append(s.ended, ending{n, c, c.nameOf(x.Namespace, x.Name)})
	return nil
}

func (c *collection) nameOf(namespace, name string) Name {
	return Name{Cluster: c.key.cluster, Resource: c.resource.resource, Namespace: namespace, Name: name}
}

// loadSlot returns the slot that a record has.
func loadSlot(c *collection, name Name, record []byte) (*slot, error) {
	var x savedSlot
	if err := json.Unmarshal(record, &x); err != nil {
		return nil, err
	}
	return &slot{owner: c, collection: c.key.id, name: name, run: x.Run, version: x.Version, deleted: x.Deleted, ending: x.Ending, object: x.Object}, nil
}

// lookUp returns a slot as it was saved; nil if there is none.
func (s *State) lookUp(c *collection, name Name) (*slot, error) {
	key, err := json.Marshal([]string{recordSlot, c.key.cluster, c.key.id, name.Namespace, name.Name})
	if err != nil {
		return nil, err
	}
	record, err := s.Lookup(string(key))
	if err != nil || record == nil {
		return nil, err
	}
	return loadSlot(c, name, record)
}
