package attribution

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/kubebridge/kubebridge/internal/attribution/attribute"
	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/forward"
	"github.com/kubebridge/kubebridge/internal/attribution/inbox"
	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/internal/attribution/logfile"
	"github.com/kubebridge/kubebridge/internal/attribution/topic"
	"github.com/kubebridge/kubebridge/internal/attribution/webhook"
	"github.com/kubebridge/kubebridge/internal/base/pause"
	"github.com/kubebridge/kubebridge/pkg/source"
)

const (
	// recordsAtOnce is how many audit records a sink takes at once.
	recordsAtOnce = 256
	// storeEvery is how often a sink stores how far it has read audit records.
	storeEvery = time.Second
	// almostFull is the part of audit.maxBytes from which on one sink's needs do not count any more: see [Inputs.lowest].
	almostFull = 0.9
	// readyAfter is how long a sink may take to read its checkpoint before its bus counts as away: see [Inputs.lowest].
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
	toLeader = inputs // no input: the inbox keeps how far it is sent to the leader
	noInput  = -1
)

const (
	// offsetEvery is how often the offset of an input is kept while none of its records are.
	offsetEvery = 10 * time.Second
)

// Spec says where audit records come from.
type Spec struct {
	Path    string // directory of the inbox
	Inbox   func(context.Context) (inbox.Options, error)
	Webhook *webhook.Options // without Store, Log, Unparsable and Leads; nil: there is no webhook
	// Forward says how a replica that does not lead sends the records that its inputs get to the leader; nil: such a replica gets none.
	// Inbox, From, Sent, Failed and Lost are not set.
	Forward *forward.Options
	File    *logfile.Options              // nil: there is none
	Topic   func() (topic.Options, error) // nil: there is none. An error is tried again
	Join    join.Options
	// MaxBytes bounds the memory of records and changes of each sink: see [attribute.Options].
	MaxBytes int
	Wait     time.Duration // see [attribute.Options]
	Denied   bool          // refused requests are published
}

// Inputs get audit records, keep them, and pass them on to all sinks.
type Inputs struct {
	spec  *Spec
	log   *zap.Logger
	inbox *inbox.Inbox
	sinks []string // their names

	id     string // of the inbox
	role   role
	gaps   atomic.Uint64 // records of an unknown number were lost that often
	server atomic.Pointer[webhook.Server]
	shown  state

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

// Options of [Inputs]. All are required.
type Options struct {
	*Spec
	Sinks   []string                                    // their names
	Targets func() map[attribute.Resource]source.Target // of the resources that sinks read
	Client  *source.Client
	Log     *zap.Logger
}

// Open opens the inbox. The caller calls Run and Close. An inbox of an earlier version is refused: it has no offsets, so
// the inputs could leave out records, or take them in twice.
func Open(o Options, box inbox.Options) (*Inputs, error) {
	if former, err := fs.Glob(os.DirFS(o.Path), "*-position.json"); err == nil && len(former) > 0 {
		return nil, refuseFormer(o.Path, fmt.Errorf("%w: it has the file %s", inbox.ErrFormer, former[0]))
	}
	b, err := inbox.Open(o.Path, box)
	if errors.Is(err, inbox.ErrFormer) {
		return nil, refuseFormer(o.Path, err)
	}
	if err != nil {
		return nil, err
	}
	in := &Inputs{
		spec: o.Spec, log: o.Log, inbox: b, sinks: o.Sinks, needed: map[string]inbox.Position{}, client: o.Client, targets: o.Targets,
		floors: map[attribute.Resource]floor{}, id: b.ID(),
	}
	if b.Last() == 0 { // the inbox keeps its identity
		if err := in.append(nil, noInput, json.RawMessage("{}")); err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	return in, nil
}

// refuseFormer returns the error for an inbox of an earlier version.
func refuseFormer(path string, why error) error {
	dir := "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	return fmt.Errorf("%w: empty it with `rm -f %s/*.spool %s/*.json`; docs/upgrade.md says what is lost", why, dir, dir)
}

// Close closes the inbox, after Run and all sinks' Follow have returned.
func (in *Inputs) Close() error { return in.inbox.Close() }

// Run gets records until ctx ends. Those of the topic are got by ReadTopic, at the leader only.
func (in *Inputs) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if in.spec.Webhook != nil {
		group.Go(func() error { return in.serve(ctx) })
	}
	if in.spec.File != nil {
		group.Go(func() error { return in.follow(ctx) })
	}
	group.Go(func() error {
		in.trim(ctx)
		return nil
	})
	if in.spec.Forward != nil {
		group.Go(func() error {
			in.forward(ctx)
			return nil
		})
	}
	if in.spec.Join.Complete {
		group.Go(func() error {
			in.findFloors(ctx)
			return nil
		})
	}
	return group.Wait()
}

func (in *Inputs) serve(ctx context.Context) error {
	o := *in.spec.Webhook
	store := newWebhookStore(in)
	o.Store, o.Log = store, in.log
	o.Refused = func(records []audit.Record, why error) { store.Refused(firstTime(records), why) }
	o.Leads = in.role.leads
	if in.spec.Join.Complete {
		o.Unparsable = func(why error) audit.Record { return unparsable(fromWebhook, why) }
	}
	s, err := webhook.New(o)
	if err != nil {
		return fmt.Errorf("audit.webhook: %w", err)
	}
	in.server.Store(s)
	defer store.declare(true)
	return s.Run(ctx)
}

// follow copies the records of the log file to the inbox.
func (in *Inputs) follow(ctx context.Context) error {
	file, from, ok := newIntake[logfile.Position](ctx, in, fromFile)
	if !ok {
		return nil
	}
	defer file.flush(0)
	f := logfile.Open(*in.spec.File, from)
	defer func() { _ = f.Close() }()
	found := false
	var known time.Time // of the last record that was read, or when all was
	for {
		begun := time.Now()
		chunk, err := f.Next()
		var gap *logfile.GapError
		switch {
		case errors.As(err, &gap):
			if !file.lost(ctx, known, err) {
				return nil
			}
			continue
		case errors.Is(err, io.EOF):
			file.flush(offsetEvery)
			found, known = in.fileEnds(found, begun), begun
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
			in.shown.met(readFile, err)
			in.log.Warn("read of the audit log failed, trying again", zap.Error(err))
			if !pause.For(ctx, retryEvery) {
				return nil
			}
			continue
		}
		found = true
		known = lastTime(chunk.Records, known)
		in.shown.met(readFile, nil)
		if chunk.Unparsable > 0 && in.spec.Join.Complete {
			chunk.Records = append(chunk.Records, unparsable(fromFile, chunk.Err))
		}
		if !file.keep(ctx, chunk.Records, chunk.Position) {
			return nil
		}
		in.shown.count(&chunk.Batch)
	}
}

// fileEnds is called when all of the file was read that had been written before a time. found says that the file has been there: until then, the
// configuration may name another file than the API server writes. It returns whether the file has been there now.
func (in *Inputs) fileEnds(found bool, at time.Time) bool {
	var missing error
	if !found {
		_, missing = os.Stat(in.spec.File.Path)
	}
	in.shown.met(readFile, missing)
	in.hasRead(fromFile, at)
	return missing == nil
}

// hasRead notes that everything that was written to the file or to the topic before a time is in the inbox.
func (in *Inputs) hasRead(input int, at time.Time) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.caught[input] = caught{at, in.inbox.Last()}
}

// read returns what hasRead noted last of an input.
func (in *Inputs) read(input int) caught {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.caught[input]
}

// caughtUp returns up to where the records of all inputs are in the inbox. Those of the webhook are there before the API server goes on. The time is zero
// until the end of the file and of the topic was reached.
func (in *Inputs) caughtUp() caught {
	var all []caught
	if in.spec.File != nil {
		all = append(all, in.read(fromFile))
	}
	if in.spec.Topic != nil {
		all = append(all, in.read(fromTopic))
	}
	if len(all) == 0 {
		at := time.Now()
		return caught{at, in.inbox.Last()}
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
func (in *Inputs) findFloors(ctx context.Context) {
	for pause.For(ctx, min(floorEvery, in.spec.Join.MaxOpen/2)) {
		read := in.caughtUp()
		asked := time.Now() // the number was known before the version is
		var group errgroup.Group
		group.SetLimit(floorsAtOnce)
		for r, t := range in.targets() {
			group.Go(func() error {
				version, err := in.client.Version(ctx, t, asked)
				if err != nil {
					in.log.Debug("it is not known how far the API server has come", zap.Error(err))
					return nil
				}
				in.mu.Lock()
				defer in.mu.Unlock()
				in.floors[r] = floor{read, version}
				return nil
			})
		}
		_ = group.Wait() // there are no errors
	}
}

// trim deletes records that no sink needs.
func (in *Inputs) trim(ctx context.Context) {
	for pause.For(ctx, trimEvery) {
		in.listens()
		lowest := in.lowest()
		if lowest.Number == 0 {
			continue
		}
		err := in.inbox.Trim(lowest)
		in.shown.met(deleteRecords, err)
		if err != nil {
			in.log.Warn("delete of audit records failed, trying again", zap.Error(err))
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
func (in *Inputs) needs() (list []need) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.begun.IsZero() {
		return nil
	}
	for _, sink := range in.sinks {
		at, known := in.needed[sink]
		list = append(list, need{sink, at, known})
	}
	slices.SortFunc(list, func(x, y need) int {
		return cmp.Or(cmp.Compare(x.Number, y.Number), cmp.Compare(x.sink, y.sink))
	})
	return list
}

// starting reports whether sinks may not have had the time to read their checkpoints.
func (in *Inputs) starting() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return time.Since(in.begun) < readyAfter
}

// records returns how many records a need is.
func (in *Inputs) records(n need) uint64 {
	last := in.inbox.Last()
	return last - min(last, max(n.Number, in.inbox.First()-1))
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
func (in *Inputs) lowest() (upTo inbox.Position) {
	list := in.needs()
	if len(list) == 0 {
		return upTo
	}
	limit := in.inbox.MaxBytes()
	if limit == 0 || float64(in.inbox.Bytes()) < almostFull*float64(limit) || len(list) == 1 {
		return list[0].Position
	}
	all, others := in.records(list[0]), in.records(list[1])
	if all-others < (all+1)/2 || all == others || !list[0].known && in.starting() {
		return list[0].Position
	}
	in.log.Warn("deleted audit records that a sink has not used, because they take the room of all sinks",
		zap.String("sink", list[0].sink), zap.Uint64("records", all-others))
	return list[1].Position
}

// retryEvery is the pause before an operation is tried again.
const retryEvery = 3 * time.Second
