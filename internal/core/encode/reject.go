package encode

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/base/scan"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/internal/core/selectable"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// level says how much of an event is left out, so that the bus accepts it.
type level uint8

const (
	whole        level = iota
	withoutDiff        // neither the previous body, nor a patch, nor who made the change
	truncated          // the body has apiVersion, kind, and metadata without annotations
	identityOnly       // no body
	lost               // the event is not published
)

// decision is how the event of a rejected record is made, until it is committed.
type decision struct {
	publication
	level level
	limit int // of the bus, in bytes; 0: the size is not the reason
	dead  *event.DeadLetter
}

// decision returns the decision about an event, nil for none. A decision holds in every run, because the object
// is the same.
func (c *collection) decision(p publication) *decision {
	list := c.rejected[p.uid]
	for i := range list {
		if d := &list[i]; d.version == p.version && d.deleted == p.deleted {
			return d
		}
	}
	return nil
}

// decided drops the decisions about an event that is committed, and about earlier events.
func (c *collection) decided(p publication) {
	list, ok := c.rejected[p.uid]
	if !ok {
		return
	}
	list = slices.DeleteFunc(list, func(d decision) bool { return p.deleted || d.version == p.version || event.Older(d.version, p.version) })
	if c.rejected[p.uid] = list; len(list) == 0 {
		delete(c.rejected, p.uid)
	}
}

// A limit of the bus is remembered for limitKept while a list goes on: otherwise the list would begin again for each object. The watch goes on at
// once after a rejection, so the next event whose body exceeds the limit shows whether it was raised. Only if rejections follow
// each other, it is remembered for firstLimitPause, then twice as long, up to lastLimitPause.
const (
	limitKept                       = time.Minute
	firstLimitPause, lastLimitPause = time.Second, 10 * time.Second
)

// limit is the last known size limit of the bus for a record.
type limit struct {
	bytes    int
	until    time.Time
	rejected time.Time     // the last rejection
	pause    time.Duration // from then until until, if no list went on
}

// next returns the limit after another rejection.
func (l limit) next(bytes int, listed bool) limit {
	now := time.Now()
	switch {
	case listed:
		l.until = now.Add(limitKept)
	case now.Sub(l.rejected) > limitKept:
		l.until, l.pause = now, 0
	default:
		l.pause = min(max(firstLimitPause, 2*l.pause), lastLimitPause)
		l.until = now.Add(l.pause)
	}
	l.bytes, l.rejected = bytes, now
	return l
}

func (l limit) exceeded(bytes int) bool {
	return l.bytes > 0 && bytes > l.bytes && time.Now().Before(l.until)
}

// leastBytes is the size up to which a record without a body says more about the limit than about its object: the bus would take no event.
const leastBytes = 2048

// reject decides how to encode the event of a rejected record when it is emitted
// again. A deletion that would be a dead letter is truncated:
//
//	rejected was                       fail     truncate       dead-letter
//	with before, patch or actor,       without  without        without
//	too large
//	with its body                      error    truncated      dead letter
//	dead letter                        –        –              dead letter, truncated
//	truncated                          –        identity only  identity only
//	identity only, up to leastBytes    –        error          error
//	identity only                      –        lost           lost
//	of a collection; a null value      error    error          error
//
// While the limit is remembered, events of the collection whose body alone exceeds it are encoded like this at once.
func (o *Options) reject(c *collection, i *reconcile.Item, r *sink.RecordError) error {
	p := publicationOf(i)
	if r.Limit > 0 && !i.Object.DeadLetter { // dead letters have a limit of their own
		c.limit = c.limit.next(r.Limit, c.listing)
	}
	d := decision{publication: p, limit: r.Limit}
	was := c.decision(p)
	if was != nil {
		d.level, d.dead = was.level, was.dead
	}
	switch {
	case r.Limit > 0 && d.level == whole && d.dead == nil && (c.hasDiff(i, p) || o.Witness != nil && o.Witness.Carries(p.in(c))):
		d.level = withoutDiff
	case o.Oversize == Fail, i.Object.Null:
		return rejected(i, r, "raise the limit on the bus, or restart with another `oversize` (truncate, dead-letter)")
	case (i.Object.DeadLetter && d.dead == nil || d.level == identityOnly) && r.Limit > 0 && r.Size <= leastBytes:
		c.decided(p) // the next attempt is with the body
		c.limit = limit{}
		return rejected(i, r, "raise the limit on the bus: no event of the collection fits, not even without its object")
	case i.Object.DeadLetter && d.dead == nil, d.level == identityOnly:
		d.level = lost
		o.logDecision(c, i.Object.Key, &d, r)
	case d.dead == nil && o.Oversize == ToDeadLetters && !p.deleted:
		d.level, d.dead = whole, &event.DeadLetter{Reason: event.Rejected}
		if r.Limit > 0 {
			d.dead = &event.DeadLetter{Reason: event.Oversize, Size: r.Size, Limit: r.Limit}
		}
		o.logDecision(c, i.Object.Key, &d, r)
	case d.level == truncated:
		d.level = identityOnly
	default:
		if d.level = truncated; d.dead == nil {
			o.logDecision(c, i.Object.Key, &d, r)
		}
	}
	if was != nil {
		*was = d
		return nil
	}
	passed := func(d decision) bool { return d.level == lost && event.Older(d.version, p.version) } // no event of this version is committed
	c.rejected[p.uid] = append(slices.DeleteFunc(c.rejected[p.uid], passed), d)
	return nil
}

// foresee decides about an event whose body alone is larger than the known limit of the bus. It returns nil for a
// smaller body. If the event becomes a dead letter, the caller must decide that in Prepare.
func (o *Options) foresee(c *collection, key string, p publication, bytes int) *decision {
	if !c.limit.exceeded(bytes) || o.Oversize == Fail {
		return nil
	}
	d := decision{publication: p, level: truncated, limit: c.limit.bytes}
	if o.Oversize == ToDeadLetters && !p.deleted {
		d.level, d.dead = whole, &event.DeadLetter{Reason: event.Oversize, Size: bytes, Limit: d.limit}
	}
	o.logDecision(c, key, &d, &sink.RecordError{Size: bytes, Limit: d.limit, Err: errLikely})
	c.rejected[p.uid] = append(c.rejected[p.uid], d)
	return &c.rejected[p.uid][len(c.rejected[p.uid])-1]
}

var errLikely = errors.New("its body alone has more bytes than the bus took of a record before")

// hasDiff reports whether an event has the previous body or a patch, as far as that is known.
func (c *collection) hasDiff(i *reconcile.Item, p publication) bool {
	if u, ok := c.bodies[i.Object.Key]; ok && u.publication == p {
		return u.diff
	}
	return (c.before || c.patch) && i.Object.Type == event.Modified
}

// fit applies a decision to an event.
func (e *Encoder) fit(c *collection, ev *event.Event, o *source.Object, d *decision) {
	if ev.Object == nil && o != nil {
		ev.Object, _ = e.prepare.bodyOf(c, o) // nothing is redacted: cannot fail
	}
	if d.level < truncated || ev.Object == nil {
		return
	}
	if ev.Truncated == nil {
		sum := sha256.Sum256(ev.Object)
		ev.Truncated = &event.Truncation{
			Size: len(ev.Object), SHA256: hex.EncodeToString(sum[:]), Fields: selectable.Values(c.eventCollection.ResourceID(), ev.Object),
		}
	}
	ev.Truncated.Limit = d.limit
	head, err := scan.AppendHead(nil, ev.Object, event.MaxLevels)
	if err != nil || d.level == identityOnly {
		head = nil
	}
	ev.Object = head
}

// rejected returns the error of a collection that waits until the bus accepts an event.
func rejected(i *reconcile.Item, r *sink.RecordError, remedy string) error {
	size := ""
	if r.Limit > 0 {
		size = fmt.Sprintf(" (%d bytes, the bus takes %d)", r.Size, r.Limit)
	}
	return &rejection{r, fmt.Sprintf("%s of %s %s at resourceVersion %s is rejected%s: %v: %s",
		i.Object.Type, i.Collection, i.Object.Key, i.Object.Version, size, r.Err, remedy)}
}

// rejection is a [sink.RecordError] with a text that names the object instead of the record's index.
type rejection struct {
	cause *sink.RecordError
	text  string
}

func (e *rejection) Error() string { return e.text }
func (e *rejection) Unwrap() error { return e.cause }

// logDecision logs that an event is truncated, goes to the dead letters or is lost, and why.
func (o *Options) logDecision(c *collection, key string, d *decision, r *sink.RecordError) {
	message := "event goes to the dead letters"
	switch {
	case d.level == lost:
		message = "event lost: the bus does not take it in any form"
		o.count(c, Lost, 0)
	case d.dead == nil:
		message = "event truncated: the bus does not take its body"
		o.count(c, Truncated, 0)
	}
	fields := []zap.Field{
		zap.String("resourceVersion", d.version), zap.Bool("deleted", d.deleted), zap.Int("bytes", r.Size), zap.Int("limit", r.Limit), zap.NamedError("reason", r.Err),
	}
	if r.Limit > 0 {
		fields = append(fields, zap.String("advice", "raise the limit on the bus; then publish all objects again with `bridge resync "+c.eventCollection.ResourceID()+"`"))
	}
	o.objects.write(zap.WarnLevel, message, c, key, fields...)
}
