package encode

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape/manager"
	"github.com/kubebridge/kubebridge/pkg/shape/patch"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// envelopeBytes is the usual maximum size of a value without its bodies.
const envelopeBytes = 1024

var errNotConfigured = errors.New("the collection is not configured, so it is not known what to redact")

// Encoder is the loop's encoder for one sink. One goroutine uses it, except for Compile, Use and
// Remove, which any goroutine may call.
type Encoder struct {
	Options

	mu         sync.Mutex
	configured map[string]*rules
	removed    map[string]struct{} // of configured, until they are closed
	unkept     map[string]struct{} // of configured: they keep no bodies, and the store may have some
	changes    atomic.Uint64       // of configured

	// Only the goroutine that uses the encoder uses the fields below.
	collections map[string]*collection
	recent      struct { // the last result of collection; valid while configured does not change
		*collection
		at uint64
	}
	prepare *preparer
	keeper  *keeper
	differ  differ
	memory
}

// memory is reused from one event to the next, or from one batch to the next.
type memory struct {
	open, inFlight, recycled *arena // inFlight and recycled are nil unless Sealed is called
	text                     event.Text
}

// differ computes differences between bodies.
type differ struct {
	maker    patch.Maker
	managers manager.Finder
	whole    []byte // the redacted object with its managedFields
}

// collection is the encoder's state of a collection.
type collection struct {
	*rules
	id       string
	routes   map[string]*route      // by their text
	failures map[string]bool        // errors of the filter that were logged
	bodies   map[string]uncommitted // by inventory key
	bodiless bool                   // the collection keeps no bodies, and the store has none
	rejected map[string][]decision  // by uid
	limit    limit
	listing  bool // a gap was encoded, and its synced event is not committed

	last struct { // the last written run and its text
		run  uint64
		text string
	}
}

// New returns an encoder without collections.
func New(o Options) *Encoder {
	e := &Encoder{Options: o, configured: map[string]*rules{}, removed: map[string]struct{}{}, unkept: map[string]struct{}{}, collections: map[string]*collection{}}
	e.objects = newObjectLog(o.Log)
	e.open = newArena(true)
	e.keeper = &keeper{Options: &e.Options}
	e.prepare = &preparer{Options: &e.Options, keeper: e.keeper}
	return e
}

// Compiled are the checked settings of a collection: see [Encoder.Compile] and [Encoder.Use].
type Compiled struct{ rules *rules }

// Properties returns the properties that follow from the settings. The caller sets Selection and Storage, and the selectors of Contents if Selection
// has other ones than the collection that was compiled.
func (c Compiled) Properties() reconcile.Properties { return c.rules.properties }

// Hides reports whether values of the collection's objects are hidden on the bus.
func (c Compiled) Hides() bool { return c.rules.redact != nil }

// Compile checks the settings of a collection. The error joins all errors in the settings.
func (e *Encoder) Compile(c event.Collection, s Settings) (Compiled, error) {
	r, err := e.compile(c, s)
	return Compiled{r}, err
}

// Use sets the settings of a collection, from its next event on.
func (e *Encoder) Use(c Compiled) {
	e.mu.Lock()
	defer e.mu.Unlock()
	id := c.rules.eventCollection.ID()
	e.configured[id] = c.rules
	e.changes.Add(1)
	delete(e.removed, id)
	if delete(e.unkept, id); !c.rules.keeps() {
		e.unkept[id] = struct{}{}
	}
}

// Remove records that a collection is no longer wanted. Its settings are dropped once it is closed.
func (e *Encoder) Remove(collection string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.removed[collection] = struct{}{}
}

// closed drops the state of a collection.
func (e *Encoder) closed(collection string) {
	delete(e.collections, collection)
	e.recent.collection = nil
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, removed := e.removed[collection]; removed {
		delete(e.configured, collection)
		delete(e.unkept, collection)
		delete(e.removed, collection)
	}
}

// collection returns the state of a collection, with its present settings.
func (e *Encoder) collection(id string) *collection {
	at := e.changes.Load()
	if c := e.recent.collection; c != nil && c.id == id && e.recent.at == at {
		return c
	}
	e.mu.Lock()
	r := e.configured[id]
	e.mu.Unlock()
	c := e.collections[id]
	if c == nil {
		c = &collection{id: id, bodies: map[string]uncommitted{}, rejected: map[string][]decision{}}
		e.collections[id] = c
	}
	if r == nil && c.rules == nil {
		r = e.rulesOf(event.ParseCollection(id))
	}
	if r != nil && r != c.rules {
		c.rules, c.routes, c.failures, c.bodiless = r, map[string]*route{}, map[string]bool{}, false
	}
	e.recent.collection, e.recent.at = c, at
	return c
}

// Sealed implements the loop's encoder. After [Encoder.Committed], the memory of the batch's records is used
// again. If Sealed is never called, the garbage collector frees the memory of records.
func (e *Encoder) Sealed() []event.KV {
	e.inFlight, e.open, e.recycled = e.open, e.recycled, nil
	if e.open == nil {
		e.open = newArena(false)
	}
	return e.unneeded()
}

// Committed implements the loop's encoder.
func (e *Encoder) Committed(items []reconcile.Item) {
	for n := range items {
		i := &items[n]
		c := e.collections[i.Collection]
		switch {
		case c == nil:
		case i.Object != nil:
			if len(c.bodies) == 0 && len(c.rejected) == 0 && e.Witness == nil {
				continue
			}
			p := publicationOf(i)
			if e.Witness != nil {
				e.Witness.Published(p.in(c))
			}
			if u, ok := c.bodies[i.Object.Key]; ok && u.publication == p {
				delete(c.bodies, i.Object.Key)
			}
			c.decided(p)
		case i.Attribution != nil:
		case i.Event.Type == event.Synced && i.Event.Reason != event.ReasonPeriodic:
			c.listing, c.limit.until = false, time.Time{}
		case i.Event.Type == event.Closed:
			e.closed(i.Collection)
		}
	}
	if e.inFlight != nil {
		e.inFlight.reset()
		e.recycled, e.inFlight = e.inFlight, nil
	}
}

// Dropped implements the loop's encoder. Decisions about rejected events stay.
func (e *Encoder) Dropped(collection string) {
	if c := e.collections[collection]; c != nil {
		clear(c.bodies)
	}
}

// Key implements the loop's encoder.
func (e *Encoder) Key(key []byte) { e.prepare.digests = newDigests(key, e.Secrets.Key) }

// Prepare implements the loop's encoder. The items that follow from a sighting are encoded before
// the next one is prepared.
func (e *Encoder) Prepare(collection string, s *reconcile.Sighting, known *reconcile.Object, inDoubt bool) {
	e.prepare.prepare(e.collection(collection), s, known, inDoubt)
}

// Reject implements the loop's encoder. An event about a collection cannot be made to fit. One that says who made a change has less each time,
// and in the end it is lost.
func (e *Encoder) Reject(i *reconcile.Item, r *sink.RecordError) error {
	if i.Attribution != nil {
		if object, final := e.Chronicle.Reject(i.Attribution.ID); final {
			e.objects.write(zap.WarnLevel, "event lost: the bus does not take who made a change, or that a request was refused", e.collection(i.Collection), object,
				zap.Int("bytes", r.Size), zap.Int("limit", r.Limit), zap.NamedError("reason", r.Err))
		}
		return nil
	}
	if i.Object == nil {
		return fmt.Errorf("%s of %s is rejected: %w", i.Event.Type, i.Collection, r)
	}
	return e.reject(e.collection(i.Collection), i, r)
}

// Encode implements the loop's encoder.
func (e *Encoder) Encode(i *reconcile.Item, detail string, at time.Time) (event.Record, []event.KV) {
	c := e.collection(i.Collection)
	ev := e.open.events.New(event.Event{
		Origin: originOfItem(i), Time: at, Collection: &c.eventCollection, Epoch: i.Epoch, Run: c.run(i.Run), Incarnation: i.Incarnation,
	})
	switch {
	case i.Event != nil:
		e.report(c, i, ev, detail)
		return e.record(c, i, ev, nil), nil
	case i.Attribution != nil:
		return e.chronicled(c, i, ev)
	}
	o := c.object(i, ev)
	if i.Object.Null {
		r := event.Record{Event: ev, Format: e.Encoder.Format}
		e.address(c, i, ev, &r)
		return r, nil
	}
	if o == nil && ev.Type == event.Deleted {
		ev.Object = e.keeper.lastPublished(c, i.Object.Key, &i.Object.Object)
	}
	if o != nil && (c.redact != nil || !c.configured || c.keeps()) {
		body, err := e.prepare.bodyOf(c, o)
		switch {
		case err != nil:
			e.withhold(c, i, ev, err)
			o = nil
		case c.redact != nil && e.prepare.redactedAny(body, o):
			e.count(c, Redacted, ev.Type)
		}
		ev.Object = body
	}
	if o != nil && o.CutFrom > 0 {
		e.deep(c, ev, o)
	}
	d := e.decisionOf(c, i, ev, o)
	if o != nil && ev.DeadLetter == nil && ev.Truncated == nil && (d == nil || d.level == whole) {
		e.compare(c, i, ev, o)
	}
	if d != nil {
		e.fit(c, ev, o, d)
		o = nil
	}
	if ev.Object != nil { // this body is published instead of the body of o
		o = nil
	}
	witnessed := e.ask(c, i, ev, d == nil)
	r := e.record(c, i, ev, o)
	changes := e.open.changes.Room(2)[:0]
	if change, changed := e.keeper.keep(c, i, ev); changed {
		changes = append(changes, change)
	}
	if witnessed.Key != nil {
		changes = append(changes, witnessed)
	}
	e.open.changes.Keep(len(changes))
	return r, changes
}

// decisionOf returns how an event is reduced because the bus rejected it, or is known to reject events
// of its size; nil: the event is published unchanged.
func (e *Encoder) decisionOf(c *collection, i *reconcile.Item, ev *event.Event, o *source.Object) *decision {
	if len(c.rejected) == 0 && c.limit.bytes == 0 { // no record was rejected
		return nil
	}
	p := publicationOf(i)
	d := c.decision(p)
	if d != nil || ev.DeadLetter != nil || e.Oversize == ToDeadLetters && !p.deleted {
		return d
	}
	body := ev.Object
	if body == nil && o != nil && c.limit.exceeded(len(o.Raw)) {
		body, _ = e.prepare.bodyOf(c, o) // without redaction this cannot fail
	}
	return e.foresee(c, i.Object.Key, p, len(body))
}

// run returns a run in decimal.
func (c *collection) run(n uint64) string {
	if c.last.run != n {
		c.last.run, c.last.text = n, strconv.FormatUint(n, 10)
	}
	return c.last.text
}

// originOfItem returns the origin of an item's event:
//
//	event                                         origin
//	closed                                        reconcile
//	gap and synced of a resync                    resync
//	periodic synced                               watch
//	gap and synced of an incarnation's first run  snapshot
//	other gap, other synced                       reconcile
//	of an object                                  origin of its sighting
//	present in a resync                           resync
//	end of an object whose name another one has   reconcile, if it is not that of a list
func originOfItem(i *reconcile.Item) event.Origin {
	first := i.Run == i.Incarnation
	if i.Attribution != nil {
		return event.Audit
	}
	if x := i.Event; x != nil {
		switch {
		case x.Type == event.Closed:
			return event.Reconcile
		case event.GapCause(x.Reason).Resync:
			return event.Resync
		case x.Reason == event.ReasonPeriodic:
			return event.Watch
		}
		return originOf(reconcile.List, first)
	}
	from := reconcile.List
	switch f := factsOf(i); {
	case f != nil:
		from = f.origin
	case i.Object.Body != nil: // the loop did not call Prepare: the deletion was seen
		from = reconcile.Watch
	}
	o, _ := i.Object.Body.(*source.Object)
	switch {
	case from != reconcile.Watch:
	case i.Object.Type == event.Present: // before the first synced event, only a list finds objects
		from = reconcile.Resync
	case i.Object.Type == event.Deleted && o != nil && o.UID != i.Object.Object.UID:
		return event.Reconcile
	}
	return originOf(from, first)
}

// object completes the event of an object, and returns the object if its body is known.
func (c *collection) object(i *reconcile.Item, ev *event.Event) *source.Object {
	x := i.Object
	ev.Type, ev.UID, ev.ResourceVersion = x.Type, x.Object.UID, x.Version
	ev.APIVersion, ev.Kind = x.Object.APIVersion, x.Object.Kind
	ev.Namespace, ev.Name, _ = strings.Cut(x.Key, "/")
	o, _ := x.Body.(*source.Object)
	if o != nil && o.UID != ev.UID { // the sighting is of a later object of this name
		o = nil
	}
	if o != nil {
		ev.APIVersion, ev.Kind = o.APIVersion, o.Kind
	}
	if ev.Type == event.Deleted {
		ev.Run, ev.ResourceVersion, ev.DeletionVersion = c.run(x.Object.Run), x.Object.At, x.Version
		ev.Reason = [...]string{reconcile.Gone: "", reconcile.Left: "left", reconcile.Unknown: "unknown"}[x.Fate]
	}
	if x.DeadLetter {
		ev.DeadLetter = &event.DeadLetter{Reason: event.Unredacted}
		if d := c.decision(publicationOf(i)); d != nil && d.dead != nil {
			*ev.DeadLetter = *d.dead
		}
	}
	return o
}

// withhold logs that an event has no body.
func (e *Encoder) withhold(c *collection, i *reconcile.Item, ev *event.Event, why error) {
	level, message := zap.ErrorLevel, "body withheld: it could not be redacted"
	if i.Object.DeadLetter {
		level, message = zap.WarnLevel, "event goes to the dead letters without its body: it could not be redacted"
	}
	e.objects.write(level, message, c, objectName(ev.Namespace, ev.Name), zap.String("id", ev.ID()), zap.Error(why))
	if !i.Object.DeadLetter {
		e.count(c, Withheld, ev.Type)
	}
}

// deep marks the body of an event as truncated because the object is nested too deeply.
func (e *Encoder) deep(c *collection, ev *event.Event, o *source.Object) {
	ev.Truncated = &event.Truncation{Size: o.CutFrom, Levels: event.MaxLevels}
	e.count(c, Truncated, ev.Type)
	e.objects.write(zap.WarnLevel, "event truncated: the object is nested too deeply", c, objectName(ev.Namespace, ev.Name),
		zap.String("id", ev.ID()), zap.Int("bytes", o.CutFrom), zap.Int("levels", event.MaxLevels))
}

// report completes an event about a collection.
func (e *Encoder) report(c *collection, i *reconcile.Item, ev *event.Event, detail string) {
	x := i.Event
	ev.Type, ev.Nth = x.Type, x.Nth
	ev.Report = &event.Report{Reason: x.Reason, Detail: detail, Reset: x.Reset, From: x.From, Selection: x.Selection}
	switch x.Type {
	case event.Gap:
		c.listing = true
		if ev.ResourceVersion = x.From; event.GapCause(x.Reason).NewEpoch {
			ev.ResourceVersion = "" // the version belongs to the previous history
		}
	case event.Synced:
		ev.ResourceVersion, ev.Report.To = x.Version, x.Version
		if x.Reason != event.ReasonPeriodic {
			since := time.UnixMilli(int64(i.Run)) // runs are numbered by the time of their gap
			ev.Report.Since = &since
			if e.Reports.Counts != nil {
				ev.Report.Counts = e.Reports.Counts(i)
			}
		}
	}
	if e.Reports.Plan != nil {
		ev.Plan = e.Reports.Plan(c.id)
	}
}

// record encodes an event, with the body of o if that is not nil.
func (e *Encoder) record(c *collection, i *reconcile.Item, ev *event.Event, o *source.Object) event.Record {
	a, format := e.open, e.Encoder.Format
	r := event.Record{Event: ev, Format: format, Broadcast: ev.Type.IsBroadcast()}
	if format == event.Structured { // attributes are part of the value
		e.address(c, i, ev, &r)
	}
	size := envelopeBytes + len(ev.Object) + len(ev.Before) + len(ev.Patch) + len(ev.ChangedBy)
	if o != nil {
		size += len(o.Raw)
	}
	room := a.room(size)
	value := format.AppendWithBody(room, r.Attributes, ev, func(to []byte) []byte {
		switch {
		case o == nil:
			return append(to, ev.Object...)
		case e.KeepManagedFields:
			return append(to, o.Raw...)
		}
		return o.AppendWithoutManagedFields(to)
	})
	if format != event.Structured { // attributes may depend on the body
		e.address(c, i, ev, &r)
	}
	r.Value = a.keep(room, value)
	if n := c.route.Headers.Len(); n > 0 {
		r.Headers = c.headers(a.attributes.Room(n)[:0], ev, &e.text)
		a.attributes.Keep(len(r.Headers))
	}
	return r
}

// address sets the attributes, the destination and the key of a record.
func (e *Encoder) address(c *collection, i *reconcile.Item, ev *event.Event, r *event.Record) {
	to := c.routes[i.Route]
	if to == nil {
		to = parseRoute(cmp.Or(i.Route, c.properties.Route), c.values)
		c.routes[i.Route] = to
	}
	v := valuesOf(to.values, ev)
	r.Route = to.destination(ev, v, &e.text)
	if d := ev.DeadLetter; d != nil && e.DeadLetters != nil {
		if d.Route = r.Route; to.subject != nil {
			r.Route = e.DeadLetters.Subject(v)
		} else {
			r.Route = e.DeadLetters.Topic(v)
		}
	}
	r.Attributes = c.encoder.AppendAttributes(e.open.attributes.Room(event.MaxAttributes), ev, &e.text)
	e.open.attributes.Keep(len(r.Attributes))
	r.Attributes = slices.Clip(r.Attributes)
	r.ID = r.Attributes[1].Value
	if !r.Broadcast {
		r.Key = to.keyOf(v, &e.text)
	}
}

func objectName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}
