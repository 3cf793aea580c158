// Package inbox keeps audit records on disk from the moment when a sender's request is acknowledged until they are used: a durable queue
// on internal/base/spool. It has any number of readers, each at a position of its own; the caller says up to where records are deleted.
//
// Append returns when its records are synced. Concurrent calls share one sync. Records have consecutive numbers. A reader gets only what
// was confirmed, in order, and a [GapError] where records are missing: a confirmed record is returned or reported as lost.
//
// The records of a call are there after a crash, or none of them. Those of an unconfirmed call may be there, too, for
// example if the bridge was killed before it could answer. Their sender repeats them, so records can come twice. As with
// every log on disk, damage at the end of the last file looks like a crash.
//
// An input that has an offset in its source passes it on with its records: the inbox holds both or none. The metadata of
// each chain of the spool contain the newest offsets, and the last chain is never deleted.
package inbox

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/base/spool"
)

const (
	stream       = "audit"
	segmentBytes = 64 << 20
	// LeastMaxBytes is the smallest Options.MaxBytes. The largest request of an API server must fit.
	LeastMaxBytes = 64 << 20
	// overhead is what a group of frames may need in the spool besides the frames.
	overhead = 8 << 10
)

// ErrFull is returned by Append when the records could exceed Options.MaxBytes. None of them is kept.
var ErrFull = errors.New("the audit inbox is full")

// ErrFormer is returned by Open for an inbox of an earlier version. Its inputs had their offsets in files.
var ErrFormer = errors.New("an earlier version of the bridge has written it")

// Options of an inbox.
type Options struct {
	// MaxBytes limits the bytes on disk. 0 means no limit.
	MaxBytes int64
	// Key encrypts the records: see spool.Options. Nil: they are not encrypted.
	Key []byte
}

// Inbox is a queue in a directory of its own. Its methods can be called at the same time.
type Inbox struct {
	spool   *spool.Spool
	stream  *spool.Stream
	id      string // see ID
	session string

	writing sync.Mutex // held while a group is written; protects the next three
	begun   bool       // there is a chain that accepts frames
	chained int64      // bytes of its frames
	offsets offsets    // that are durable

	mu        sync.Mutex // held for short times. writing comes before it
	open      *group     // to which appended records are added; nil: none waits
	confirmed uint64     // number of the last record that is durable
	failed    []numbers  // records of failed writes: they may be readable, but a crash can take them away
	more      chan struct{}
	closed    bool
}

// offsets are how far inputs are read.
type offsets map[int]json.RawMessage

// call is what one call of AppendAt adds.
type call struct {
	frames [][]byte
	input  int
	offset json.RawMessage // of the input; nil: it has none
}

// group are concurrent calls, which are written and synced together. Inbox.writing protects written and err.
type group struct {
	calls   []call // Inbox.mu protects them while the group is open
	bytes   int64
	written bool
	err     error
}

// numbers are consecutive numbers of records, the first one and that behind the last one.
type numbers struct{ first, end uint64 }

// chainMeta is the metadata of a chain of the spool.
type chainMeta struct {
	Form  int    `json:"form"` // 2. An earlier version wrote none
	Inbox string `json:"inbox"`
	// Session is another one each time the inbox is opened, so no two records have the same session and number.
	Session string `json:"session"`
	// Unconfirmed is set if a chain was begun because a write had failed: the first number that no Append has confirmed. Numbers from it up to
	// the start of the chain may be missing, and are no loss. They are not read.
	Unconfirmed uint64 `json:"unconfirmed,omitzero"`
	// Offsets are those of the records before the chain.
	Offsets offsets `json:"offsets,omitzero"`
}

// Open opens the inbox in a directory, which is created if it does not exist. Damage is no error: readers report it.
func Open(path string, o Options) (*Inbox, error) {
	if o.MaxBytes != 0 && o.MaxBytes < LeastMaxBytes {
		return nil, fmt.Errorf("open audit inbox %s: its limit is %d bytes: use at least %d", path, o.MaxBytes, LeastMaxBytes)
	}
	segment := int64(segmentBytes)
	if o.MaxBytes > 0 {
		segment = min(segment, o.MaxBytes/4) // Trim frees whole chains, which are half as long
	}
	return open(path, spool.Options{MaxBytes: o.MaxBytes, SegmentBytes: segment, Key: o.Key})
}

func open(path string, o spool.Options) (*Inbox, error) {
	s, err := spool.Open(path, o)
	if err != nil {
		return nil, fmt.Errorf("open audit inbox: %w", err)
	}
	b := &Inbox{spool: s, stream: s.Stream(stream), session: rand.Text(), more: make(chan struct{}), offsets: offsets{}}
	b.confirmed = b.stream.Next() - 1
	cut, err := b.restore()
	if err == nil {
		if cut != 0 {
			b.confirmed = cut - 1
		}
		b.id = cmp.Or(b.id, rand.Text())
		err = b.begin(cut, b.offsets)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open audit inbox %s: %w", path, err), s.Close())
	}
	return b, nil
}

// restore reads from the last chain how far inputs are read. cut is the number of the first frame of a call that a crash
// has cut off at the end; 0: there is none.
func (b *Inbox) restore() (cut uint64, err error) {
	chain := uint64(0)
	for _, seg := range b.stream.Segments() {
		if seg.Chain == 0 { // readers report the damage
			continue
		}
		meta, err := metaOf(seg.Meta)
		if err != nil || meta.Form != form {
			return 0, ErrFormer
		}
		if meta.Unconfirmed != 0 && seg.First == seg.Chain {
			b.failed = append(b.failed, numbers{meta.Unconfirmed, seg.Chain})
		}
		if chain != seg.Chain {
			chain, b.id, b.offsets = seg.Chain, meta.Inbox, offsets{}
			maps.Copy(b.offsets, meta.Offsets)
		}
	}
	if chain == 0 {
		return 0, nil
	}
	frames := b.stream.Reader(chain)
	defer func() { err = errors.Join(err, frames.Close()) }()
	for {
		f, err := frames.Next()
		var broken *spool.BrokenError
		switch {
		case errors.As(err, &broken) && broken.Next > 0: // readers report it
			frames, cut = b.stream.Reader(broken.Next), 0
			continue
		case errors.As(err, &broken):
			return 0, nil
		case errors.Is(err, io.EOF), errors.Is(err, spool.ErrTrimmed):
			return cut, nil
		case err != nil:
			return 0, err
		}
		if len(f.Data) > 0 && f.Data[0] == frameMore {
			cut = cmp.Or(cut, f.Number)
			continue
		}
		cut = 0
		if len(f.Data) == 0 || f.Data[0] != frameOffset {
			continue
		}
		if e, err := decode(f.Data); err == nil {
			b.offsets[e.Input] = e.Offset
		}
	}
}

// begin starts a chain. writing is held, except by Open.
func (b *Inbox) begin(unconfirmed uint64, at offsets) error {
	meta, err := json.Marshal(chainMeta{form, b.id, b.session, unconfirmed, at})
	if err != nil {
		return err
	}
	first, err := b.stream.Begin(meta, 0)
	b.begun, b.chained = err == nil, 0
	if err == nil && unconfirmed != 0 {
		b.addFailed(numbers{unconfirmed, first})
	}
	return err
}

func (b *Inbox) addFailed(n numbers) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if last := len(b.failed) - 1; last >= 0 && b.failed[last].first == n.first {
		b.failed = b.failed[:last]
	}
	b.failed = append(b.failed, n)
}

// hasFailed reports whether a record is of a failed write.
func (b *Inbox) hasFailed(n uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.failed, func(f numbers) bool { return f.first <= n && n < f.end })
}

// ID identifies the inbox. It stays from the first Append on, unless no chain can be read.
func (b *Inbox) ID() string { return b.id }

// Last returns the number of the last record that is durable; 0: there is none.
func (b *Inbox) Last() uint64 { return b.lastConfirmed() }

// First returns the number of the first record that may be there.
func (b *Inbox) First() uint64 { return b.stream.First() }

// Bytes returns the bytes on disk.
func (b *Inbox) Bytes() int64 { return b.spool.Bytes() }

// MaxBytes returns Options.MaxBytes.
func (b *Inbox) MaxBytes() int64 { return b.spool.MaxBytes() }

// Offset returns the offset of an input that AppendAt has made durable last; nil: there is none.
func (b *Inbox) Offset(input int) json.RawMessage {
	b.writing.Lock()
	defer b.writing.Unlock()
	return b.offsets[input]
}

// Append adds records. After nil they are durable, after ErrFull none is kept. After another error, a crash may leave all.
func (b *Inbox) Append(records []audit.Record) error { return b.AppendAt(records, 0, nil) }

// AppendAt is Append for records of an input, with its offset behind them; nil: it has none. There may be no records.
func (b *Inbox) AppendAt(records []audit.Record, input int, offset json.RawMessage) error {
	c, err := newCall(records, input, offset)
	if err != nil {
		return fmt.Errorf("append to audit inbox: %w", err)
	}
	if len(c.frames) == 0 {
		return nil
	}
	g, err := b.join(c)
	if err != nil {
		return err
	}
	b.writing.Lock()
	defer b.writing.Unlock()
	if !g.written {
		b.write(b.take())
	}
	return g.err
}

// join adds a call to the open group.
func (b *Inbox) join(c call) (*group, error) {
	size := int64(0)
	for _, f := range c.frames {
		size += int64(len(f)) + 5
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting := int64(0)
	if b.open != nil {
		waiting = b.open.bytes
	}
	if limit := b.spool.MaxBytes(); limit > 0 && b.spool.Bytes()+waiting+size+overhead > limit {
		return nil, fmt.Errorf("%w: it has %d of %d bytes", ErrFull, b.spool.Bytes(), limit)
	}
	if b.open == nil {
		b.open = &group{}
	}
	b.open.calls = append(b.open.calls, c)
	b.open.bytes += size
	return b.open, nil
}

// take closes the open group. The caller is of that group, and writes it.
func (b *Inbox) take() *group {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.open
	b.open = nil
	return g
}

// write writes and syncs a group. writing is held.
func (b *Inbox) write(g *group) {
	g.written = true
	last, err := b.writeCalls(g.calls)
	g.calls = nil
	if err != nil {
		if errors.Is(err, spool.ErrFull) {
			err = fmt.Errorf("%w: %w", ErrFull, err)
		}
		b.begun = false // some of the frames may be written
		g.err = fmt.Errorf("append to audit inbox: %w", err)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.confirmed = last
	b.wake()
}

func (b *Inbox) writeCalls(calls []call) (last uint64, err error) {
	if !b.begun { // a write has failed
		if err := b.begin(b.lastConfirmed()+1, b.offsets); err != nil {
			return 0, err
		}
	}
	now := maps.Clone(b.offsets)
	for _, c := range calls {
		if b.chained >= b.stream.SegmentBytes()/2 {
			if err := b.begin(0, now); err != nil {
				return 0, err
			}
		}
		for _, f := range c.frames {
			if last, err = b.stream.Append(f); err != nil {
				return 0, err
			}
			b.chained += int64(len(f))
		}
		if c.offset != nil {
			now[c.input] = c.offset
		}
	}
	if err := b.stream.Flush(true); err != nil {
		return 0, err
	}
	b.offsets = now
	return last, nil
}

// wake makes readers that wait look again. mu is held.
func (b *Inbox) wake() {
	close(b.more)
	b.more = make(chan struct{})
}

// Trim deletes records up to a position that a reader has returned, except those of the last chain: it contains the
// offsets, and the last record, from which a reader knows later that it continues in the same inbox.
func (b *Inbox) Trim(upTo Position) error {
	if upTo == (Position{}) || upTo.Number < b.First() { // there is nothing before it any more
		return nil
	}
	list := b.stream.Segments()
	for _, seg := range list {
		if seg.First <= upTo.Number && upTo.Number <= seg.Last {
			if meta, err := metaOf(seg.Meta); err != nil || meta.Session != upTo.Session {
				break
			}
			b.mu.Lock()
			b.failed = slices.DeleteFunc(b.failed, func(f numbers) bool { return f.end <= upTo.Number })
			b.mu.Unlock()
			return b.stream.Trim(min(upTo.Number, cmp.Or(list[len(list)-1].Chain, upTo.Number)))
		}
	}
	return fmt.Errorf("trim audit inbox: it has no record %d of session %q", upTo.Number, upTo.Session)
}

// Close ends the inbox. Later calls return errors.
func (b *Inbox) Close() error {
	b.writing.Lock()
	defer b.writing.Unlock()
	err := b.spool.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.wake()
	return err
}
