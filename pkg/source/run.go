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
)

const (
	// A server that ends watches at once, again and again, has lost the history.
	emptyCloses     = 3
	emptyCloseQuick = 2 * time.Second
	// So has one that ends watches from one resourceVersion with an error of its
	// own (an event whose previous value etcd has compacted away).
	maxFailures = 5
	// But another one behind the same load balancer may have it: it is tried
	// otherServers times, each after a pause of up to otherPause, before a list. Which
	// server a connection reaches is a matter of chance.
	otherServers = 8
	otherPause   = 100 * time.Millisecond
	// epochEvery is how long after a new epoch another one begins at the earliest. Two
	// servers with a storage each behind one address would begin one with every request.
	epochEvery = time.Minute
	// soundWatch is how long watches must last for the next failure to count as
	// the first.
	soundWatch = time.Minute
)

// Run lists and watches from position, until ctx ends or the handler returns an
// error, which Run then returns, or until nothing is left to do here:
//
//   - [ErrGone]: the handler received a list of nothing, for [event.ReasonGone];
//   - an error that wraps [ErrOtherCluster]: the handler received nothing about it.
//
// A void position, one that no server has any more, and one of another history
// begin with a list. How far the server's history goes is asked before the first
// watch and before one that follows a failure, and again when any watch is open.
// Whatever else happens is waited out: see [Options].OnState. A Collection has one
// Run at a time.
func (c *Collection) Run(ctx context.Context, from event.Position) error {
	l := &loop{Collection: c, at: cursor{resume: from.RV, last: from.RV}, retry: newBackoff(), trouble: time.Now()}
	switch {
	case from.Void:
		l.needList(event.ReasonInterrupted, "an earlier list did not come to its end")
	case !resumable(from.RV):
		l.needList(ReasonSnapshot, "")
	}
	for {
		var err error
		switch {
		case c.target.Resource.Version == "":
			err = fmt.Errorf("%s: %w", c.target.Collection.ResourceID(), discovery.ErrNoResource)
		case l.due != nil:
			err = l.reconcile(ctx)
		default:
			err = l.follow(ctx)
		}
		var fromHandler handlerError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errHistory):
			l.due = &Signal{Reason: event.ReasonHistory, Detail: err.Error(), NewEpoch: true}
			if early := l.epochs.early(); early > 0 {
				if err := l.wait(ctx, early, err); err != nil {
					return err
				}
				continue
			}
			if l.listed == "" { // else lists could follow each other at once
				continue
			}
		case errors.As(err, &fromHandler):
			return fromHandler.error
		case errors.Is(err, ErrOtherCluster):
			return err
		case err == nil:
			continue
		}
		if err := l.prove(ctx, err); err != nil {
			return err
		}
		if err := l.wait(ctx, l.retry.after(err), err); err != nil {
			return err
		}
	}
}

// loop is a Run under way: what it will do next, and what it knows of the server.
type loop struct {
	*Collection
	at    cursor
	due   *Signal // the ListBegun of the list that is due; nil: a watch
	retry *backoff

	// trouble is when something failed after which the server's history may be
	// another one; zero when it was asked since.
	trouble    time.Time
	throwAway  bool      // the next watch gets a connection of its own,
	elsewhere  *other    // or one that may reach another server, if not nil,
	busy       bool      // or a wide one
	listed     string    // where the last list ended,
	listedAt   time.Time // and when
	empty      int       // watches that ended at once, in a row
	emptySince time.Time
	tried      int    // other servers, for
	triedFor   string // this resourceVersion
}

func (l *loop) needList(reason event.Reason, detail string) {
	l.due = &Signal{Reason: reason, Detail: detail}
}

func (l *loop) wait(ctx context.Context, d time.Duration, why error) error {
	l.state(State{Phase: Waiting, Until: time.Now().Add(d), Err: why})
	return sleep(ctx, d)
}

// reconcile reads the list that is due.
func (l *loop) reconcile(ctx context.Context) error {
	l.state(State{Phase: Reconciling})
	if err := l.sameCluster(ctx, time.Now().Add(-sameFor)); err != nil {
		return err
	}
	if seen := l.highest(l.at.last); seen != "" && !l.due.NewEpoch {
		if _, err := l.probe(ctx, seen, time.Now()); errors.Is(err, errHistory) {
			return err // any other failure: the list itself will show it
		}
	}
	begun := *l.due
	begun.Kind, begun.RV = ListBegun, l.at.resume
	l.relay.begun = false
	rv, err := l.list(ctx, begun)
	if err == nil {
		l.at, l.due, l.trouble = cursor{resume: rv, last: rv}, nil, time.Time{}
		l.listed, l.listedAt = rv, time.Now()
		return nil
	}
	if l.relay.begun {
		if l.due.NewEpoch { // it has begun: the position was of the old one
			l.at = cursor{}
		}
		l.needList(event.ReasonInterrupted, "a list did not come to its end: "+plainCause(err).Error())
	}
	return err
}

// follow opens a watch and follows it to its end. It returns nil when another one,
// or a list, may follow at once.
func (l *loop) follow(ctx context.Context) error {
	var doubt error
	if !l.trouble.IsZero() {
		if err := l.sameCluster(ctx, l.trouble); err != nil {
			return err
		}
		if _, doubt = l.probe(ctx, l.highest(l.at.last), l.trouble); errors.Is(doubt, errHistory) {
			return doubt
		}
	}
	before, began := l.at.resume, time.Now()
	frames, err := l.watch(ctx, doubt)
	lasted := time.Since(began)
	if l.at.resume != before || lasted > soundWatch {
		l.retry.reset()
	}
	if frames > 0 || lasted > emptyCloseQuick {
		l.empty = 0
	}
	if err == nil && frames == 0 {
		err = l.endedEmpty(began)
	}
	if doubt == nil {
		l.trouble = time.Time{}
	}
	switch {
	case err == nil:
		l.throwAway, l.elsewhere, l.tried = false, nil, 0
		if frames > 0 && l.at.resume == before && lasted < emptyCloseQuick {
			err := noHeadway(frames, before)
			return l.wait(ctx, l.retry.after(err), err)
		}
		return nil
	case errors.Is(err, errDead):
		l.throwAway, l.elsewhere = true, nil
		return nil
	case errors.Is(err, ErrExpired):
		return l.expired(ctx, err)
	}
	l.throwAway, l.elsewhere, l.trouble = false, nil, time.Now()
	return err
}

// noHeadway says why the next watch has to wait: it would receive the same frames at
// once, again and again.
func noHeadway(frames int, rv string) error {
	return fmt.Errorf("a watch from resourceVersion %s ended at once, after %d frames that lead no further", rv, frames)
}

// endedEmpty counts the watches that end at once and say nothing.
func (l *loop) endedEmpty(began time.Time) error {
	if l.empty == 0 {
		l.emptySince = began
	}
	if l.empty++; l.empty < emptyCloses && !l.throwAway && l.elsewhere == nil {
		return nil
	}
	quick := time.Since(l.emptySince) < emptyCloseQuick
	n := l.empty
	l.empty = 0
	if !quick {
		return nil
	}
	return fmt.Errorf("resourceVersion %s is %w: %d watches from it ended at once", l.at.resume, ErrExpired, n)
}

// expired tries other servers, and makes a list due when they cannot help either.
func (l *loop) expired(ctx context.Context, err error) error {
	if l.triedFor != l.at.resume {
		l.triedFor, l.tried = l.at.resume, 0
	}
	l.throwAway = false
	if l.elsewhere != nil {
		l.client.transport.other.leave(l.elsewhere.used)
	}
	if l.tried < otherServers {
		l.tried, l.elsewhere = l.tried+1, new(other)
		return l.wait(ctx, rand.N(otherPause), err)
	}
	l.tried, l.elsewhere = 0, nil
	l.needList(event.ReasonExpired, err.Error())
	if l.at.resume == l.listed { // lists would follow each other at once
		if d := l.retry.after(err) - time.Since(l.listedAt); d > 0 {
			return l.wait(ctx, d, err)
		}
	}
	return nil
}

// prove looks for a proof of absence where err says that the collection cannot be
// read, passes it on, and returns ErrGone. nil means to try again.
func (l *loop) prove(ctx context.Context, err error) error {
	if code := statusCode(err); code != http.StatusForbidden && code != http.StatusNotFound && !errors.Is(err, discovery.ErrNoResource) {
		return nil
	}
	found := l.absent(ctx)
	if found.proof == "" {
		return nil
	}
	switch err := l.client.SameCluster(ctx, time.Now()); {
	case errors.Is(err, ErrOtherCluster):
		return err
	case err != nil:
		return nil // no proof while it is not known whose word this is
	}
	if err := l.relay.gone(ctx, l.at.resume, found.proof); err != nil {
		return err
	}
	if !found.again {
		l.state(State{Phase: Gone, Err: errors.New(found.proof)})
		return ErrGone
	}
	l.at = cursor{}
	l.needList(event.ReasonExpired, found.proof)
	return nil
}
