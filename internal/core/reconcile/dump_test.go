package reconcile

import (
	"maps"
	"slices"
	"strconv"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// dump serializes the state of a world, so that it can be hashed.
type dump struct {
	b     []byte
	marks []mark
}

// mark is a place in the dump for the number of a run.
type mark struct {
	at         int
	collection string
	run        uint64
}

// rank writes the rank of each run among the runs of its collection, so that worlds that differ only in the numbers of
// their runs have one hash.
func (d *dump) rank() []byte {
	runs := map[string][]uint64{}
	for _, m := range d.marks {
		if !slices.Contains(runs[m.collection], m.run) {
			runs[m.collection] = append(runs[m.collection], m.run)
		}
	}
	for _, list := range runs {
		slices.Sort(list)
	}
	for _, m := range d.marks {
		d.b[m.at] = byte(1 + slices.Index(runs[m.collection], m.run))
	}
	return d.b
}

func (d *dump) run(collection string, n uint64) {
	if n != 0 {
		d.marks = append(d.marks, mark{len(d.b), collection, n})
	}
	d.b = append(d.b, 0)
}

func (d *dump) text(list ...string) {
	for _, s := range list {
		d.b = append(append(d.b, s...), 0)
	}
}

func (d *dump) number(list ...int) {
	for _, n := range list {
		d.b = append(strconv.AppendInt(d.b, int64(n), 36), 0)
	}
}

func (d *dump) flag(list ...bool) {
	for _, f := range list {
		n := byte('-')
		if f {
			n = '+'
		}
		d.b = append(d.b, n)
	}
}

func (d *dump) properties(p Properties) {
	d.text(p.Selection, p.Filter, p.Shape, p.Storage, p.Route)
	d.flag(p.Skip, p.Tombstones)
	d.number(int(p.Types))
}

func (d *dump) record(id string, r *Record) {
	d.number(int(r.Phase), int(r.Epoch), int(r.SyncedEpoch), int(r.Syncs))
	d.run(id, r.Run)
	d.run(id, r.Incarnation)
	d.run(id, r.EpochRun)
	d.text(string(r.Reason), r.ListedSelection, r.Route)
	d.flag(r.Resync, r.Unwanted, r.EndedAny, r.ClosedEmitted, r.Partial)
	d.properties(r.Properties)
}

func (d *dump) progress(p Progress) { d.text(p.Position, p.Seen) }

func (d *dump) object(id string, o *Object) {
	if o == nil {
		d.text("nil")
		return
	}
	d.text(o.UID, o.Version, o.At)
	d.number(int(o.Digest.number()), int(o.Status), int(o.AtDigest.number()), int(o.Significant.number()))
	d.run(id, o.Judged)
	d.run(id, o.Run)
}

func (d *dump) changes(list []Change) {
	m := map[Slot]*Object{}
	for _, c := range list {
		m[c.Slot] = c.Object
	}
	d.objects(m)
}

func (d *dump) objects(m map[Slot]*Object) {
	d.number(len(m))
	for _, slot := range sortedSlots(m) {
		d.text(slot.Collection, slot.Key)
		d.object(slot.Collection, m[slot])
	}
}

func (d *dump) intents(m map[Slot][]Intent) {
	d.number(len(m))
	for _, slot := range sortedSlots(m) {
		d.text(slot.Collection, slot.Key)
		for i := range m[slot] {
			d.object(slot.Collection, &m[slot][i].Object)
			d.flag(m[slot][i].Deleted)
			d.number(int(m[slot][i].Epoch))
		}
	}
}

func (d *dump) item(i *Item) {
	d.text(i.Collection)
	d.run(i.Collection, i.Run)
	d.run(i.Collection, i.Incarnation)
	d.number(int(i.Epoch))
	switch e := i.Event; {
	case e != nil:
		d.text(e.Type.String(), string(e.Reason), e.Version, e.From)
		d.flag(e.Reset)
		d.number(int(e.Nth))
	default:
		o := i.Object
		d.text(o.Type.String(), o.Key, o.Version)
		d.object(i.Collection, &o.Object)
		d.number(int(o.Fate))
		d.flag(o.DeadLetter, o.Null)
		if o.Type != event.Deleted {
			d.number(o.Body.(int))
		}
	}
	for _, c := range i.Changes {
		d.text(c.Key)
		d.object(i.Collection, c.Object)
	}
	if i.Record != nil {
		d.record(i.Collection, i.Record)
	}
	d.progress(i.Progress)
}

func (d *dump) keys2(m map[string]bool) { d.text(sorted(m)...); d.b = append(d.b, ';') }

func sortedInts(m map[int]bool) []int { return slices.Sorted(maps.Keys(m)) }

func (d *dump) keys(m map[string]struct{}) { d.text(sorted(m)...); d.b = append(d.b, ';') }

// set writes the keys of a keySet. A keySet has only hashes, so set looks up every name that can be in it.
func (d *dump) set(s keySet) {
	for _, name := range objectNames {
		if s.has(name) {
			d.text(name)
		}
	}
	d.number(len(s))
}

func (d *dump) world(w *world) {
	d.number(w.config, w.writes, w.disturbances, w.unnoticed, w.reader.back, w.cluster.epoch-w.noticed)
	d.flag(w.reader.crashed)
	c := w.cluster
	d.number(c.compacted)
	d.flag(c.absent)
	d.number(c.defaults, c.floor, c.absentAt)
	d.keys2(w.suspended)
	d.keys2(w.drifted)
	for _, id := range sorted(w.resets) {
		d.text("reset", id)
		d.run(id, w.resets[id])
	}
	for _, id := range sorted(w.resyncs) {
		d.text("resync", id)
		d.run(id, w.resyncs[id])
	}
	for _, n := range sortedInts(w.dead) {
		d.number(n)
	}
	for v := range c.history {
		for _, name := range sorted(c.history[v].changed) {
			d.text(name)
			if t := c.history[v].changed[name]; t != nil {
				d.number(t.uid, t.group, t.body)
				d.flag(t.large)
				d.number(t.major)
			}
		}
	}
	s := w.store
	for _, id := range sorted(s.records) {
		r := s.records[id]
		d.text(id)
		d.record(id, &r)
		d.progress(s.progress[id])
	}
	for _, id := range sorted(s.epochs) {
		d.number(int(s.epochs[id]))
	}
	for _, id := range sorted(s.drafts) {
		x := s.drafts[id]
		d.text("draft", id)
		d.record(id, &x.Record)
		d.progress(x.Progress)
		d.flag(x.Gap, x.Synced, x.Resync)
	}
	d.objects(s.objects)
	d.intents(s.intents)
	d.core(w)
	for _, id := range sorted(w.reader.collections) {
		d.copied(id, w.reader.collections[id])
	}
}

func (d *dump) core(w *world) {
	k := w.core
	d.intents(k.intents)
	for _, id := range sorted(k.epochs) {
		d.number(int(k.epochs[id]))
	}
	for _, id := range sorted(k.collections) {
		x := k.collections[id]
		d.text(id)
		d.record(id, &x.Record)
		d.progress(x.Progress)
		d.flag(x.barrier > k.done, x.batch.record == x.stored(), x.batch.progress == x.Progress, x.batch.recorded)
		d.text(w.reads[id].selection)
		for _, ch := range x.batch.silent {
			d.text(ch.Key)
			d.object(id, ch.Object)
		}
		if l := x.list; l != nil {
			d.text("list", l.cursor, l.version)
			d.set(l.seen)
			d.flag(l.absent, l.ended)
			d.text(l.keys...)
		}
		if x.forgetting != nil && x.Phase == Ending {
			d.text("rest", x.forgetting.cursor)
			d.text(x.forgetting.keys...)
		}
		d.run(id, x.broken)
		d.flag(x.samples != nil)
		for _, s := range x.samples {
			d.text("sample", s.Key, s.Position, s.UID, s.Version)
			d.number(int(s.Digest.number()))
		}
		if l := x.side; l != nil {
			d.text("side", l.version)
			d.set(l.seen)
			d.keys(l.open)
			d.keys(l.touched)
		}
		if r := w.readers[id]; r != nil && r.number == x.read {
			d.text("reader")
			d.flag(r.begun, r.listing)
			d.text(r.names...)
			d.number(r.version, r.resume, r.last, r.next)
			if r.sides != nil {
				d.text(r.sides.names...)
				d.number(r.sides.version)
				d.flag(r.sides.old)
			}
		}
	}
	for _, q := range []*pending{k.current, k.inFlight} {
		d.flag(q == nil)
		if q == nil {
			continue
		}
		for i := range q.items {
			d.item(&q.items[i])
		}
		d.changes(q.changes)
		d.text(slices.Sorted(slices.Values(q.dirty))...)
		for _, x := range q.settled {
			d.text(x.Collection, x.Key, x.UID)
		}
	}
}

func (d *dump) copied(id string, x *copied) {
	d.text("copy", id)
	d.run(id, x.run)
	d.run(id, x.incarnation)
	d.run(id, x.closed)
	d.flag(x.open, x.settled)
	d.number(int(x.synced), x.upTo, int(x.syncedAt.epoch), x.syncedAt.version)
	d.properties(x.syncedAt.properties)
	d.text(x.syncedAt.route, x.route)
	for _, name := range sorted(x.last) {
		o := x.last[name]
		d.text(name, o.version, o.uid)
		d.run(id, o.run)
		d.flag(o.deleted)
		d.number(o.body, int(o.epoch))
	}
	for _, name := range sorted(x.dead) {
		o := x.dead[name]
		d.text(name, o.version, o.uid)
		d.run(id, o.run)
	}
	for _, key := range sorted(x.table) {
		d.text(key)
		d.run(id, x.table[key])
	}
	for _, uid := range sorted(x.objects) {
		o := x.objects[uid]
		d.text(uid, o.name, o.version)
		d.number(o.body)
		d.run(id, o.run)
	}
}
