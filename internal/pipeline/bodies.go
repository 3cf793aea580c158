package pipeline

import (
	"context"
	"encoding/binary"
	"fmt"
	"regexp"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape/manager"
	"github.com/kubebridge/kubebridge/pkg/shape/patch"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// keptBytes bounds a kept body, compressed: a store on a bus takes no larger values
// than the bus does. A larger one is not kept.
const keptBytes = 128 << 10

// keeper keeps bodies as they were told, and tells what changed since. An entry has
// the digest of the body last told, so that what is kept is either certainly that
// one or not used (design rule 3).
type keeper struct {
	encoder *zstd.Encoder
	decoder *zstd.Decoder
	maker   patch.Maker
	teller  manager.Teller
	before  []byte // of the object at hand
	whole   []byte // the object at hand, with its managedFields
}

func (l *Lane) keeping() *keeper {
	if l.keeper == nil {
		k := &keeper{}
		// Options that are constant: these cannot fail.
		k.encoder, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
		k.decoder, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(64<<20))
		l.keeper = k
	}
	return l.keeper
}

// former is a state that the bus was told before: the last one.
type former struct {
	body []byte // nil: it is not known
	rv   string
}

// lastTold returns the body that the bus was last told of an object, until it is
// called again.
func (l *Lane) lastTold(m *member, key []byte, known *checkpoint.Entry) (former, error) {
	if !m.lens.keeps() || known == nil || !known.Told || known.Body == 0 {
		return former{}, nil
	}
	value, err := l.inv.body(key)
	if err != nil || value == nil {
		return former{}, err
	}
	n, w := binary.Uvarint(value)
	if w <= 0 || n > uint64(len(value)-w) {
		return former{}, nil
	}
	rv, packed := value[w:w+int(n)], value[w+int(n):]
	k := l.keeping()
	body, err := k.decoder.DecodeAll(packed, k.before[:0])
	if err != nil {
		return former{}, nil
	}
	if k.before = body; digestOf(body) != known.Body {
		return former{}, nil
	}
	return former{body, string(rv)}, nil
}

// lastPublishedBody returns the kept body of an object that is gone, in the current batch's memory, and nil where
// none is kept. A body that was published under other redaction rules than those of now is not published again.
func (l *Lane) lastPublishedBody(m *member, key []byte, known *checkpoint.Entry) ([]byte, error) {
	if m.lens == nil || m.lens.shape != m.note.Shape {
		return nil, nil
	}
	last, err := l.lastTold(m, key, known)
	if err != nil || last.body == nil {
		return nil, err
	}
	room := l.current.room(len(last.body))
	return l.current.keep(room, append(room, last.body...)), nil
}

// digestOf tells a body from others. It is never 0.
func digestOf(body []byte) uint64 { return max(xxhash.Sum64(body), 1) }

// keep has the entry name a body that is being told, and returns the change that
// keeps it.
func (l *Lane) keep(m *member, key, body []byte, entry *checkpoint.Entry, known *checkpoint.Entry) []event.KV {
	if !m.lens.keeps() {
		return nil
	}
	b := l.current
	if body != nil {
		entry.Body = digestOf(body)
		if known != nil && known.Told && known.Body == entry.Body {
			return nil
		}
		room := b.room(len(body)/2 + len(entry.RV) + 64)
		value := append(binary.AppendUvarint(room, uint64(len(entry.RV))), entry.RV...)
		if value = l.keeping().encoder.EncodeAll(body, value); len(value) <= keptBytes {
			value = b.keep(room, value)
			return l.inv.setBody(b, key, value, entry, m)
		}
		l.metrics.unkept.WithLabelValues(l.id.Sink, m.resource).Inc()
	}
	entry.Body = 0
	return l.inv.setBody(b, key, nil, entry, m)
}

// unkeep returns the change that forgets the body of an object that was told as e and
// is now next, nil if it is gone.
func (l *Lane) unkeep(m *member, key []byte, e, next *checkpoint.Entry) []event.KV {
	if e.Body != 0 || m.lens != nil && m.lens.keeps() {
		return l.inv.setBody(l.current, key, nil, next, m)
	}
	return nil
}

// dropBodies forgets what was kept for a member that keeps nothing now.
func (l *Lane) dropBodies(ctx context.Context, m *member) error {
	if m.lens.keeps() {
		return nil
	}
	n := 0
	err := l.store.Scan(checkpoint.BodyPrefix(m.resource, m.target.Collection.Namespace), func(key, _ []byte) error {
		entry := checkpoint.EntryKeyOf(key)
		known, err := l.inv.get(entry)
		if err != nil || known != nil && !m.holds(entry, known) {
			return err
		}
		n++
		if err := l.room(ctx); err != nil {
			return err
		}
		l.quietly(m, event.KV{Key: append([]byte(nil), key...)})
		return nil
	})
	if n > 0 && err == nil {
		l.log.Info("bodies are no longer kept: those that were are removed", m.field(), zapCount(n))
	}
	return err
}

// tellChange puts into an event what changed since the state before, and by whom.
func (l *Lane) tellChange(m *member, ev *event.Event, o *source.Object, before former) error {
	v, b := m.lens, l.current
	if ev.Object == nil && v.keeps() {
		return nil
	}
	if before.body != nil && v.patch {
		room := b.room(512)
		out, err := l.keeping().maker.Append(room, before.body, ev.Object)
		if err != nil {
			return fmt.Errorf("compare %s with what was told of it: %w", objectName(ev), err)
		}
		ev.Patch, ev.Base = b.keep(room, out), before.rv
	}
	if before.body != nil && v.before {
		room := b.room(len(before.body))
		ev.Before, ev.Base = b.keep(room, append(room, before.body...)), before.rv
	}
	if v.changedBy {
		l.tellBy(m, ev, o, before)
	}
	return nil
}

// tellBy tells by whom an object was changed. What cannot be read of that is left out.
func (l *Lane) tellBy(m *member, ev *event.Event, o *source.Object, before former) {
	k, v, b := l.keeping(), m.lens, l.current
	whole := o.Raw
	if v.hide != nil { // so that what is hidden on both sides is not taken for a change
		out, err := v.hide.Append(k.whole[:0], o.Raw, o.Namespace+"/"+o.Name)
		if err != nil {
			return
		}
		k.whole, whole = out, out
	}
	var (
		changes []manager.Change
		err     error
	)
	if before.body != nil {
		changes, err = k.teller.By(before.body, whole)
	} else {
		changes, err = k.teller.Newest(whole, time.Time{})
	}
	if err != nil || len(changes) == 0 {
		return
	}
	if v.hide != nil {
		for i := range changes {
			changes[i].Paths = withoutValues(changes[i].Paths)
		}
	}
	room := b.room(512)
	ev.ChangedBy = b.keep(room, manager.Append(room, changes))
}

// selectors are the parts of a place that may quote a value of the object.
var selectors = regexp.MustCompile(`\[(?:[^\]"]|"(?:[^"\\]|\\.)*")*\]`)

// withoutValues writes places without the keys and values that tell elements apart.
func withoutValues(paths []string) []string {
	var out []string
	told := map[string]bool{}
	for _, p := range paths {
		if p = selectors.ReplaceAllString(p, "[*]"); !told[p] {
			told[p] = true
			out = append(out, p)
		}
	}
	return out
}

// strip takes out of the next event of an object, from a record on, what refers to a
// state that the bus was not told after all. It reports whether there was one.
func (b *batch) strip(key []byte, from int) bool {
	for i := from; i < len(b.of); i++ {
		if string(b.of[i].key) != string(key) {
			continue
		}
		ev := *b.Records[i].Event
		if ev.Before == nil && ev.Patch == nil {
			return true
		}
		ev.Before, ev.Patch, ev.Base = nil, nil, ""
		b.replace(i, &ev)
		return true
	}
	return false
}

// untoldBody has the inventory name the body of a record's object that was told
// before it, 0 for none: the record's own is not on the bus as it was made. What
// refers to it is corrected.
func (b *batch) untoldBody(at int, was uint64) {
	o := b.of[at]
	if o.key == nil {
		return
	}
	body := checkpoint.BodyKeyOf(o.key)
	for i := 0; i < len(b.moves); i++ {
		v := b.moves[i]
		switch {
		case v.origin != o.origin || v.Value == nil:
		case string(v.Key) == string(o.key):
			if e, err := checkpoint.DecodeEntry(v.Value); err == nil {
				e.Body = was
				b.restate(at, i, e)
			}
		case string(v.Key) == string(body) && was == 0:
			b.moves[i].Value = nil
		case string(v.Key) == string(body): // the one before it stays
			b.moves = append(b.moves[:i], b.moves[i+1:]...)
			i--
		}
	}
	b.Commit.Changes = changes(b.moves)
	if !b.strip(o.key, at+1) {
		b.unread = append(b.unread, o.key)
	}
}
