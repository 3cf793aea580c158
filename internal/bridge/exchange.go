package bridge

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubebridge/kubebridge/internal/buffer"
	"github.com/kubebridge/kubebridge/internal/operate/leader"
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

// Note is a [leader.Note].
type Note interface {
	Read(context.Context) ([]byte, error)
	Write(context.Context, []byte) error
}

// exchange lets standbys record what the leader records.
//
//	role      what happens every two seconds
//	standby   the list is read, and the buffer follows it if the leader wrote it. Otherwise the buffer goes on for five minutes, and then stops
//	leader    the list is written, if recordings have begun or ended, or positions have moved
//
// A standby that becomes the leader follows the last list once more, before its sinks are opened, and then owns it.
type exchange struct {
	buffer   *buffer.Buffer
	sealed   bool // the buffer is encrypted
	note     Note
	limit    int // of the note, in bytes
	election func() leader.Status
	reminder *reminder
	log      *zap.Logger

	mu      sync.Mutex // held during requests, which take at most half of renewDeadline
	leading bool
	number  uint64      // of the newest list that was read or written
	have    buffer.List // the leader: the list as it should be in the note
	known   bool        // the leader: have is what is in the note
	at      time.Time   // the leader: of the last write, or the last time when have was compared with the note
	former  time.Time   // a standby: since when another process leads that has not written the list; zero: it has

	shown    sync.Mutex
	unlisted int
	problem  string
}

// bufferWhileStandby is Run with a disk buffer that is also open while this process is a standby.
func (b *Bridge) bufferWhileStandby(stop context.Context, uid string) error {
	disk, closeBuffer, err := b.openBuffer(stop, uid)
	if err != nil {
		return err
	}
	defer b.setBuffer(openBuffer{})
	lead := func(held context.Context) error { return b.deliver(held, stop, uid, disk) }
	if disk.Buffer == nil { // its disk fails
		b.setBuffer(disk)
		return b.o.Elector.Run(stop, lead)
	}
	x := &exchange{
		buffer: disk.Buffer, sealed: disk.sealed, note: b.o.Buffer.Note, limit: leader.MaxNote, election: b.o.Elector.Status,
		reminder: b.outage.reminder, log: b.o.Log,
	}
	disk.shared = x
	b.setBuffer(disk)
	ctx, end := context.WithCancel(stop)
	var running sync.WaitGroup
	running.Go(func() { x.run(ctx) })
	err = b.o.Elector.Run(stop, func(held context.Context) error {
		x.leads(held)
		defer x.stands()
		return lead(held)
	})
	end()
	running.Wait()
	return errors.Join(err, closeBuffer())
}

// run exchanges the list until ctx ends.
func (x *exchange) run(ctx context.Context) {
	tick := time.NewTicker(exchangeEvery)
	defer tick.Stop()
	for {
		x.step(ctx, time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// step reads or writes the list.
func (x *exchange) step(ctx context.Context, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.leading {
		list := x.buffer.List()
		err := x.publish(ctx, now, list)
		if err != nil {
			x.setUnlisted(len(list))
		}
		x.show(ctx, "write", err)
		return
	}
	x.show(ctx, "read", x.follow(ctx, now))
}

// leads makes this process the one that writes the list. What the list has is recorded here first, so that a standby that has just started
// does not forget what the others keep for it.
func (x *exchange) leads(ctx context.Context) {
	x.mu.Lock()
	defer x.mu.Unlock()
	list, err := x.read(ctx)
	if err == nil && x.mayHold(&list) {
		x.buffer.Follow(list.Recordings)
	}
	x.buffer.Lead()
	x.leading, x.have, x.known = true, list, err == nil
	x.show(ctx, "read", err)
}

// stands makes this process a standby again.
func (x *exchange) stands() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.leading, x.former = false, time.Time{}
	x.setUnlisted(0)
	x.buffer.Stand()
}

// read returns the list in the note; empty: there is none. An older list than the newest one, which a restore of etcd has brought back,
// is an error.
func (x *exchange) read(ctx context.Context) (list buffer.List, err error) {
	data, err := x.note.Read(ctx)
	if err != nil || data == nil {
		return list, err
	}
	if list, err = buffer.DecodeList(data); err != nil {
		return list, err
	}
	if list.Number < x.number {
		return buffer.List{}, errOld
	}
	x.number = list.Number
	return list, nil
}

var errOld = errors.New("the list of recordings is an older one than before")

// mayHold reports whether this process may have on its disk what the leader has on its own.
func (x *exchange) mayHold(list *buffer.List) bool { return x.sealed || !list.Sealed }

// follow makes the buffer of a standby record what the leader lists.
func (x *exchange) follow(ctx context.Context, now time.Time) error {
	list, err := x.read(ctx)
	if err != nil && requestFailed(err) {
		return err
	}
	leads := x.election()
	if leads.Holder == "" || leads.Holder == leads.Identity { // no other process can say what is needed
		x.former = time.Time{}
		return err
	}
	if err != nil || list.Holder != leads.Holder {
		if x.former.IsZero() {
			x.former = now
		}
		if now.Sub(x.former) < heirWithin {
			return err
		}
		list = buffer.List{}
	} else {
		x.former = time.Time{}
	}
	if !x.mayHold(&list) {
		list.Recordings, err = nil, errors.New("the leader encrypts its disk buffer, and this standby has no key: it records nothing")
	}
	x.buffer.Follow(list.Recordings)
	return err
}

// publish writes the list of the leader's recordings if that is due.
func (x *exchange) publish(ctx context.Context, now time.Time, recordings []buffer.Listed) error {
	list := buffer.List{Holder: x.election().Identity, Sealed: x.sealed, Recordings: recordings}
	if !x.known {
		if err := x.reread(ctx, now); err != nil {
			return err
		}
	}
	switch {
	case len(list.Recordings)+len(x.have.Recordings) == 0: // all sinks are in step
		x.setUnlisted(0)
		return nil
	case x.have.Holder != list.Holder || !slices.EqualFunc(list.Recordings, x.have.Recordings, sameRecording):
	case slices.EqualFunc(list.Recordings, x.have.Recordings, samePosition):
		if now.Sub(x.at) < rereadEvery {
			return nil
		}
		return x.reread(ctx, now)
	case now.Sub(x.at) < positionsEvery:
		return nil
	}
	list.Number = max(x.number+1, uint64(now.UnixMilli()))
	data, left, err := list.Encode(x.limit)
	if err != nil {
		return err
	}
	err = x.note.Write(ctx, data)
	if errors.Is(err, leader.ErrChanged) {
		x.known = false
		return nil
	}
	if errors.Is(err, leader.ErrNotLeader) { // this term ends soon
		return nil
	}
	if err != nil {
		return err
	}
	if left > 0 && x.setUnlisted(left) == 0 {
		x.log.Warn("some recordings are not listed for standbys, because the ConfigMap is full: after a failover a gap may follow for these collections", zap.Int("recordings", left))
	}
	x.setUnlisted(left)
	x.have, x.number, x.at = list, list.Number, now
	return nil
}

// reread compares the list of the leader with the note.
func (x *exchange) reread(ctx context.Context, now time.Time) error {
	number := x.number
	list, err := x.read(ctx)
	switch {
	case err != nil && requestFailed(err):
		return err
	case err != nil:
		x.have = buffer.List{Recordings: make([]buffer.Listed, 1)} // something that is to be replaced
	case list.Holder != x.have.Holder || list.Number != number:
		x.have = list
	}
	x.known, x.at = true, now
	return nil
}

// requestFailed reports whether the content of the note is not known.
func requestFailed(err error) bool {
	return !errors.Is(err, errOld) && !errors.Is(err, buffer.ErrList)
}

// sameRecording compares two recordings without their positions.
func sameRecording(a, b buffer.Listed) bool {
	return a.Sink == b.Sink && a.Target == b.Target && a.Waits == b.Waits && a.NewHistory == b.NewHistory && a.At.Epoch == b.At.Epoch
}

// samePosition compares the positions of two recordings.
func samePosition(a, b buffer.Listed) bool { return a.At.Committed == b.At.Committed }

// show logs an error of an exchange, and shows it in the status.
func (x *exchange) show(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil {
		return
	}
	const key = "the list of recordings for standbys"
	problem := ""
	if err == nil {
		x.reminder.works(key)
	} else {
		f := failure{message: verb + " of the list of recordings failed, trying again; after a failover during an outage of a bus a gap may follow", err: err}
		if apierrors.IsForbidden(err) {
			f.advice = "let the bridge's account create ConfigMaps, and get and update this one: see `bridge rbac`"
		}
		x.reminder.failed(key, f)
		problem = err.Error()
	}
	x.shown.Lock()
	defer x.shown.Unlock()
	x.problem = problem
}

// setUnlisted sets the number of recordings that are not listed, and returns the number before.
func (x *exchange) setUnlisted(n int) (before int) {
	x.shown.Lock()
	defer x.shown.Unlock()
	before, x.unlisted = x.unlisted, n
	return before
}

func (x *exchange) status() (unlisted int, problem string) {
	x.shown.Lock()
	defer x.shown.Unlock()
	return x.unlisted, x.problem
}
