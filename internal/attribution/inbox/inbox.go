// Package inbox keeps audit records on disk from the moment when a sender's request is acknowledged until they are used: a durable queue
// on internal/base/spool. It has any number of readers, each at a position of its own; the caller says up to where records are deleted.
//
// Append returns when its records are synced. Concurrent calls share one sync. Records have consecutive numbers. A reader gets only what
// was confirmed, in order, and a [GapError] where records are missing: a confirmed record is returned or reported as lost.
//
// A record that was not confirmed may be read, too, for example if the bridge was killed before it could answer. Its sender repeats it then,
// so records can come twice. As with every log on disk, damage at the end of the last file looks like a crash.
package inbox

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/base/spool"
)

const (
	stream       = "audit"
	segmentBytes = 8 << 20
	// LeastMaxBytes is the smallest Options.MaxBytes. The largest request of an API server must fit.
	LeastMaxBytes = 64 << 20
	// overhead is what a group of frames may need in the spool besides the frames.
	overhead = 8 << 10
)

// ErrFull is returned by Append when the records could exceed Options.MaxBytes. None of them is kept.
var ErrFull = errors.New("the audit inbox is full")

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
	session string

	writing sync.Mutex // held while a group is written
	begun   bool       // there is a chain that accepts frames; writing protects it

	mu        sync.Mutex // held for short times. writing comes before it
	open      *group     // to which appended records are added; nil: none waits
	confirmed uint64     // number of the last record that is durable
	failed    []numbers  // records of failed writes: they may be readable, but a crash can take them away
	more      chan struct{}
	closed    bool
}

// group are the frames of concurrent calls of Append, which are written and synced together. Inbox.writing protects written and err.
type group struct {
	frames  [][]byte // Inbox.mu protects them while the group is open
	bytes   int64
	written bool
	err     error
}

// numbers are consecutive numbers of records, the first one and that behind the last one.
type numbers struct{ first, end uint64 }

// chainMeta is the metadata of a chain of the spool.
type chainMeta struct {
	// Session is another one each time the inbox is opened, so no two records have the same session and number.
	Session string `json:"session"`
	// Unconfirmed is set if a chain was begun because a write had failed: the first number that no Append has confirmed. Numbers from it up to
	// the start of the chain may be missing, and are no loss.
	Unconfirmed uint64 `json:"unconfirmed,omitzero"`
}

// Open opens the inbox in a directory, which is created if it does not exist. Damage is no error: readers report it.
func Open(path string, o Options) (*Inbox, error) {
	if o.MaxBytes != 0 && o.MaxBytes < LeastMaxBytes {
		return nil, fmt.Errorf("open audit inbox %s: its limit is %d bytes: use at least %d", path, o.MaxBytes, LeastMaxBytes)
	}
	segment := int64(segmentBytes)
	if o.MaxBytes > 0 {
		segment = min(segment, o.MaxBytes/8) // Trim frees whole segments
	}
	return open(path, spool.Options{MaxBytes: o.MaxBytes, SegmentBytes: segment, Key: o.Key})
}

func open(path string, o spool.Options) (*Inbox, error) {
	s, err := spool.Open(path, o)
	if err != nil {
		return nil, fmt.Errorf("open audit inbox: %w", err)
	}
	b := &Inbox{spool: s, stream: s.Stream(stream), session: rand.Text(), more: make(chan struct{})}
	b.confirmed = b.stream.Next() - 1
	if err := b.begin(0); err != nil {
		return nil, errors.Join(fmt.Errorf("open audit inbox: %w", err), s.Close())
	}
	return b, nil
}

// begin starts a chain. writing is held, except by Open.
func (b *Inbox) begin(unconfirmed uint64) error {
	meta, err := json.Marshal(chainMeta{b.session, unconfirmed})
	if err != nil {
		return err
	}
	first, err := b.stream.Begin(meta, 0)
	b.begun = err == nil
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

// hasFailed reports whether a record is of a failed write of this session.
func (b *Inbox) hasFailed(n uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.failed, func(f numbers) bool { return f.first <= n && n < f.end })
}

// Last returns the number of the last record that is durable; 0: there is none.
func (b *Inbox) Last() uint64 { return b.lastConfirmed() }

// First returns the number of the first record that may be there.
func (b *Inbox) First() uint64 { return b.stream.First() }

// Bytes returns the bytes on disk.
func (b *Inbox) Bytes() int64 { return b.spool.Bytes() }

// MaxBytes returns Options.MaxBytes.
func (b *Inbox) MaxBytes() int64 { return b.spool.MaxBytes() }

// Append adds records. When it returns nil, they are durable. With ErrFull, none of them is kept. After another error some may be.
func (b *Inbox) Append(records []audit.Record) error {
	frames := make([][]byte, len(records))
	for i := range records {
		var err error
		if frames[i], err = encode(&records[i]); err != nil {
			return fmt.Errorf("append to audit inbox: %w", err)
		}
	}
	if len(frames) == 0 {
		return nil
	}
	g, err := b.join(frames)
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

// join adds frames to the open group.
func (b *Inbox) join(frames [][]byte) (*group, error) {
	size := int64(0)
	for _, f := range frames {
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
	b.open.frames = append(b.open.frames, frames...)
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
	last, err := b.writeFrames(g.frames)
	g.frames = nil
	if err != nil {
		if errors.Is(err, spool.ErrFull) {
			err = fmt.Errorf("%w: %w", ErrFull, err)
		}
		b.begun = b.begun && !errors.Is(err, spool.ErrFailed)
		g.err = fmt.Errorf("append to audit inbox: %w", err)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.confirmed = last
	b.wake()
}

func (b *Inbox) writeFrames(frames [][]byte) (last uint64, err error) {
	if !b.begun { // a write has failed
		b.mu.Lock()
		unconfirmed := b.confirmed + 1
		b.mu.Unlock()
		if err := b.begin(unconfirmed); err != nil {
			return 0, err
		}
	}
	for _, f := range frames {
		if last, err = b.stream.Append(f); err != nil {
			return 0, err
		}
	}
	return last, b.stream.Flush(true)
}

// wake makes readers that wait look again. mu is held.
func (b *Inbox) wake() {
	close(b.more)
	b.more = make(chan struct{})
}

// Trim deletes records up to a position that a reader has returned. The last one stays: from it a reader knows later that it
// continues in the same inbox.
func (b *Inbox) Trim(upTo Position) error {
	if upTo == (Position{}) || upTo.Number < b.First() { // there is nothing before it any more
		return nil
	}
	for _, seg := range b.stream.Segments() {
		if seg.First <= upTo.Number && upTo.Number <= seg.Last {
			if meta, err := metaOf(seg.Meta); err != nil || meta.Session != upTo.Session {
				break
			}
			b.mu.Lock()
			b.failed = slices.DeleteFunc(b.failed, func(f numbers) bool { return f.end <= upTo.Number })
			b.mu.Unlock()
			return b.stream.Trim(upTo.Number)
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
