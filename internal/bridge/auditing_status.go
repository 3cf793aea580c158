package bridge

import (
	"errors"
	"sync"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/attribute"
	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/inbox"
	"github.com/kubebridge/kubebridge/internal/attribution/webhook"
	"github.com/kubebridge/kubebridge/internal/operate/status"
)

// The operations on audit records, as the status names them. All but useAzure are retried.
const (
	storeRecords  = "store audit records"
	readFile      = "read audit.file"
	readTopic     = "read audit.kafka"
	useAzure      = "use the Azure records of audit.kafka"
	storePosition = "store the position of an input"
	deleteRecords = "delete audit records that are not needed"
	sendRecords   = "send audit records to the leader"
)

// auditStatus is what the status shows of audit records. Any goroutine uses it.
type auditStatus struct {
	mu      sync.Mutex
	failing map[string]auditFailure // by operation
	last    *status.Trouble

	// These are numbers of the file and of the topic.
	stored     uint64
	dropped    audit.Dropped
	unparsable uint64
}

type auditFailure struct {
	why   string
	since time.Time
}

// met notes how an operation has ended. nil ends its failure.
func (s *auditStatus) met(operation string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.failing, operation)
		return
	}
	now := time.Now()
	f := auditFailure{operation + ": " + err.Error(), now}
	if before, had := s.failing[operation]; had {
		f.since = before.since
	}
	if s.failing == nil {
		s.failing = map[string]auditFailure{}
	}
	s.failing[operation] = f
	s.last = &status.Trouble{Error: f.why, Advice: auditAdvice(operation, err), At: now}
}

// lost notes that records are missing.
func (s *auditStatus) lost(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = &status.Trouble{Error: err.Error(), Advice: "nothing: some changes have candidates only, or no attribution; the log says where records are missing", At: time.Now()}
}

// count counts events of the file or the topic of which the records are stored.
func (s *auditStatus) count(b *audit.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored += uint64(len(b.Records))
	s.unparsable += uint64(b.Unparsable)
	s.dropped.Add(&b.Dropped)
}

func auditAdvice(operation string, err error) string {
	switch {
	case errors.Is(err, inbox.ErrFull):
		return "restore the sinks that are behind, or raise audit.maxBytes and the size of its volume"
	case operation == readFile:
		return "let the bridge read audit.file and its directory"
	case operation == sendRecords:
		return "check audit.replicas, and that the replicas reach one another; nothing is lost meanwhile, unless the directory is full"
	case operation == useAzure:
		return "set audit.kafka.azureResourceId to the resource ID of this cluster"
	case operation == readTopic:
		return "check audit.kafka, and that the bridge may read and describe the topic"
	}
	return "check the disk of audit.path, and that the bridge may write there"
}

// Append stores records of the webhook: see [webhook.Store].
func (a *auditing) Append(records []audit.Record) error {
	err := a.inbox.Append(records)
	a.shown.met(storeRecords, err)
	return err
}

// status returns the state of the records.
func (a *auditing) status() *status.Audit {
	out := &status.Audit{Bytes: a.inbox.Bytes(), MaxBytes: a.inbox.MaxBytes(), Gaps: a.gaps.Load(), Needed: map[string]uint64{}}
	for _, n := range a.needs() {
		out.Needed[n.sink] = a.records(n)
	}
	s := &a.shown
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Records, out.Unparsable, out.LastError = s.stored, s.unparsable, s.last
	dropped := s.dropped
	for _, f := range s.failing { // the oldest failure
		if out.Since == nil || f.since.Before(*out.Since) {
			out.Failing, out.Since = f.why, &f.since
		}
	}
	if a.spec.Webhook != nil {
		var n webhook.Counters
		if server := a.server.Load(); server != nil {
			n = server.Counters()
		}
		out.Records += n.Stored
		out.Unparsable += n.Unparsable
		out.Refused = n.RefusedByName()
		dropped.Add(&n.Dropped)
	}
	out.Dropped = dropped.ByName()
	if a.spec.File != nil {
		out.FileRead = ifAny(a.read(fromFile).at)
	}
	return out
}

// attributionStatus returns what the status shows of a sink's changes, and of refused requests if these are published.
func attributionStatus(n attribute.Counts, denied bool) *status.Attribution {
	out := &status.Attribution{Waiting: n.Waiting, Exact: n.Exact, Carried: n.Carried, Candidates: map[string]uint64{}, NoRecord: n.Unknown, Dropped: n.Dropped}
	for reason, count := range n.Candidates {
		out.Candidates[string(reason)] = count
	}
	if denied {
		r := n.Refusals
		out.Denied = map[string]uint64{"published": r.Published, "dropped": r.Dropped, "rejected": r.Rejected, "lost": r.Lost}
		out.DeniedWaiting = r.Waiting
	}
	return out
}
