package buffer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// exchangeEvery is how often a standby reads the list, and the leader looks whether it has to be written.
	exchangeEvery = 2 * time.Second
	// positionsEvery is the least time between two writes of the list that only move positions.
	positionsEvery = 5 * time.Second
	// rereadEvery is how often the leader looks whether its list is still there.
	rereadEvery = 15 * time.Second
	// heirWithin is how long a standby goes on recording if the leader lists nothing.
	heirWithin = 5 * time.Minute
)

var (
	// ErrChanged is wrapped by the error of [Note].Write when another process has written since the last Read.
	ErrChanged = errors.New("another process has written the list of recordings")
	// ErrNotLeader is wrapped by the error of [Note].Write when another process leads.
	ErrNotLeader = errors.New("another process leads")
)

// Note is where the leader lists its recordings. Its methods block during their requests, which take at most half of
// the time that the leader has to renew its Lease. They are not called at once.
type Note interface {
	// Read returns the content; nil: there is none.
	Read(context.Context) ([]byte, error)
	// Write replaces what Read returned last.
	Write(context.Context, []byte) error
}

// ExchangeOptions are the options of an [Exchange]. All are required.
type ExchangeOptions struct {
	Buffer *Buffer
	Note   Note
	Limit  int // of the note, in bytes
	// Election returns the identity of this process, and that of the leader; "": there is none.
	Election func() (self, leader string)
	// Tried is called after each exchange with what it did ("read", "write"), and its error.
	Tried func(verb string, err error)
	Log   *zap.Logger
}

// Exchange lets standbys record what the leader records.
//
//	role      what happens every two seconds
//	standby   the list is read, and the buffer follows it if the leader wrote it. Otherwise the buffer goes on for five
//	          minutes, and then stops
//	leader    the list is written, if recordings have begun or ended, or positions have moved
//
// A standby that becomes the leader follows the last list once more, before its sinks are opened, and then owns it.
type Exchange struct {
	ExchangeOptions

	mu      sync.Mutex // held during requests
	leading bool
	number  uint64    // of the newest list that was read or written
	have    List      // the leader: the list as it should be in the note
	known   bool      // the leader: have is what is in the note
	at      time.Time // the leader: of the last write, or the last time when have was compared with the note
	former  time.Time // a standby: since when another process leads that has not written the list; zero: it has

	shown    sync.Mutex
	unlisted int
	problem  string
}

// NewExchange returns an exchange of a standby, that does not run yet.
func NewExchange(o ExchangeOptions) *Exchange { return &Exchange{ExchangeOptions: o} }

// Run exchanges the list until ctx ends.
func (e *Exchange) Run(ctx context.Context) {
	tick := time.NewTicker(exchangeEvery)
	defer tick.Stop()
	for {
		e.step(ctx, time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// step reads or writes the list.
func (e *Exchange) step(ctx context.Context, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leading {
		list := e.Buffer.List()
		err := e.publish(ctx, now, list)
		if err != nil {
			e.setUnlisted(len(list))
		}
		e.show(ctx, "write", err)
		return
	}
	e.show(ctx, "read", e.follow(ctx, now))
}

// Lead makes this process the one that writes the list. What the list has is recorded here first, so that a standby
// that has just started does not forget what the others keep for it.
func (e *Exchange) Lead(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	list, err := e.read(ctx)
	if err == nil && e.mayHold(&list) {
		e.Buffer.Follow(list.Recordings)
	}
	e.Buffer.Lead()
	e.leading, e.have, e.known = true, list, err == nil
	e.show(ctx, "read", err)
}

// Stand makes this process a standby again.
func (e *Exchange) Stand() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leading, e.former = false, time.Time{}
	e.setUnlisted(0)
	e.Buffer.Stand()
}

// read returns the list in the note; empty: there is none. An older list than the newest one, which a restore of etcd
// has brought back, is an error.
func (e *Exchange) read(ctx context.Context) (list List, err error) {
	data, err := e.Note.Read(ctx)
	if err != nil || data == nil {
		return list, err
	}
	if list, err = DecodeList(data); err != nil {
		return list, err
	}
	if list.Number < e.number {
		return List{}, errOld
	}
	e.number = list.Number
	return list, nil
}

var errOld = errors.New("the list of recordings is an older one than before")

// mayHold reports whether this process may have on its disk what the leader has on its own.
func (e *Exchange) mayHold(list *List) bool { return e.Buffer.Sealed || !list.Sealed }

// follow makes the buffer of a standby record what the leader lists.
func (e *Exchange) follow(ctx context.Context, now time.Time) error {
	list, err := e.read(ctx)
	if err != nil && requestFailed(err) {
		return err
	}
	self, leader := e.Election()
	if leader == "" || leader == self { // no other process can say what is needed
		e.former = time.Time{}
		return err
	}
	if err != nil || list.Holder != leader {
		if e.former.IsZero() {
			e.former = now
		}
		if now.Sub(e.former) < heirWithin {
			return err
		}
		list = List{}
	} else {
		e.former = time.Time{}
	}
	if !e.mayHold(&list) {
		list.Recordings, err = nil, errors.New("the leader encrypts its disk buffer, and this standby has no key: it records nothing")
	}
	e.Buffer.Follow(list.Recordings)
	return err
}

// publish writes the list of the leader's recordings if that is due.
func (e *Exchange) publish(ctx context.Context, now time.Time, recordings []Listed) error {
	self, _ := e.Election()
	list := List{Holder: self, Sealed: e.Buffer.Sealed, Recordings: recordings}
	if !e.known {
		if err := e.reread(ctx, now); err != nil {
			return err
		}
	}
	switch {
	case len(list.Recordings)+len(e.have.Recordings) == 0: // all sinks are in step
		e.setUnlisted(0)
		return nil
	case e.have.Holder != list.Holder || !slices.EqualFunc(list.Recordings, e.have.Recordings, sameRecording):
	case slices.EqualFunc(list.Recordings, e.have.Recordings, func(a, b Listed) bool { return a.At.Committed == b.At.Committed }):
		if now.Sub(e.at) < rereadEvery {
			return nil
		}
		return e.reread(ctx, now)
	case now.Sub(e.at) < positionsEvery:
		return nil
	}
	list.Number = max(e.number+1, uint64(now.UnixMilli()))
	data, left, err := list.Encode(e.Limit)
	if err != nil {
		return err
	}
	err = e.Note.Write(ctx, data)
	if errors.Is(err, ErrChanged) {
		e.known = false
		return nil
	}
	if errors.Is(err, ErrNotLeader) { // this term ends soon
		return nil
	}
	if err != nil {
		return err
	}
	if left > 0 && e.setUnlisted(left) == 0 {
		e.Log.Warn("some recordings are not listed for standbys, because the ConfigMap is full: after a failover a gap may follow for these collections", zap.Int("recordings", left))
	}
	e.setUnlisted(left)
	e.have, e.number, e.at = list, list.Number, now
	return nil
}

// reread compares the list of the leader with the note.
func (e *Exchange) reread(ctx context.Context, now time.Time) error {
	number := e.number
	list, err := e.read(ctx)
	switch {
	case err != nil && requestFailed(err):
		return err
	case err != nil:
		e.have = List{Recordings: make([]Listed, 1)} // something that is to be replaced
	case list.Holder != e.have.Holder || list.Number != number:
		e.have = list
	}
	e.known, e.at = true, now
	return nil
}

// requestFailed reports whether the content of the note is not known.
func requestFailed(err error) bool {
	return !errors.Is(err, errOld) && !errors.Is(err, ErrList)
}

// sameRecording compares two recordings without their positions.
func sameRecording(a, b Listed) bool {
	return a.Sink == b.Sink && a.Target == b.Target && a.Waits == b.Waits &&
		a.NewHistory == b.NewHistory && a.At.Epoch == b.At.Epoch
}

func (e *Exchange) show(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil {
		return
	}
	e.Tried(verb, err)
	e.shown.Lock()
	defer e.shown.Unlock()
	e.problem = ""
	if err != nil {
		e.problem = err.Error()
	}
}

// setUnlisted sets the number of recordings that are not listed, and returns the number before.
func (e *Exchange) setUnlisted(n int) (before int) {
	e.shown.Lock()
	defer e.shown.Unlock()
	before, e.unlisted = e.unlisted, n
	return before
}

// Status returns how many recordings are not listed, and why the last exchange failed; "": it did not.
func (e *Exchange) Status() (unlisted int, problem string) {
	e.shown.Lock()
	defer e.shown.Unlock()
	return e.unlisted, e.problem
}
