package bridge

import (
	"context"
	"fmt"
	"maps"

	"github.com/kubebridge/kubebridge/internal/attribution"
	"github.com/kubebridge/kubebridge/internal/attribution/attribute"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// openAuditing opens the inbox of audit records; nil: audit records are not used.
func (b *Bridge) openAuditing(ctx context.Context) (in *attribution.Inputs, err error) {
	if b.o.Audit == nil {
		return nil, nil
	}
	box, err := b.o.Audit.Inbox(ctx)
	if err != nil {
		return nil, err
	}
	o := attribution.Options{Spec: b.o.Audit, Targets: b.auditTargets, Client: b.o.Client, Log: b.o.Log}
	for _, s := range b.o.Sinks {
		o.Sinks = append(o.Sinks, s.Sink)
	}
	failing := failure{message: "open audit.path failed; trying again until there is disk space, no event is published meanwhile"}
	err = b.onceThereIsSpace(ctx, "open audit.path", failing, func() (err error) {
		in, err = attribution.Open(o, box)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("audit.path: %w", err)
	}
	return in, nil
}

// auditTargets returns a target of each resource that a sink reads.
func (b *Bridge) auditTargets() map[attribute.Resource]source.Target {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := map[attribute.Resource]source.Target{}
	for _, p := range b.pipelines {
		maps.Copy(found, p.audit.Targets())
	}
	return found
}

// scope returns what the pipeline publishes, for audit records.
func (p *Pipeline) scope() attribution.Scope {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := attribution.Scope{Read: make(map[string]source.Target, len(p.targets))}
	for id, t := range p.targets {
		s.Read[id] = t.Target
	}
	for id := range p.unnamed {
		s.Unnamed = append(s.Unnamed, id)
	}
	return s
}

// auditStatus converts the state of audit records for the status.
func auditStatus(s attribution.Status) *status.Audit {
	out := &status.Audit{
		Bytes: s.Bytes, MaxBytes: s.MaxBytes, Records: s.Records, Dropped: s.Dropped, Unparsable: s.Unparsable, Refused: s.Refused,
		Needed: s.Needed, Gaps: s.Gaps, FileRead: ifAny(s.FileRead), Failing: s.Failing, Since: ifAny(s.Since),
	}
	if t := s.LastError; t != nil {
		out.LastError = &status.Trouble{Error: t.Error, Advice: t.Advice, At: t.At}
	}
	return out
}

// attributionStatus converts what is known of a sink's changes, and of refused requests if these are published.
func attributionStatus(n attribute.Counts, denied bool) *status.Attribution {
	out := &status.Attribution{
		Waiting: n.Waiting, Exact: n.Exact, Carried: n.Carried, Candidates: map[string]uint64{}, NoRecord: n.Unknown, Dropped: n.Dropped,
	}
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
