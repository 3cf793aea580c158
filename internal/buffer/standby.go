package buffer

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// beginAgain is how long a standby waits after it could not begin a recording.
const beginAgain = time.Minute

// Listed is a recording as the leader lists it for standbys.
type Listed struct {
	Sink   string
	Target source.Target
	At     Position // of the sink, as it was known last; Committed is "" if it is not known, and Read is always ""
	// Waits: the leader's sink has not come yet, so it may have committed more than At says.
	Waits bool `json:",omitempty"`
	// NewHistory: the server has begun another history behind At. Nobody can begin to read there any more.
	NewHistory bool `json:",omitempty"`
}

// key names the recordings of the same sink and target.
func (l *Listed) key() string { return keyOf(l.Sink, l.Target) }

// List returns the recordings that sinks need, in an order that does not change.
func (b *Buffer) List() []Listed {
	b.mu.Lock()
	defer b.mu.Unlock()
	byKey := map[string]Listed{}
	for key, list := range b.recordings {
		for _, r := range list {
			l, needed := r.listed()
			if have, more := byKey[key]; needed && (!more || have.Waits) {
				byKey[key] = l
			}
		}
	}
	var keys []string
	for key := range byKey {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	var out []Listed
	for _, key := range keys {
		out = append(out, byKey[key])
	}
	return out
}

// listed returns the recording as the leader lists it. It returns false if its sink does not need it.
func (r *Recording) listed() (l Listed, needed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l = Listed{Sink: r.Sink, Target: r.Target, At: r.at, Waits: r.needs.use == nil, NewHistory: r.End.NewHistory && r.at.Epoch == r.Epoch}
	l.At.Read, l.At.Seen = "", r.End.Seen
	return l, !r.needs.since.IsZero()
}

// follower is what a standby does for the leader's recordings. Follow and Lead use it, which are not called at once.
type follower struct {
	uses  map[string]*Use      // by keyOf
	tried map[string]time.Time // when a recording could not be begun, or the buffer could not be searched
}

// Follow makes a standby record what the leader records. It begins recordings that are missing, at the sinks' committed positions, lets the
// others be trimmed up to there, and leaves those that are not listed, which are deleted after keepFor. A recording that does not reach back
// to the committed position is replaced, unless the position is not certain.
func (b *Buffer) Follow(list []Listed) {
	f, wanted := &b.followed, map[string]bool{}
	for i := range list {
		if l := &list[i]; slices.Contains(b.Sinks, l.Sink) {
			wanted[l.key()] = true
			b.follow(l)
		}
	}
	for key, use := range f.uses {
		if !wanted[key] {
			delete(f.uses, key)
			b.close(use)
		}
	}
	for key := range f.tried {
		if !wanted[key] {
			delete(f.tried, key)
		}
	}
	for _, r := range b.all() {
		if !wanted[keyOf(r.Sink, r.Target)] {
			r.leave(nil)
		}
	}
}

// follow makes a standby record one target.
func (b *Buffer) follow(l *Listed) {
	f, key, at := &b.followed, l.key(), l.At
	at.Read = at.Committed
	use := f.uses[key]
	if use != nil && use.recording.isAt(at) {
		return
	}
	if have := b.of(l.Sink, l.Target); l.Waits && len(have) > 0 { // they may be trimmed further than the position that is known
		for _, r := range have {
			r.awaitsSink()
		}
		return
	}
	if at.Committed == "" {
		return
	}
	next, err := b.Find(l.Sink, l.Target, at)
	if err != nil { // what is there may be of use: the next list asks again
		if time.Since(f.tried[key]) > beginAgain {
			f.tried[key] = time.Now()
			b.Log.Warn("the buffer cannot be searched, trying again", zap.String("collection", l.Target.Collection.ID()), zap.Error(err))
		}
		return
	}
	if (next == nil || next.recording.endsBefore(at.Committed)) && !l.NewHistory && time.Since(f.tried[key]) > beginAgain {
		begun, err := b.Begin(l.Sink, l.Target, at)
		next = begun
		if err != nil {
			f.tried[key] = time.Now()
			b.Log.Warn("buffering for the leader failed; a gap may follow if this standby takes over", zap.String("collection", l.Target.Collection.ID()), zap.Error(err))
		}
	}
	if use != nil {
		b.close(use)
	}
	delete(f.uses, key)
	if next != nil {
		f.uses[key] = next
	}
}

// close ends the use of a recording. The recording is kept if another use of it has begun.
func (b *Buffer) close(use *Use) {
	if err := use.Close(); err != nil {
		b.Log.Debug("close of the buffer failed", zap.Error(err))
	}
}

// Lead says that the sinks of this process will come: everything that is recorded waits for them.
func (b *Buffer) Lead() {
	for key, use := range b.followed.uses {
		delete(b.followed.uses, key)
		if err := use.Suspend(); err != nil {
			b.Log.Debug("close of the buffer failed", zap.Error(err))
		}
	}
	clear(b.followed.tried)
	for _, r := range b.all() {
		r.awaitsSink()
	}
}

// Stand says that the sinks of this process have ended, and that the process is a standby again. What was recorded for them goes on.
func (b *Buffer) Stand() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.come)
}

// isAt reports whether a position is the one that is known already.
func (r *Recording) isAt(at Position) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at.Committed == at.Committed && r.at.Epoch == at.Epoch
}

// endsBefore reports whether nothing behind a position is or will be recorded.
func (r *Recording) endsBefore(position string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended != nil && (r.End.Reached == position || event.Older(r.End.Reached, position))
}
