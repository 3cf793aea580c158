package attribution

import (
	"cmp"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/inbox"
	"github.com/kubebridge/kubebridge/internal/attribution/webhook"
)

// The operations on audit records, as the status names them. All but useAzure are retried.
const (
	storeRecords  = "store audit records"
	readFile      = "read audit.file"
	readTopic     = "read audit.kafka"
	useAzure      = "use the Azure records of audit.kafka"
	deleteRecords = "delete audit records that are not needed"
	sendRecords   = "send audit records to the leader"
)

// Status is the state of the inputs and of the inbox. Numbers are since the start, except Bytes.
type Status struct {
	Bytes, MaxBytes           int64             // on disk, and from which on no more records are accepted
	Records, Unparsable, Gaps uint64            // stored records, events that could not be read, and places where records are missing
	Dropped, Refused          map[string]uint64 // see [audit.Dropped] and [webhook.Counters]; Refused is nil without a webhook
	Needed                    map[string]uint64 // by sink: records on disk that it needs
	FileRead                  time.Time         // all that was written to the file before is stored; zero: its end was not reached, or there is none
	Failing                   string            // the operation that fails longest, and why; "": none fails
	Since                     time.Time         // when it began to fail
	LastError                 *Trouble          // nil: there was none
}

// Trouble is an error, and what to do.
type Trouble struct {
	Error, Advice string
	At            time.Time
}

// state is what [Status] shows that the inputs do not know otherwise. Any goroutine uses it.
type state struct {
	mu      sync.Mutex
	failing map[string]failure // by operation
	last    *Trouble

	// These are numbers of the file and of the topic.
	stored     uint64
	dropped    audit.Dropped
	unparsable uint64
}

type failure struct {
	why   string
	since time.Time
}

// met notes how an operation has ended. nil ends its failure.
func (s *state) met(operation string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.failing, operation)
		return
	}
	now := time.Now()
	f := failure{operation + ": " + err.Error(), now}
	if before, had := s.failing[operation]; had {
		f.since = before.since
	}
	if s.failing == nil {
		s.failing = map[string]failure{}
	}
	s.failing[operation] = f
	s.last = &Trouble{Error: f.why, Advice: advice(operation, err), At: now}
}

// lost notes that records are missing.
func (s *state) lost(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = &Trouble{Error: err.Error(), Advice: "nothing: some changes have candidates only, or no attribution; the log says where records are missing", At: time.Now()}
}

// count counts events of the file or the topic of which the records are stored.
func (s *state) count(b *audit.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored += uint64(len(b.Records))
	s.unparsable += uint64(b.Unparsable)
	s.dropped.Add(&b.Dropped)
}

// advices are what to do about operations that fail.
var advices = map[string]string{
	readFile:    "let the bridge read audit.file and its directory",
	sendRecords: "check audit.replicas, and that the replicas reach one another; nothing is lost meanwhile, unless the directory is full",
	useAzure:    "set audit.kafka.azureResourceId to the resource ID of this cluster",
	readTopic:   "check audit.kafka, and that the bridge may read and describe the topic",
}

func advice(operation string, err error) string {
	if errors.Is(err, inbox.ErrFull) {
		return "restore the sinks that are behind, or raise audit.maxBytes and the size of its volume"
	}
	return cmp.Or(advices[operation], "check the disk of audit.path, and that the bridge may write there")
}

// Append stores records of the webhook: see [webhook.Store].
func (in *Inputs) Append(records []audit.Record) error { return in.append(records, fromWebhook, nil) }

func (in *Inputs) append(records []audit.Record, input int, offset json.RawMessage) error {
	err := in.inbox.AppendAt(records, input, offset)
	in.shown.met(storeRecords, err)
	return err
}

// Status returns the state of the inputs. Any goroutine may call it.
func (in *Inputs) Status() Status {
	out := Status{Bytes: in.inbox.Bytes(), MaxBytes: in.inbox.MaxBytes(), Gaps: in.gaps.Load(), Needed: map[string]uint64{}}
	for _, n := range in.needs() {
		out.Needed[n.sink] = in.records(n)
	}
	s := &in.shown
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Records, out.Unparsable, out.LastError = s.stored, s.unparsable, s.last
	dropped := s.dropped
	for _, f := range s.failing { // the oldest failure
		if out.Since.IsZero() || f.since.Before(out.Since) {
			out.Failing, out.Since = f.why, f.since
		}
	}
	if in.spec.Webhook != nil {
		var n webhook.Counters
		if server := in.server.Load(); server != nil {
			n = server.Counters()
		}
		out.Records += n.Stored
		out.Unparsable += n.Unparsable
		out.Refused = n.RefusedByName()
		dropped.Add(&n.Dropped)
	}
	out.Dropped = dropped.ByName()
	if in.spec.File != nil {
		out.FileRead = in.read(fromFile).at
	}
	return out
}
