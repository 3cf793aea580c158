package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/base/spool"
)

// Position is a place in an inbox: behind one record. The zero value is before the first record that is there.
type Position struct {
	Session string `json:"session,omitzero"` // of the record; no two records have the same session and number
	Number  uint64 `json:"number,omitzero"`
}

// Item is a record, and the position behind it.
type Item struct {
	Record   *audit.Record // nil: there is none, only the offset of an input
	Position Position
}

// Size returns about how many bytes of memory the record takes.
func (i *Item) Size() int {
	if i.Record == nil {
		return 0
	}
	return i.Record.Size()
}

// GapError is returned by a reader where confirmed records are missing. The reader continues behind them. If a write fails and a crash follows,
// it may also be returned for records that were not confirmed.
type GapError struct {
	// From and To are the first and the last number that are missing, 0 where that is not known: the inbox is not the one that the reader's
	// position is of.
	From, To uint64
	Err      error // why
}

func (e *GapError) Error() string {
	if e.From == 0 {
		return fmt.Sprintf("audit inbox: records are missing: %v", e.Err)
	}
	return fmt.Sprintf("audit inbox: records %d to %d are missing: %v", e.From, e.To, e.Err)
}

func (e *GapError) Unwrap() error { return e.Err }

var (
	errForeign  = errors.New("the position is of another inbox, or what was behind it is lost")
	errNoRecord = errors.New("it is no record that this version can read")
)

// Reader reads records in order. It is for one goroutine.
type Reader struct {
	inbox   *Inbox
	after   Position
	checked bool // after is a position of this inbox
	frames  *spool.Reader
	want    uint64 // the next number
}

// Reader returns a reader of the records behind a position.
func (b *Inbox) Reader(after Position) *Reader { return &Reader{inbox: b, after: after} }

// Next returns the next record. Its errors are io.EOF if there is none yet, a *[GapError], behind which the reader goes on, and those of
// the file system and of a closed inbox, after which it can be called again.
func (r *Reader) Next() (Item, error) {
	if !r.checked {
		if err := r.start(); err != nil {
			return Item{}, err
		}
	}
	for {
		last := r.inbox.lastConfirmed()
		if r.want > last {
			return Item{}, io.EOF
		}
		f, err := r.frames.Next()
		var broken *spool.BrokenError
		switch {
		case errors.As(err, &broken):
			next := broken.Next
			if next == 0 { // what is appended after last can be read
				next = last + 1
			}
			if err := r.skip(next, err); err != nil {
				return Item{}, err
			}
		case errors.Is(err, spool.ErrTrimmed):
			if err := r.skip(r.inbox.First(), err); err != nil {
				return Item{}, err
			}
		case err != nil:
			return Item{}, err
		case r.inbox.hasFailed(f.Number): // its sender repeats it
			r.want = f.Number + 1
		default:
			return r.item(f)
		}
	}
}

// Wait returns nil when Next has something else to return than io.EOF, and an error if ctx ends before.
func (r *Reader) Wait(ctx context.Context) error {
	for {
		r.inbox.mu.Lock()
		more, ready := r.inbox.more, !r.checked || r.want <= r.inbox.confirmed || r.inbox.closed
		r.inbox.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close frees what the reader uses.
func (r *Reader) Close() error {
	if r.frames == nil {
		return nil
	}
	return r.frames.Close()
}

// start checks that the record at the position is there, so that all behind it are.
func (r *Reader) start() error {
	if r.after == (Position{}) {
		r.goTo(r.inbox.First())
		return nil
	}
	r.frames = r.inbox.stream.Reader(r.after.Number)
	f, err := r.frames.Next()
	if err == nil {
		var meta chainMeta
		if meta, err = metaOf(f.Meta); err == nil && meta.Session == r.after.Session {
			r.checked, r.want = true, f.Number+1
			return nil
		}
		err = errForeign
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, spool.ErrTrimmed) && !errors.Is(err, spool.ErrBroken) && !errors.Is(err, errForeign) {
		return err
	}
	first := r.inbox.First()
	r.goTo(first)
	if errors.Is(err, spool.ErrTrimmed) { // numbers go on
		return &GapError{r.after.Number + 1, max(first-1, r.after.Number+1), err}
	}
	return &GapError{Err: errForeign}
}

func (r *Reader) goTo(n uint64) {
	r.frames, r.want, r.checked = r.inbox.stream.Reader(n), n, true
}

// skip goes on with a record behind missing ones; it may be one that is not appended yet. It returns nil if none of the missing ones was confirmed.
func (r *Reader) skip(next uint64, why error) error {
	from := r.want
	r.goTo(next)
	f, err := r.frames.Next()
	r.goTo(next)
	if err == nil && f.Chain == f.Number {
		if meta, err := metaOf(f.Meta); err == nil && meta.Unconfirmed != 0 && meta.Unconfirmed <= from {
			return nil
		}
	}
	return &GapError{from, next - 1, why}
}

func (r *Reader) item(f spool.Frame) (Item, error) {
	r.want = f.Number + 1
	meta, err := metaOf(f.Meta)
	if err != nil {
		return Item{}, &GapError{f.Number, f.Number, errNoRecord}
	}
	e, err := decode(f.Data)
	if err != nil {
		return Item{}, &GapError{f.Number, f.Number, err}
	}
	return Item{e.Record, Position{meta.Session, f.Number}}, nil
}

func metaOf(text []byte) (meta chainMeta, err error) {
	err = json.Unmarshal(text, &meta)
	return meta, err
}

func (b *Inbox) lastConfirmed() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.confirmed
}
