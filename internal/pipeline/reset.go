package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// wiping stands in front of a reset's run while the old inventory is being
// removed, which takes several commits.
const wiping = "wiping "

// openSink connects, and reads a checkpoint that the bus keeps, for as long as it
// takes.
func (l *Lane) openSink(ctx context.Context) error {
	mark, err := l.openingMark()
	if err != nil {
		return err
	}
	open := func() error { return l.retry(ctx, "open the bus", func() error { return l.sink.Open(ctx, mark) }) }
	loader, ok := l.store.(checkpoint.Loader)
	if err := open(); err != nil || !ok {
		return err
	}
	if err := l.retry(ctx, "read the checkpoint", func() error { return loader.Load(ctx) }); err != nil {
		return err
	}
	before := mark
	if mark, err = l.openingMark(); err != nil || bytes.Equal(mark, before) {
		return err
	}
	if _, isLog := l.sink.(sink.Log); isLog { // its Tail is given the mark
		return nil
	}
	return open() // now that the mark is known
}

// openingMark is what a sink is opened with. What no Tail looks at is given up with
// the rest when an operator asks for a reset.
func (l *Lane) openingMark() ([]byte, error) {
	mark, err := l.store.Get(checkpoint.MarkKey())
	reset, err2 := l.store.Get(checkpoint.ResetKey())
	if err := errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("read the checkpoint: %w", err)
	}
	if _, isLog := l.sink.(sink.Log); !isLog && bytes.Equal(reset, checkpoint.ResetRequested()) {
		return nil, nil
	}
	return mark, nil
}

// recall brings the checkpoint up to what the bus holds, and begins a reset
// where the two no longer agree (design rules 9 and 14).
func (l *Lane) recall(ctx context.Context) error {
	pendingReset, err := l.store.Get(checkpoint.ResetKey())
	if err != nil {
		return fmt.Errorf("read the checkpoint: %w", err)
	}
	requested := bytes.Equal(pendingReset, checkpoint.ResetRequested())
	if !requested {
		l.resetRun = strings.TrimPrefix(string(pendingReset), wiping)
	}
	if strings.HasPrefix(string(pendingReset), wiping) {
		err = l.wipe(ctx, l.resetRun) // there is nothing to fold in: it begins where the bus ends
	} else {
		err = l.foldTail(ctx)
	}
	if errors.Is(err, sink.ErrReset) {
		return l.beginReset(ctx, err.Error())
	}
	if err != nil {
		return err
	}
	if requested {
		return l.beginReset(ctx, "an operator asked for it")
	}
	digest := []byte(l.shape.Digest())
	stored, err := l.store.Get(checkpoint.DigestKey())
	switch {
	case err != nil:
		return fmt.Errorf("read the checkpoint: %w", err)
	case stored != nil && string(stored) != string(digest):
		return l.beginReset(ctx, fmt.Sprintf("what may be seen of objects was %s and is now %s", stored, digest))
	case stored == nil:
		l.quietly(nil, event.KV{Key: checkpoint.DigestKey(), Value: digest})
	}
	return nil
}

// foldTail commits what the bus holds beyond the checkpoint.
func (l *Lane) foldTail(ctx context.Context) error {
	log, ok := l.sink.(sink.Log)
	if !ok {
		return nil
	}
	from, err := l.store.Get(checkpoint.MarkKey())
	if err != nil {
		return fmt.Errorf("read the checkpoint: %w", err)
	}
	var (
		changes []event.KV
		mark    []byte
		n       int
	)
	flush := func() error {
		if mark == nil {
			return nil
		}
		err := l.commit(ctx, append(changes, event.KV{Key: checkpoint.MarkKey(), Value: mark}))
		changes, mark = nil, nil
		return err
	}
	err = l.retry(ctx, "read the bus back", func() error {
		changes, mark, n = nil, nil, 0
		err := log.Tail(ctx, from, func(state []event.KV, at []byte) error {
			changes, mark = append(changes, state...), at
			if n++; n%batchRecords == 0 {
				return flush()
			}
			return nil
		})
		if err != nil {
			return err
		}
		return flush()
	})
	if err == nil && n > 0 {
		l.log.Info("the bus was ahead of the checkpoint; caught up from it", zap.Int("events", n))
	}
	return err
}

// reset starts every collection again while the lane runs. What they had read is
// dropped: it is listed again. A list of a resync or verification may still be ending
// and hand something over later: it takes from and gives back to the same budget.
func (l *Lane) reset(ctx context.Context, why string) error {
	for _, m := range l.members {
		if m.running {
			m.stop() // all at once: one after another would take its time
		}
	}
	for _, m := range l.members {
		if err := l.halt(ctx, m, func(parcel) bool { return true }); err != nil {
			return err
		}
	}
	l.budget.Release(l.current.held)
	l.inFlight, l.current = 0, l.fresh(l.current.Seq+1)
	clear(l.moved)
	l.inv.forget()
	clear(l.closing)
	clear(l.shut)
	l.suspended = nil
	if err := l.answering(func() error { return l.beginReset(ctx, why) }); err != nil {
		return err
	}
	for _, m := range l.members {
		m.position, m.stated, m.list = outdated, event.Position{}, nil
		m.note, m.because = checkpoint.Note{Lives: m.note.Lives, Due: l.resetRun, Resynced: time.Now()}, ""
		m.reset, m.declared, m.resetWhy = l.resetRun, false, ""
		m.pause, m.resumes = 0, time.Time{}
		l.start(m)
	}
	l.lookAgain() // what was being closed is not yet
	return nil
}

// outdated is the position of a collection of which everything is to be told anew.
var outdated = event.Position{Void: true}

// beginReset makes the checkpoint forget what was told of every collection, so that each
// begins, or ends, with a declared reset, also after a crash.
func (l *Lane) beginReset(ctx context.Context, why string) error {
	l.log.Warn("declared reset: consumers are told to drop their copy", zap.String("because", why))
	l.resetWhy = why
	return l.wipe(ctx, newRun())
}

func (l *Lane) wipe(ctx context.Context, run string) error {
	l.resetRun = run
	clear(l.inv.perhaps)
	// Where the bus ends, so that the next start does not fold in what was before.
	mark := event.KV{Key: checkpoint.MarkKey()}
	if log, ok := l.sink.(sink.Log); ok {
		mark.Value = log.Mark()
	}
	// A store may let a commit with a mark trail. Those behind it take it along.
	err := l.commit(ctx, []event.KV{mark, {Key: checkpoint.ResetKey(), Value: []byte(wiping + run)}})
	if err != nil {
		return err
	}
	changes := []event.KV{{Key: checkpoint.DigestKey(), Value: []byte(l.shape.Digest())}}
	full := func() error {
		if len(changes) < batchRecords {
			return nil
		}
		now := changes
		changes = nil
		return l.commit(ctx, now)
	}
	left, err := l.remnants(run)
	if err != nil {
		return err
	}
	for _, kv := range left {
		changes = append(changes, kv)
		if err := full(); err != nil {
			return err
		}
	}
	for _, prefix := range [][]byte{checkpoint.IntentPrefix("", ""), checkpoint.AllBodies(), checkpoint.AllEntries()} {
		err := l.reads.Scan(prefix, func(key, _ []byte) error {
			changes = append(changes, event.KV{Key: bytes.Clone(key)})
			return full()
		})
		if err != nil {
			return err
		}
	}
	return l.commit(ctx, append(changes, event.KV{Key: checkpoint.ResetKey(), Value: []byte(run)}))
}

// remnants are what a reset leaves of the collections: which there are, how often each
// was closed before, and that the bus is to be told of the reset.
func (l *Lane) remnants(run string) (kvs []event.KV, err error) {
	notes := map[string]checkpoint.Note{}
	err = l.reads.Scan(checkpoint.PositionPrefix(), func(key, _ []byte) error {
		notes[checkpoint.PositionOf(key)] = checkpoint.Note{}
		kvs = append(kvs, event.KV{Key: bytes.Clone(key), Value: checkpoint.EncodePosition(outdated)})
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = l.reads.Scan(checkpoint.NotePrefix(), func(key, value []byte) error {
		note, _ := checkpoint.DecodeNote(value) // what cannot be read is given up like the rest
		notes[checkpoint.NoteOf(key)] = checkpoint.Note{Lives: note.Lives}
		return nil
	})
	for id, note := range notes {
		note.Due = run
		kvs = append(kvs, event.KV{Key: checkpoint.NoteKey(id), Value: checkpoint.EncodeNote(note)})
	}
	return kvs, err
}

// resetDone ends a reset when the last collection is through with it.
func (l *Lane) resetDone() {
	if l.resetRun == "" || !l.settled {
		return
	}
	for _, m := range l.members {
		if m.reset != "" || m.position.Void {
			return
		}
	}
	l.resetRun = ""
	l.quietly(nil, event.KV{Key: checkpoint.ResetKey()})
}
