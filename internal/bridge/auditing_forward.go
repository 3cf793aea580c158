package bridge

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/attribution/forward"
	"github.com/kubebridge/kubebridge/internal/attribution/inbox"
)

// ForwardSpec says how a standby sends audit records to the leader.
type ForwardSpec struct {
	Leader    func() string // the address of the leader's webhook, host:port; "": it is not known
	CAFile    string
	Cert, Key string
	TokenFile string
}

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
	changed chan struct{} // closed by the next change; nil: nobody waits for it
}

func (r *role) leads() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leading
}

// set changes the role.
func (r *role) set(leading bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leading = leading
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// await waits until this process leads, or does not, or until ctx ends.
func (r *role) await(ctx context.Context, leading bool) {
	for ctx.Err() == nil {
		r.mu.Lock()
		if r.leading == leading {
			r.mu.Unlock()
			return
		}
		if r.changed == nil {
			r.changed = make(chan struct{})
		}
		changed := r.changed
		r.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// lead makes this process the one whose sinks use the records. What is in the inbox may be needed until they say otherwise.
func (a *auditing) lead() {
	a.forgetNeeds(time.Now())
	a.role.set(true)
}

// stand makes this process a standby: what is in the inbox is sent to the next leader.
func (a *auditing) stand() {
	a.role.set(false)
	a.forgetNeeds(time.Time{})
}

// forgetNeeds forgets what the sinks need. begun is when they are started; zero: they are not.
func (a *auditing) forgetNeeds(begun time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begun = begun
	clear(a.needed)
}

func (a *auditing) sentPath() string { return filepath.Join(a.spec.Path, "sent-position.json") }

// forward sends the records in the inbox to the leader while this process is a standby, until ctx ends.
func (a *auditing) forward(ctx context.Context) {
	for {
		a.role.await(ctx, false)
		if ctx.Err() != nil {
			return
		}
		a.sendWhileStandby(ctx)
		if ctx.Err() != nil {
			return
		}
		// This process leads. What the former leader has may be lost with it, and the sinks here trim the inbox: the next leader gets all of it.
		if err := os.Remove(a.sentPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			a.log.Warn("delete of the position up to which audit records were sent failed: some will not be sent to the next leader", zap.Error(err))
		}
		a.role.await(ctx, false)
	}
}

// sendWhileStandby sends records until this process leads, or ctx ends.
func (a *auditing) sendWhileStandby(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		a.role.await(ctx, true)
		end()
	})
	a.send(ctx)
	end()
	waiting.Wait()
}

// send sends records until ctx ends.
func (a *auditing) send(ctx context.Context) {
	var from inbox.Position
	if err := readJSON(a.sentPath(), &from); err != nil {
		a.log.Warn("read of the position up to which audit records were sent failed: all are sent again", zap.Error(err))
		from = inbox.Position{}
	}
	s := a.spec.Forward
	forward.New(forward.Options{
		Inbox: a.inbox, From: from, Leader: s.Leader, CAFile: s.CAFile, Cert: s.Cert, Key: s.Key, TokenFile: s.TokenFile,
		Sent: func(at inbox.Position) { a.storePosition(a.sentPath(), at) },
		Failed: func(err error) {
			if ctx.Err() == nil {
				a.shown.met(sendRecords, err)
			}
		},
		Lost: func(err error) {
			a.gaps.Add(1)
			a.shown.lost(err)
			a.log.Warn("audit records are missing", zap.Error(err))
		},
	}).Run(ctx)
	a.shown.met(sendRecords, nil)
}
