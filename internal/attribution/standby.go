package attribution

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/attribution/forward"
	"github.com/kubebridge/kubebridge/internal/attribution/inbox"
)

// role is whether this process leads.
//
//	state      the inbox                                                   next
//	standby    gets records, which are sent to the leader                  leading
//	leading    gets records, also those of standbys, for the sinks here    standby
//
// The zero value is standby.
type role struct {
	mu      sync.Mutex
	leading bool
	changed chan struct{} // closed by the next change; nil: nobody has asked for it
}

func (r *role) leads() bool {
	leading, _ := r.present()
	return leading
}

// present returns whether this process leads, and a channel that is closed when that changes.
func (r *role) present() (leading bool, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return r.leading, r.changed
}

// set changes the role.
func (r *role) set(leading bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed != nil && r.leading != leading {
		close(r.changed)
		r.changed = nil
	}
	r.leading = leading
}

// Lead makes this process the one whose sinks use the records. What is in the inbox may be needed until they say otherwise.
func (in *Inputs) Lead() {
	in.ForgetNeeds(time.Now())
	in.role.set(true)
}

// Stand makes this process a standby: what is in the inbox is sent to the next leader.
func (in *Inputs) Stand() {
	in.role.set(false)
	in.ForgetNeeds(time.Time{})
}

// ForgetNeeds forgets what the sinks need. begun is when they are started; zero: they are not.
func (in *Inputs) ForgetNeeds(begun time.Time) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.begun = begun
	clear(in.needed)
}

// forward sends the records in the inbox to the leader while this process is a standby, until ctx ends.
func (in *Inputs) forward(ctx context.Context) {
	for ctx.Err() == nil {
		leading, changed := in.role.present()
		standing, end := context.WithCancel(ctx)
		var sending sync.WaitGroup
		switch {
		case !leading:
			sending.Go(func() { in.send(standing) })
		case in.inbox.Offset(toLeader) != nil:
			// What the former leader has may be lost with it, and the sinks here trim the inbox: the next leader gets all of it.
			in.sent(inbox.Position{})
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
		end()
		sending.Wait()
	}
}

// send sends records until ctx ends.
func (in *Inputs) send(ctx context.Context) {
	var from inbox.Position
	if text := in.inbox.Offset(toLeader); text != nil {
		_ = json.Unmarshal(text, &from) // sent has encoded it
	}
	o := *in.spec.Forward
	o.Inbox, o.From, o.Sent = in.inbox, from, in.sent
	o.Failed = func(err error) {
		if ctx.Err() == nil {
			in.shown.met(sendRecords, err)
		}
	}
	o.Lost = func(err error) {
		in.gaps.Add(1)
		in.shown.lost(err)
		in.log.Warn("audit records are missing", zap.Error(err))
	}
	forward.New(o).Run(ctx)
	in.shown.met(sendRecords, nil)
}

// sent keeps up to where the leader has the records. After an error some are sent again, or not to the next leader.
func (in *Inputs) sent(upTo inbox.Position) {
	text, _ := json.Marshal(upTo) // strings and numbers always encode
	if err := in.append(nil, toLeader, text); err != nil {
		in.log.Warn("write of the position up to which audit records were sent failed", zap.Error(err))
	}
}
