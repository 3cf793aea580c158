package bridge

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/kubebridge/kubebridge/internal/attribution/attribute"
	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/inbox"
	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/internal/attribution/logfile"
	"github.com/kubebridge/kubebridge/internal/attribution/topic"
	"github.com/kubebridge/kubebridge/internal/attribution/webhook"
	"github.com/kubebridge/kubebridge/internal/base/diskguard"
	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

const (
	// recordsAtOnce is how many audit records a sink takes at once.
	recordsAtOnce = 256
	// storeEvery is how often a sink stores how far it has read audit records.
	storeEvery = time.Second
	// almostFull is the part of audit.maxBytes from which on one sink's needs do not count any more: see [auditing.lowest].
	almostFull = 0.9
	// readyAfter is how long a sink may take to read its checkpoint before its bus counts as away: see [auditing.lowest].
	readyAfter = time.Minute
	// trimEvery is how often records that no sink needs are deleted.
	trimEvery = 10 * time.Second
	// recordBytesAtOnce is how many bytes of memory these records may take, besides those of the last one.
	recordBytesAtOnce = 1 << 20
	// declareEvery is how often a sink publishes that there was no room for requests, and the webhook notes that it has refused records.
	declareEvery = time.Minute
	// lookEvery is how often a sink looks what has become certain without another record.
	lookEvery = 250 * time.Millisecond
	// floorEvery is how often the API server is asked how far it has come, if records are complete.
	floorEvery = 20 * time.Second
	// floorsAtOnce is how many resources are asked for at once.
	floorsAtOnce = 4
)

// The inputs.
const (
	fromWebhook = iota
	fromFile
	fromTopic
	inputs
)

// AuditSpec says where audit records come from.
type AuditSpec struct {
	Path    string // directory of the inbox
	Inbox   func(context.Context) (inbox.Options, error)
	Webhook *webhook.Options // without Store, Log, Unparsable and Leads; nil: there is no webhook
	// Forward says how a replica that does not lead sends the records that its inputs get to the leader; nil: such a replica gets none.
	Forward *ForwardSpec
	File    *logfile.Options              // nil: there is none
	Topic   func() (topic.Options, error) // nil: there is none. An error is tried again
	Join    join.Options
	// MaxBytes bounds the memory of records and changes of each sink: see [attribute.Options].
	MaxBytes int
	Wait     time.Duration // see [attribute.Options]
	Denied   bool          // refused requests are published
}

// auditing gets audit records, keeps them, and passes them on to all sinks.
type auditing struct {
	spec  *AuditSpec
	log   *zap.Logger
	inbox *inbox.Inbox
	sinks []string // their names

	id     string // of the inbox
	role   role
	gaps   atomic.Uint64 // records of an unknown number were lost that often
	server atomic.Pointer[webhook.Server]
	shown  auditStatus

	client  *source.Client
	targets func() map[attribute.Resource]source.Target // a target of each resource

	mu     sync.Mutex
	begun  time.Time                 // when the sinks were started here; zero: this process is a standby
	needed map[string]inbox.Position // by sink: records behind it are needed
	caught [inputs]caught            // of the file and of the topic
	floors map[attribute.Resource]floor
}

// caught says that all records that were written to the inputs before at have at most the given number.
type caught struct {
	at     time.Time
	number uint64
}

// floor says that the state of a resource was not later than version at some time after the inputs had been read as caught says.
type floor struct {
	caught
	version string
}

// openAuditing opens the inbox; nil: audit records are not used.
func (b *Bridge) openAuditing(ctx context.Context) (*auditing, error) {
	if b.o.Audit == nil {
		return nil, nil
	}
	o, err := b.o.Audit.Inbox(ctx)
	if err != nil {
		return nil, err
	}
	var a *auditing
	failing := failure{message: "open audit.path failed; trying again until there is disk space, no event is published meanwhile"}
	err = b.onceThereIsSpace(ctx, "open audit.path", failing, func() (err error) {
		a, err = b.openInbox(o)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("audit.path: %w", err)
	}
	return a, nil
}

func (b *Bridge) openInbox(o inbox.Options) (*auditing, error) {
	box, err := inbox.Open(b.o.Audit.Path, o)
	if err != nil {
		return nil, err
	}
	a := &auditing{spec: b.o.Audit, log: b.o.Log, inbox: box, needed: map[string]inbox.Position{}, client: b.o.Client, targets: b.resources, floors: map[attribute.Resource]floor{}}
	for _, s := range b.o.Sinks {
		a.sinks = append(a.sinks, s.Sink)
	}
	if err := a.identify(); err != nil {
		return nil, errors.Join(err, box.Close())
	}
	return a, nil
}

// identify reads the identity of the inbox, or gives it one: also if the file cannot be decoded. Positions of the sinks then are ones in another
// inbox, see [recordReader.storedHere].
func (a *auditing) identify() error {
	path := filepath.Join(a.spec.Path, "inbox-id.json")
	err := readJSON(path, &a.id)
	switch {
	case errors.Is(err, errNotDecoded):
		a.id = ""
		a.log.Warn("the identity of the audit inbox cannot be decoded: the inbox gets another one", zap.Error(err))
	case err != nil:
		return err
	}
	if a.id != "" {
		return nil
	}
	a.id = rand.Text()
	return writeJSON(path, a.id)
}

// resources returns a target of each resource that a sink reads.
func (b *Bridge) resources() map[attribute.Resource]source.Target {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := map[attribute.Resource]source.Target{}
	for _, p := range b.pipelines {
		p.mu.Lock()
		for _, t := range p.targets {
			if r, known := p.stored(&t.Collection); known && t.Resource.Version != "" {
				found[r] = t.Target
			}
		}
		p.mu.Unlock()
	}
	return found
}

// passed returns for each resource up to which resourceVersion all its collections are published, at least. A collection that is absent publishes nothing, so it counts
// as one that has published all up to the last floor: changes from before the reader has noticed that it exists may have no answer. It is called from the
// loop's goroutine.
func (p *Pipeline) passed(floors map[attribute.Resource]floor) map[attribute.Resource]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	lowest := map[attribute.Resource]string{}
	for id, t := range p.targets {
		r, known := p.stored(&t.Collection)
		if !known {
			continue
		}
		s := p.loop.State(id)
		position := s.Position
		if s.Absent { // its objects come by a list, which says nothing about requests
			position = floors[r].version
		}
		if other, more := lowest[r]; more {
			position = lowerPosition(position, other)
		}
		lowest[r] = position
	}
	for id := range p.unnamed {
		c := event.ParseCollection(id)
		if r, known := p.stored(&c); known {
			delete(lowest, r)
		}
	}
	for r, position := range lowest {
		if position == "" {
			delete(lowest, r)
		}
	}
	return lowest
}

// lowerPosition returns the lower one of two positions; "" if one is not known, or if they cannot be compared.
func lowerPosition(a, b string) string {
	switch {
	case a == b, event.Older(a, b):
		return a
	case event.Older(b, a):
		return b
	}
	return ""
}

// overlapping returns the resources of which several collections can have the same object, as far as their namespaces say.
func (p *Pipeline) overlapping() map[join.Resource]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, namespaces := map[join.Resource]bool{}, map[join.Resource]map[string]bool{}
	add := func(c *event.Collection) {
		r := attribute.ResourceOf(c)
		others := namespaces[r]
		if others == nil {
			others = map[string]bool{}
			namespaces[r] = others
		}
		if others[c.Namespace] || others[""] || c.Namespace == "" && len(others) > 0 {
			found[r] = true
		}
		others[c.Namespace] = true
	}
	for _, t := range p.targets {
		add(&t.Collection)
	}
	for id := range p.unnamed {
		c := event.ParseCollection(id)
		add(&c)
	}
	return found
}

// idle returns the resources that have no collections any more.
func (p *Pipeline) idle() (list []attribute.Resource) {
	p.mu.Lock()
	defer p.mu.Unlock()
	used := map[join.Resource]bool{}
	for _, t := range p.targets {
		used[attribute.ResourceOf(&t.Collection)] = true
	}
	for id := range p.unnamed {
		c := event.ParseCollection(id)
		used[attribute.ResourceOf(&c)] = true
	}
	for r, storage := range p.storage {
		if !used[r] {
			list = append(list, attribute.Resource{Storage: storage, Resource: r})
		}
	}
	return list
}

// run gets records until ctx ends. Those of the topic are got by readTopic, at the leader only.
func (a *auditing) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if a.spec.Webhook != nil {
		group.Go(func() error { return a.serve(ctx) })
	}
	if a.spec.File != nil {
		group.Go(func() error { return a.follow(ctx) })
	}
	group.Go(func() error {
		a.trim(ctx)
		return nil
	})
	if a.spec.Forward != nil {
		group.Go(func() error {
			a.forward(ctx)
			return nil
		})
	}
	if a.spec.Join.Complete {
		group.Go(func() error {
			a.findFloors(ctx)
			return nil
		})
	}
	return group.Wait()
}

func (a *auditing) serve(ctx context.Context) error {
	o := *a.spec.Webhook
	store := newWebhookStore(a)
	o.Store, o.Log = store, a.log
	o.Refused = func(records []audit.Record, why error) { store.Refused(firstTime(records), why) }
	o.Leads = a.role.leads
	if a.spec.Join.Complete {
		o.Unparsable = func(why error) audit.Record { return unparsable(fromWebhook, why) }
	}
	s, err := webhook.New(o)
	if err != nil {
		return fmt.Errorf("audit.webhook: %w", err)
	}
	a.server.Store(s)
	defer store.declare(true)
	return s.Run(ctx)
}

// follow copies the records of the log file to the inbox. How far it has come is stored behind that, so records can come twice.
func (a *auditing) follow(ctx context.Context) error {
	path := filepath.Join(a.spec.Path, "file-position.json")
	from, ok := readPosition[logfile.Position](ctx, a, path, fromFile)
	if !ok {
		return nil
	}
	f := logfile.Open(*a.spec.File, from)
	defer func() { _ = f.Close() }()
	found := false
	var known time.Time // of the last record that was read, or when all was
	for {
		begun := time.Now()
		chunk, err := f.Next()
		var gap *logfile.GapError
		switch {
		case errors.As(err, &gap):
			if !a.lost(ctx, fromFile, known, err) {
				return nil
			}
			continue
		case errors.Is(err, io.EOF):
			found, known = a.fileEnds(found, begun), begun
			if f.Wait(ctx) != nil {
				return nil
			}
			continue
		case errors.Is(err, logfile.ErrChanging): // it is not known that everything is in the inbox
			if f.Wait(ctx) != nil {
				return nil
			}
			continue
		case err != nil:
			a.shown.met(readFile, err)
			a.log.Warn("read of the audit log failed, trying again", zap.Error(err))
			if !pause(ctx, retryEvery) {
				return nil
			}
			continue
		}
		found = true
		known = lastTime(chunk.Records, known)
		a.shown.met(readFile, nil)
		for i := range chunk.Records {
			chunk.Records[i].Input = fromFile
		}
		if chunk.Unparsable > 0 && a.spec.Join.Complete {
			chunk.Records = append(chunk.Records, unparsable(fromFile, chunk.Err))
		}
		if !a.keep(ctx, chunk.Records) {
			return nil
		}
		a.shown.count(&chunk.Batch)
		a.storePosition(path, chunk.Position)
	}
}

// readPosition returns how far an input was read. If that cannot be read, a loss is noted, and the result is the zero position. ok is false if ctx
// ends first.
func readPosition[Position any](ctx context.Context, a *auditing, path string, input int) (from Position, ok bool) {
	err := readJSON(path, &from)
	if err == nil {
		return from, true
	}
	var unknown Position
	if !a.lost(ctx, input, time.Time{}, fmt.Errorf("read the position up to which audit records were read: %w", err)) {
		return unknown, false
	}
	a.storePosition(path, unknown) // so that the next start does not note the loss again
	return unknown, true
}

// storePosition stores how far an input was read. An error is not repeated: the next position replaces this one.
func (a *auditing) storePosition(path string, position any) {
	err := writeJSON(path, position)
	a.shown.met(storePosition, err)
	if err != nil {
		a.log.Warn("write of the position of audit records failed", zap.Error(err))
	}
}

// fileEnds is called when all of the file was read that had been written before a time. found says that the file has been there: until then, the
// configuration may name another file than the API server writes. It returns whether the file has been there now.
func (a *auditing) fileEnds(found bool, at time.Time) bool {
	var missing error
	if !found {
		_, missing = os.Stat(a.spec.File.Path)
	}
	a.shown.met(readFile, missing)
	a.hasRead(fromFile, at)
	return missing == nil
}

// hasRead notes that everything that was written to the file or to the topic before a time is in the inbox.
func (a *auditing) hasRead(input int, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.caught[input] = caught{at, a.inbox.Last()}
}

// read returns what hasRead noted last of an input.
func (a *auditing) read(input int) caught {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.caught[input]
}

// caughtUp returns up to where the records of all inputs are in the inbox. Those of the webhook are there before the API server goes on. The time is zero
// until the end of the file and of the topic was reached.
func (a *auditing) caughtUp() caught {
	var all []caught
	if a.spec.File != nil {
		all = append(all, a.read(fromFile))
	}
	if a.spec.Topic != nil {
		all = append(all, a.read(fromTopic))
	}
	if len(all) == 0 {
		at := time.Now()
		return caught{at, a.inbox.Last()}
	}
	least := all[0]
	for _, one := range all[1:] {
		if one.at.Before(least.at) {
			least.at = one.at
		}
		least.number = max(least.number, one.number)
	}
	return least
}

// findFloors asks the API server again and again how far each resource has come, until ctx ends.
func (a *auditing) findFloors(ctx context.Context) {
	for pause(ctx, min(floorEvery, a.spec.Join.MaxOpen/2)) {
		read := a.caughtUp()
		asked := time.Now() // the number was known before the version is
		var group errgroup.Group
		group.SetLimit(floorsAtOnce)
		for r, t := range a.targets() {
			group.Go(func() error {
				version, err := a.client.Version(ctx, t, asked)
				if err != nil {
					a.log.Debug("it is not known how far the API server has come", zap.Error(err))
					return nil
				}
				a.mu.Lock()
				defer a.mu.Unlock()
				a.floors[r] = floor{read, version}
				return nil
			})
		}
		_ = group.Wait() // there are no errors
	}
}

// keep appends records to the inbox, as soon as that has room. It returns false if ctx ends first.
func (a *auditing) keep(ctx context.Context, records []audit.Record) bool {
	for {
		err := a.Append(records)
		if err == nil {
			return true
		}
		a.log.Warn("audit records cannot be kept, trying again", zap.Error(err))
		if !pause(ctx, retryEvery) {
			return false
		}
	}
}

// errNotDecoded is returned by readJSON for a file that writeJSON has not written like that.
var errNotDecoded = errors.New("the file cannot be decoded")

// readJSON reads a value that writeJSON has written, if the file exists. After an error, the value can be anything.
func readJSON(path string, value any) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, value); err != nil {
		return fmt.Errorf("%w: %s: %w", errNotDecoded, path, err)
	}
	return nil
}

// writeJSON replaces a file durably by the JSON of a value.
func writeJSON(path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return diskguard.ReplaceFile(path, text)
}

// trim deletes records that no sink needs.
func (a *auditing) trim(ctx context.Context) {
	for pause(ctx, trimEvery) {
		a.listens()
		lowest := a.lowest()
		if lowest.Number == 0 {
			continue
		}
		err := a.inbox.Trim(lowest)
		a.shown.met(deleteRecords, err)
		if err != nil {
			a.log.Warn("delete of audit records failed, trying again", zap.Error(err))
		}
	}
}

// need is what a sink needs of the inbox: the records behind a position.
type need struct {
	sink string
	inbox.Position
	known bool // false: the sink has not read its checkpoint yet, and may need all records
}

// needs returns what the sinks need, the one first that needs most; nil: this process has no sinks now.
func (a *auditing) needs() (list []need) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.begun.IsZero() {
		return nil
	}
	for _, sink := range a.sinks {
		at, known := a.needed[sink]
		list = append(list, need{sink, at, known})
	}
	slices.SortFunc(list, func(x, y need) int {
		return cmp.Or(cmp.Compare(x.Number, y.Number), cmp.Compare(x.sink, y.sink))
	})
	return list
}

// starting reports whether sinks may not have had the time to read their checkpoints.
func (a *auditing) starting() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Since(a.begun) < readyAfter
}

// records returns how many records a need is.
func (a *auditing) records(n need) uint64 {
	last := a.inbox.Last()
	return last - min(last, max(n.Number, a.inbox.First()-1))
}

// lowest returns the position up to which records are deleted; zero: none. A sink that has not read its checkpoint needs all: its bus may be away.
//
//	inbox                                                    records are kept for
//	has room                                                 all sinks
//	almost full, and one sink alone needs half of them       the other sinks: the records would be refused for all. That sink
//	or more                                                  finds a gap, and publishes it
//	the same, but that sink has not read its checkpoint,     all sinks
//	and the sinks were started less than readyAfter ago
//	almost full otherwise                                    all sinks
func (a *auditing) lowest() (upTo inbox.Position) {
	list := a.needs()
	if len(list) == 0 {
		return upTo
	}
	limit := a.inbox.MaxBytes()
	if limit == 0 || float64(a.inbox.Bytes()) < almostFull*float64(limit) || len(list) == 1 {
		return list[0].Position
	}
	all, others := a.records(list[0]), a.records(list[1])
	if all-others < (all+1)/2 || all == others || !list[0].known && a.starting() {
		return list[0].Position
	}
	a.log.Warn("deleted audit records that a sink has not used, because they take the room of all sinks",
		zap.String("sink", list[0].sink), zap.Uint64("records", all-others))
	return list[1].Position
}

// followAudit passes audit records to the sink until ctx ends.
func (p *Pipeline) followAudit(ctx context.Context, a *auditing) error {
	r := recordReader{pipeline: p, auditing: a, floors: map[attribute.Resource]floor{}}
	defer r.close()
	for ctx.Err() == nil {
		if err := r.next(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
			p.log.Warn("read of audit records failed, trying again", zap.Error(err))
			if !pause(ctx, retryEvery) {
				return nil
			}
		}
	}
	return nil
}

// recordReader reads the inbox for one sink.
type recordReader struct {
	pipeline   *Pipeline
	auditing   *auditing
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
func (r *recordReader) start(a *attribute.Attribution, now time.Time) error {
	r.gap, r.other = nil, false // they are of the reader before
	at, err := r.storedHere(a)
	if err != nil {
		return err
	}
	r.close()
	r.reader, r.before, r.at, r.taken = r.auditing.inbox.Reader(at.Position), nil, at.Position, at.Taken
	a.Begin(at.Number, now)
	return nil
}

// stored returns the position that the sink's store has. The zero value: it has none.
func stored(a *attribute.Attribution) (at storedPosition, err error) {
	text, err := a.Stored()
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
func (r *recordReader) storedHere(a *attribute.Attribution) (storedPosition, error) {
	at, err := stored(a)
	r.from = at
	if at.Inbox == "" || at.Inbox == r.auditing.id {
		return at, err
	}
	if r.auditing.spec.Forward == nil {
		r.other, r.gap = true, &inbox.GapError{Err: errOtherInbox}
		r.miss(r.gap)
	}
	return storedPosition{}, err
}

var errOtherInbox = errors.New("audit.path has another inbox than before")

// miss notes that records are missing in the inbox.
func (r *recordReader) miss(err error) {
	r.auditing.gaps.Add(1)
	r.auditing.shown.lost(err)
	r.pipeline.log.Warn("audit records are missing", zap.Error(err))
}

// next passes on the next records, and what is known about their order.
func (r *recordReader) next(ctx context.Context) error {
	records, gap, err := r.read(ctx)
	if err != nil {
		return err
	}
	lost := r.loss(gap)
	missing := r.missingUpTo(gap)
	caught := r.auditing.caughtUp() // before the loop handles what was read
	var failed error
	planned, err := r.pipeline.loop.Page(ctx, sizeOf(records), func(p loop.Page) {
		a, now := r.pipeline.attribution, time.Now()
		a.Turn(p)
		r.pipeline.attributed.Store(attributionStatus(a.Counts(), r.auditing.spec.Denied))
		if a.Generation() != r.generation {
			if failed = r.start(a, now); failed == nil {
				r.generation = a.Generation()
			}
			return
		}
		var changes []event.KV
		if lost != nil {
			if r.other {
				r.other = false
				r.before, r.at = nil, inbox.Position{}
				a.Begin(0, now)
				p.NoteLatest(attribute.StorePosition(r.encode(inbox.Position{})))
			}
			a.Skip(missing, now) // what waits must not wait for these records
			a.Lost(now)
			changes = append(changes, r.publishLoss(a, r.at.Number, lost)...)
		}
		for i := range records {
			at := records[i].Position
			r.before = append(r.before, numbered{at.Number, r.at})
			r.at, r.known = at, lastTime([]audit.Record{records[i].Record}, r.known)
			if records[i].Record.Lost != nil {
				a.Lost(now)
			}
			a.Read(at.Number, &records[i].Record, now)
			changes = append(changes, r.refuse(a, at.Number, &records[i].Record)...)
		}
		changes = append(changes, a.CountRefusals()...)
		if lost != nil { // some of the records behind the missing ones may have come before them
			a.Lost(now)
		}
		a.Caught(caught.at, caught.number)
		r.passFloors(a, now)
		for resource, version := range r.pipeline.passed(r.floors) {
			a.Passed(resource, version)
		}
		a.Overlap(r.pipeline.overlapping())
		if r.auditing.spec.Join.Complete {
			for _, resource := range r.pipeline.idle() {
				a.Idle(resource)
			}
		}
		changes = append(changes, r.declare(a, now)...)
		if now.Sub(r.trimmed) > trimEvery {
			r.trimmed = now
			failed = r.release(a)
		}
		p.Note(changes...)
		if len(changes) == 0 && now.Sub(r.stored) < storeEvery {
			return
		}
		r.stored = now
		if at := r.position(a); at != nil {
			p.NoteLatest(attribute.StorePosition(at))
		}
	})
	if err != nil { // the loop may still call the function
		return err
	}
	if !planned {
		pause(ctx, lookEvery)
	}
	return failed
}

// missingUpTo returns the number of the last record that is missing because of a gap.
func (r *recordReader) missingUpTo(gap error) uint64 {
	var known *inbox.GapError
	if errors.As(gap, &known) && known.To > 0 {
		return known.To
	}
	return max(r.auditing.inbox.First(), 1) - 1 // the reader has begun behind it
}

// refuse passes on a record if it is of a refused request that is not published yet. It returns the changes of the checkpoint, which are
// committed with the position.
func (r *recordReader) refuse(a *attribute.Attribution, number uint64, record *audit.Record) []event.KV {
	if number <= r.taken {
		return nil
	}
	r.taken = number
	if record.Lost != nil {
		return r.publishLoss(a, number, record)
	}
	if !r.auditing.spec.Denied || !record.Denied() || record.Stage != audit.Complete {
		return nil
	}
	collection := r.pipeline.publisher(record)
	if collection == "" {
		return nil
	}
	return a.Refuse(number, record, collection)
}

// passFloors passes on the floors that came since the last call.
func (r *recordReader) passFloors(a *attribute.Attribution, now time.Time) {
	r.auditing.mu.Lock()
	defer r.auditing.mu.Unlock()
	for resource, f := range r.auditing.floors {
		if r.floors[resource].at.Before(f.at) {
			r.floors[resource] = f
			a.Floor(resource, f.version, f.number, f.at, now)
		}
	}
}

// position returns the position behind which the sink needs records again after a restart.
func (r *recordReader) position(a *attribute.Attribution) []byte {
	needed := a.Needed()
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
	text, _ := json.Marshal(storedPosition{r.auditing.id, at, r.taken}) // strings and numbers always encode
	return text
}

// release says which records the sink does not need any more, after a restart either.
func (r *recordReader) release(a *attribute.Attribution) error {
	at, err := stored(a)
	if err != nil {
		return err
	}
	if at.Inbox != r.auditing.id { // no position in this one is stored yet
		at = storedPosition{}
	}
	r.auditing.mu.Lock()
	defer r.auditing.mu.Unlock()
	r.auditing.needed[r.pipeline.name] = at.Position
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
		bytes += item.Record.Size()
	}
	return items, lost, nil
}

// sizeOf returns the memory of records.
func sizeOf(items []inbox.Item) (n int) {
	for i := range items {
		n += items[i].Record.Size()
	}
	return n
}
