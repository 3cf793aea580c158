package source

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

const (
	// Another server behind the same load balancer may still have the history. Before a list, the collection
	// makes otherServers attempts, each after a pause of up to otherPause. Which
	// server a new connection reaches is random.
	otherServers = 8
	otherPause   = 100 * time.Millisecond
	// epochEvery is the minimum time between two new epochs. Without it, two
	// servers with separate storages behind one address would begin an epoch with every request.
	epochEvery = time.Minute
)

// Run lists and watches from position, until ctx ends or the handler returns an
// error, which Run then returns, or until nothing is left to do here:
//
//   - [ErrGone]: the handler received an empty list, for [event.ReasonGone];
//   - an error that wraps [ErrOtherCluster]: the handler received no signal about it.
//
// Run begins with a list if the position is void, no longer served, or of another history. It
// probes the server's present resourceVersion before the first
// watch and before a watch after a failure, and again while a watch is open.
// It retries all other errors: see [Options].OnState. A Collection has one
// Run at a time.
func (c *Collection) Run(ctx context.Context, from event.Position) error {
	watched, leave := c.client.watches.enter(c.target)
	defer leave()
	r := &reader{Collection: c, watched: watched, at: listwatch.Cursor{Resume: from.RV, Last: from.RV}, retry: listwatch.NewBackoff(), trouble: time.Now(), progress: progress{moved: time.Now()}}
	switch {
	case from.Void:
		r.needList(event.ReasonInterrupted, "an earlier list did not come to its end")
	case !listwatch.Resumable(from.RV):
		r.needList(ReasonSnapshot, "")
	}
	for {
		var err error
		switch {
		case c.target.Resource.Version == "":
			err = fmt.Errorf("%s: %w", c.target.Collection.ResourceID(), discovery.ErrNoResource)
		case r.due != nil:
			err = r.reconcile(ctx)
		default:
			err = r.watchOnce(ctx)
		}
		var fromHandler handlerError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errHistory):
			r.client.watches.distrust()
			r.needList(event.ReasonHistory, err.Error())
			if early := r.epochs.early(); early > 0 {
				if err := r.wait(ctx, early, err); err != nil {
					return err
				}
				continue
			}
			if r.listed == "" { // otherwise lists could follow each other without a pause
				continue
			}
		case errors.As(err, &fromHandler):
			return fromHandler.error
		case errors.Is(err, ErrOtherCluster):
			return err
		case err == nil:
			continue
		}
		if err := r.prove(ctx, err); err != nil {
			return err
		}
		if err := r.wait(ctx, r.retry.After(err), r.blame(ctx, err)); err != nil {
			return err
		}
	}
}

// reader is the state of a Run: its next step, and its knowledge of the server.
type reader struct {
	*Collection
	watched *watched // the watches of the target
	at      listwatch.Cursor
	progress
	due   *Signal // ListBegun of the next list; nil: a watch is next
	retry *listwatch.Backoff

	// trouble is the time of the last failure after which the server may have another
	// history. It is zero after a successful probe.
	trouble   time.Time
	lastOpen  time.Time // when a watch was open last
	throwAway bool      // the next watch gets a connection of its own
	elsewhere *other    // if not nil, the next watch gets a connection that may reach another server
	listed    string    // resourceVersion of the last list
	listedAt  time.Time // time of the last list
	empty     listwatch.EmptyWatches
	tried     int    // number of attempts with other servers
	triedFor  string // the resourceVersion for which tried counts
}

func (r *reader) needList(reason event.Reason, detail string) {
	r.due = &Signal{Kind: ListBegun, Reason: reason, Detail: detail, NewEpoch: event.GapCause(reason).NewEpoch}
}

func (r *reader) wait(ctx context.Context, d time.Duration, why error) error {
	r.state(State{Phase: Waiting, Until: time.Now().Add(d), Err: why})
	return listwatch.Sleep(ctx, d)
}

// reconcile reads the list that is due.
func (r *reader) reconcile(ctx context.Context) error {
	r.state(State{Phase: Reconciling})
	if err := r.sameCluster(ctx, time.Now().Add(-sameFor)); err != nil {
		return err
	}
	if seen := r.highest(r.at.Last); seen != "" && !r.due.NewEpoch {
		if _, err := r.probe(ctx, seen, time.Now()); errors.Is(err, errHistory) {
			return err // other failures will also fail the list
		}
	}
	begun, began := *r.due, time.Now()
	begun.Kind, begun.RV = ListBegun, r.at.Resume
	r.relay.begun = false
	rv, err := r.list(ctx, begun)
	if err == nil {
		r.at, r.due, r.trouble = listwatch.Cursor{Resume: rv, Last: rv}, nil, time.Time{}
		r.listed, r.listedAt = rv, time.Now()
		r.progress = progress{moved: time.Now()}
		r.inStep(began)
		r.empty = listwatch.EmptyWatches{}
		return nil
	}
	if r.relay.begun {
		if r.due.NewEpoch { // the new epoch has begun: the position belongs to the old one
			r.at = listwatch.Cursor{}
		}
		r.needList(event.ReasonInterrupted, "a list did not come to its end: "+listwatch.PlainCause(err).Error())
	}
	return err
}

// watchOnce opens a watch and follows it to its end. It returns nil if another watch or a list may follow at once.
func (r *reader) watchOnce(ctx context.Context) error {
	var doubt error
	if !r.trouble.IsZero() {
		if err := r.sameCluster(ctx, r.trouble); err != nil {
			return err
		}
		if _, doubt = r.probe(ctx, r.highest(r.at.Last), r.trouble); errors.Is(doubt, errHistory) {
			return doubt
		}
		r.onReconnect()
	}
	before, began := r.at.Resume, time.Now()
	frames, err := r.watch(ctx, doubt)
	r.at.Continues = errors.Is(err, errAgain)
	lasted := time.Since(began)
	if r.at.Resume != before || lasted > listwatch.SoundWatch {
		r.retry.Reset()
	}
	if err == nil && lasted > listwatch.SoundWatch {
		r.at.Failures = 0
	}
	switch {
	case frames > 0 || lasted > listwatch.AtOnce:
		r.empty = listwatch.EmptyWatches{}
	case err == nil:
		err = r.empty.Ended(before, began, doubt, r.elsewhere != nil)
	}
	if doubt == nil {
		r.trouble = time.Time{}
	}
	switch {
	case errors.Is(err, errAgain):
		r.throwAway, r.elsewhere, r.tried = false, nil, 0
		return nil
	case err == nil:
		r.throwAway, r.elsewhere, r.tried = false, nil, 0
		if frames > 0 && r.at.Resume == before && lasted < listwatch.QuickWatch {
			err := listwatch.NoHeadway(frames, before)
			return r.wait(ctx, r.retry.After(err), err)
		}
		return nil
	case errors.Is(err, errDead):
		r.throwAway, r.elsewhere = true, nil
		return nil
	case errors.Is(err, ErrExpired):
		if !listwatch.IsExpired(err) { // the next attempt counts only if a probe succeeds
			r.trouble = time.Now()
		}
		return r.expired(ctx, err)
	}
	r.throwAway, r.elsewhere, r.trouble = false, nil, time.Now()
	if listwatch.StatusCode(err) != 0 && listwatch.StatusCode(doubt) != 0 { // the probe may name the cause: "storage is (re)initializing" does not
		err = fmt.Errorf("%w; %v", err, doubt) //nolint:errorlint // its status says nothing of the watch
	}
	return err
}

// expired tries other servers. If they do not have the history either, a list is next.
func (r *reader) expired(ctx context.Context, err error) error {
	if r.triedFor != r.at.Resume {
		r.triedFor, r.tried = r.at.Resume, 0
	}
	r.throwAway = false
	if r.elsewhere != nil {
		r.client.transport.Load().other.leave(r.elsewhere.used)
	}
	if r.tried < otherServers {
		r.tried, r.elsewhere = r.tried+1, new(other)
		return r.wait(ctx, rand.N(otherPause), err)
	}
	r.tried, r.elsewhere = 0, nil
	r.needList(event.ReasonExpired, err.Error())
	if r.at.Resume == r.listed { // without a pause, lists would follow each other at once
		if d := r.retry.After(err) - time.Since(r.listedAt); d > 0 {
			return r.wait(ctx, d, err)
		}
	}
	return nil
}

// prove looks for a proof of absence if err says that the collection cannot be
// read. With a proof it passes on an empty list and returns ErrGone. nil means to retry.
func (r *reader) prove(ctx context.Context, err error) error {
	if code := listwatch.StatusCode(err); code != http.StatusForbidden && code != http.StatusNotFound && !errors.Is(err, discovery.ErrNoResource) {
		return nil
	}
	found := r.absent(ctx)
	if found.proof == "" {
		return nil
	}
	switch err := r.client.SameCluster(ctx, time.Now()); {
	case errors.Is(err, ErrOtherCluster):
		return err
	case err != nil:
		return nil // the answer may come from another cluster, so it is no proof
	}
	if err := r.relay.gone(ctx, r.at.Resume, found.proof); err != nil {
		return err
	}
	if !found.again {
		r.state(State{Phase: Gone, Err: errors.New(found.proof)})
		return ErrGone
	}
	r.at = listwatch.Cursor{}
	r.needList(event.ReasonExpired, found.proof)
	return nil
}
