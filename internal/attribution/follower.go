package attribution

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/attribution/attribute"
	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/inbox"
	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/internal/base/pause"
	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// SinkOptions are the options of a [Sink]. All are required.
type SinkOptions struct {
	*Spec
	Name  string
	Plain bool         // the format has no place for a request in the event of a change
	Scope func() Scope // what the sink publishes now; any goroutine calls it
	Log   *zap.Logger
}

// Sink passes audit records to one sink.
type Sink struct {
	*attribute.Attribution // plugs into the loop and the encoder of the sink

	o        SinkOptions
	storages storages
	counts   atomic.Pointer[attribute.Counts]
}

// NewSink returns a Sink. The caller makes a loop with it, and calls Follow.
func NewSink(o SinkOptions) *Sink {
	s := &Sink{o: o, storages: storages{of: map[join.Resource]string{}}}
	options := attribute.Options{Join: o.Join, Storage: s.storages.find, Inputs: inputs, MaxBytes: o.MaxBytes, Wait: o.Wait}
	if o.Plain {
		options.Wait = 0
	}
	s.Attribution = attribute.New(options)
	return s
}

// SetStorage says in which storage the resource of a collection is. Any goroutine may call it.
func (s *Sink) SetStorage(c *event.Collection, storage string) { s.storages.set(c, storage) }

// KeepStorage is SetStorage for the storage that the checkpoint has, unless another one is known.
func (s *Sink) KeepStorage(c *event.Collection, storage string) { s.storages.setIfUnknown(c, storage) }

// Counts returns the numbers of attributions; nil: none are known yet. Any goroutine may call it.
func (s *Sink) Counts() *attribute.Counts { return s.counts.Load() }

// Targets returns a target of each resource that the sink reads.
func (s *Sink) Targets() map[attribute.Resource]source.Target {
	found := map[attribute.Resource]source.Target{}
	for _, t := range s.o.Scope().Read {
		if r, known := s.storages.stored(&t.Collection); known && t.Resource.Version != "" {
			found[r] = t
		}
	}
	return found
}

// Follow passes audit records to the loop of the sink until ctx ends.
func (s *Sink) Follow(ctx context.Context, in *Inputs, l *loop.Loop) error {
	r := recordReader{Sink: s, loop: l, inputs: in, floors: map[attribute.Resource]floor{}}
	defer r.close()
	for ctx.Err() == nil {
		if err := r.next(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
			s.o.Log.Warn("read of audit records failed, trying again", zap.Error(err))
			if !pause.For(ctx, retryEvery) {
				return nil
			}
		}
	}
	return nil
}

// recordReader reads the inbox for one sink.
type recordReader struct {
	*Sink
	loop       *loop.Loop
	inputs     *Inputs
	generation int // of the sink's store; 0: the position is not known yet
	reader     *inbox.Reader
	before     []numbered     // the records that may be needed again
	from       storedPosition // that the sink's store had at the start; it may be one in another inbox
	at         inbox.Position
	gap        error                        // why records behind at are missing; nil: none is, as far as it is known
	other      bool                         // the inbox is not the one that the sink's position is of, so its numbers begin again
	taken      uint64                       // see storedPosition
	known      time.Time                    // of the last record
	stored     time.Time                    // when a position was stored last
	trimmed    time.Time                    // when records that are not needed were released last
	forgotten  join.Forgotten               // that is not published yet
	declared   time.Time                    // when that was published last
	floors     map[attribute.Resource]floor // that were passed on last
}

// numbered is a record with the position before it.
type numbered struct {
	number uint64
	before inbox.Position
}

func (r *recordReader) close() {
	if r.reader != nil {
		_ = r.reader.Close()
	}
}

// storedPosition is how far a sink has read records.
type storedPosition struct {
	Inbox          string `json:"inbox,omitzero"` // the identity of the inbox
	inbox.Position        // behind it, records are needed again after a restart: for changes that wait
	Taken          uint64 `json:"taken,omitzero"` // the number of the last record whose refused request is published, or in the checkpoint
}

// start begins at the position that the sink's store has.
func (r *recordReader) start(now time.Time) error {
	r.gap, r.other = nil, false // they are of the reader before
	at, err := r.storedHere()
	if err != nil {
		return err
	}
	r.close()
	r.reader, r.before, r.at, r.taken = r.inputs.inbox.Reader(at.Position), nil, at.Position, at.Taken
	r.Begin(at.Number, now)
	return nil
}

// position returns the position that the sink's store has. The zero value: it has none.
func (s *Sink) position() (at storedPosition, err error) {
	text, err := s.Stored()
	if err != nil || text == nil {
		return at, err
	}
	return decodePosition(text)
}

func decodePosition(text []byte) (at storedPosition, err error) {
	if err := json.Unmarshal(text, &at); err != nil {
		return at, fmt.Errorf("position of audit records in the checkpoint: %w", err)
	}
	return at, nil
}

// storedHere returns the position that the sink's store has. If it is of another inbox, this one is read from its beginning: if replicas
// forward, what is needed of the other inbox is sent to this one; otherwise records are missing.
func (r *recordReader) storedHere() (storedPosition, error) {
	at, err := r.position()
	r.from = at
	if at.Inbox == "" || at.Inbox == r.inputs.id {
		return at, err
	}
	if r.inputs.spec.Forward == nil {
		r.other, r.gap = true, &inbox.GapError{Err: errOtherInbox}
		r.miss(r.gap)
	}
	return storedPosition{}, err
}

var errOtherInbox = errors.New("audit.path has another inbox than before")

// miss notes that records are missing in the inbox.
func (r *recordReader) miss(err error) {
	r.inputs.gaps.Add(1)
	r.inputs.shown.lost(err)
	r.o.Log.Warn("audit records are missing", zap.Error(err))
}

// next passes on the next records, and what is known about their order.
func (r *recordReader) next(ctx context.Context) error {
	records, gap, err := r.read(ctx)
	if err != nil {
		return err
	}
	f := finding{records, r.loss(gap), r.missingUpTo(gap), r.inputs.caughtUp()} // before the loop handles what was read
	var failed error
	planned, err := r.loop.Page(ctx, sizeOf(records), func(p loop.Page) { failed = r.write(p, &f) })
	if err != nil { // the loop may still call the function
		return err
	}
	if !planned {
		pause.For(ctx, lookEvery)
	}
	return failed
}

// finding is what was read of the inbox at once.
type finding struct {
	records []inbox.Item
	lost    *audit.Record // says that records before them are missing; nil: none is
	missing uint64        // the number of the last one that is
	caught  caught
}

// write passes on what was read of the inbox, in the loop's goroutine.
func (r *recordReader) write(p loop.Page, f *finding) (err error) {
	now, scope := time.Now(), r.o.Scope()
	r.Turn(p)
	counts := r.Attribution.Counts()
	r.counts.Store(&counts)
	if generation := r.Generation(); generation != r.generation {
		if err = r.start(now); err == nil {
			r.generation = generation
		}
		return err
	}
	changes := r.take(p, f, &scope, now)
	r.Caught(f.caught.at, f.caught.number)
	r.passFloors(now)
	for resource, version := range r.storages.passed(&scope, r.loop.State, r.floors) {
		r.Passed(resource, version)
	}
	r.Overlap(scope.overlapping())
	if r.inputs.spec.Join.Complete {
		for _, resource := range r.storages.idle(&scope) {
			r.Idle(resource)
		}
	}
	changes = append(changes, r.declare(&scope, now)...)
	if now.Sub(r.trimmed) > trimEvery {
		r.trimmed = now
		err = r.release()
	}
	p.Note(changes...)
	if len(changes) == 0 && now.Sub(r.stored) < storeEvery {
		return err
	}
	r.stored = now
	if at := r.reached(); at != nil {
		p.NoteLatest(attribute.StorePosition(at))
	}
	return err
}

// take passes on records. It returns the changes of the checkpoint that are committed with the position.
func (r *recordReader) take(p loop.Page, f *finding, scope *Scope, now time.Time) (changes []event.KV) {
	if f.lost != nil {
		if r.other {
			r.other = false
			r.before, r.at = nil, inbox.Position{}
			r.Begin(0, now)
			p.NoteLatest(attribute.StorePosition(r.encode(inbox.Position{})))
		}
		r.Skip(f.missing, now) // what waits must not wait for these records
		r.Lost(now)
		changes = append(changes, r.publishLoss(scope, r.at.Number, f.lost)...)
	}
	for i := range f.records {
		at, record := f.records[i].Position, f.records[i].Record
		r.before = append(r.before, numbered{at.Number, r.at})
		r.at = at
		if record == nil {
			r.Skip(at.Number, now)
			continue
		}
		r.known = lastTime([]audit.Record{*record}, r.known)
		if record.Lost != nil {
			r.Lost(now)
		}
		r.Read(at.Number, record, now)
		changes = append(changes, r.refuse(scope, at.Number, record)...)
	}
	changes = append(changes, r.CountRefusals()...)
	if f.lost != nil { // some of the records behind the missing ones may have come before them
		r.Lost(now)
	}
	return changes
}

// missingUpTo returns the number of the last record that is missing because of a gap.
func (r *recordReader) missingUpTo(gap error) uint64 {
	var known *inbox.GapError
	if errors.As(gap, &known) && known.To > 0 {
		return known.To
	}
	return max(r.inputs.inbox.First(), 1) - 1 // the reader has begun behind it
}

// refuse passes on a record if it is of a refused request that is not published yet. It returns the changes of the checkpoint, which are
// committed with the position.
func (r *recordReader) refuse(scope *Scope, number uint64, record *audit.Record) []event.KV {
	if number <= r.taken {
		return nil
	}
	r.taken = number
	if record.Lost != nil {
		return r.publishLoss(scope, number, record)
	}
	if !r.inputs.spec.Denied || !record.Denied() || record.Stage != audit.Complete {
		return nil
	}
	collection := scope.publisher(record)
	if collection == "" {
		return nil
	}
	return r.Refuse(number, record, collection)
}

// passFloors passes on the floors that came since the last call.
func (r *recordReader) passFloors(now time.Time) {
	r.inputs.mu.Lock()
	defer r.inputs.mu.Unlock()
	for resource, f := range r.inputs.floors {
		if r.floors[resource].at.Before(f.at) {
			r.floors[resource] = f
			r.Floor(resource, f.version, f.number, f.at, now)
		}
	}
}

// reached returns the position behind which the sink needs records again after a restart.
func (r *recordReader) reached() []byte {
	needed := r.Needed()
	for len(r.before) > 0 && r.before[0].number < needed {
		r.before = r.before[1:]
	}
	at := r.at
	if len(r.before) > 0 {
		at = r.before[0].before
	}
	if at == (inbox.Position{}) && r.taken == 0 {
		return nil
	}
	return r.encode(at)
}

// encode returns a position as the sink's store has it.
func (r *recordReader) encode(at inbox.Position) []byte {
	text, _ := json.Marshal(storedPosition{r.inputs.id, at, r.taken}) // strings and numbers always encode
	return text
}

// release says which records the sink does not need any more, after a restart either.
func (r *recordReader) release() error {
	at, err := r.position()
	if err != nil {
		return err
	}
	if at.Inbox != r.inputs.id { // no position in this one is stored yet
		at = storedPosition{}
	}
	r.inputs.mu.Lock()
	defer r.inputs.mu.Unlock()
	r.inputs.needed[r.o.Name] = at.Position
	return nil
}

// read returns the next records, and why some before the first of them are missing. Without one for a while, it returns none.
func (r *recordReader) read(ctx context.Context) (items []inbox.Item, lost error, err error) {
	if r.generation == 0 {
		return nil, nil, nil
	}
	lost, r.gap = r.gap, nil
	for bytes := 0; len(items) < recordsAtOnce && bytes < recordBytesAtOnce; {
		item, err := r.reader.Next()
		var gap *inbox.GapError
		switch {
		case errors.As(err, &gap):
			if gap.From == 0 {
				r.other, r.taken = true, 0
			}
			r.miss(err)
			if len(items) > 0 { // those behind it are read when this is known
				r.gap = err
				return items, lost, nil
			}
			lost = err
			continue
		case errors.Is(err, io.EOF) && len(items) > 0:
			return items, lost, nil
		case errors.Is(err, io.EOF):
			waiting, stop := context.WithTimeout(ctx, lookEvery)
			err := r.reader.Wait(waiting)
			stop()
			if err != nil {
				return nil, lost, ctx.Err()
			}
			continue
		case err != nil && (len(items) > 0 || lost != nil):
			return items, lost, nil // what has failed fails again
		case err != nil:
			return nil, nil, err
		}
		items = append(items, item)
		bytes += item.Size()
	}
	return items, lost, nil
}

// sizeOf returns the memory of records.
func sizeOf(items []inbox.Item) (n int) {
	for i := range items {
		n += items[i].Size()
	}
	return n
}
