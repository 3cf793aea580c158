package encode

import (
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape/filter"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// maxFilterErrors bounds how many different errors of one filter are logged.
const maxFilterErrors = 10

// preparer prepares sightings of objects.
type preparer struct {
	*Options
	keeper  *keeper
	digests digests

	// made is the last body that was made. It is in stripped or redacted, or is the object's own.
	made struct {
		of   *source.Object
		body []byte
		err  error
	}
	stripped, redacted []byte // the object without managedFields, and then redacted
	memory             facts  // of the last sighting
}

// facts are what is known of a sighting. They are valid until the next call of Prepare, as the object is.
type facts struct {
	*preparer
	*collection
	key         string
	origin      reconcile.Origin
	object      *source.Object // nil: the object was not seen
	significant reconcile.Digest

	knownUID, knownVersion string // of the inventory entry of the key; "": there is none
	inDoubt                bool   // an event of the key is

	// certain says that consumers have the object in the state of known.
	certain bool
	known   reconcile.Object
	before  []byte // the body that consumers have, nil if it is not known; set on first use
	asked   bool
}

// factsOf returns the facts of the sighting that an item follows from; nil: it follows from none.
func factsOf(i *reconcile.Item) *facts {
	f, _ := i.Object.Prepared.(*facts)
	return f
}

// prepare completes a sighting.
func (p *preparer) prepare(c *collection, s *reconcile.Sighting, known *reconcile.Object, inDoubt bool) {
	p.made.of = nil
	f := &p.memory
	*f = facts{preparer: p, collection: c, key: s.Key, origin: s.Origin, inDoubt: inDoubt}
	s.Prepared = f
	if known != nil {
		f.knownUID, f.knownVersion = known.UID, known.Version
	}
	o, _ := s.Body.(*source.Object)
	if s.Form != reconcile.Seen || o == nil {
		return
	}
	f.object = o
	if known != nil && known.UID == s.UID && (known.Status == reconcile.Published || known.Status == reconcile.Outdated) {
		f.certain, f.known = !inDoubt, *known
	}
	s.APIVersion, s.Kind = o.APIVersion, o.Kind
	visible, by := p.digested(c, o)
	s.Digest = by.digest(visible)
	if f.ignore != nil && o.CutFrom == 0 { // otherwise a field that was cut off may have changed
		f.significant = by.significant(visible, f.rules)
		s.Significant = f.significant
	}
	s.DeadLetter = f.isDeadLetter(s)
}

// bodyOf returns the published body of an object. It is valid until the call for another object.
func (p *preparer) bodyOf(c *collection, o *source.Object) ([]byte, error) {
	if m := &p.made; m.of != o {
		m.of = o
		m.body, m.err = p.makeBody(c, o)
	}
	return p.made.body, p.made.err
}

func (p *preparer) makeBody(c *collection, o *source.Object) ([]byte, error) {
	if !c.configured {
		return nil, errNotConfigured
	}
	raw := o.Raw
	if !p.KeepManagedFields {
		p.stripped = o.AppendWithoutManagedFields(p.stripped[:0])
		raw = p.stripped
	}
	if c.redact == nil {
		return raw, nil
	}
	out, err := c.redact.Append(p.redacted[:0], raw, objectName(o.Namespace, o.Name))
	if err != nil {
		return nil, err
	}
	p.redacted = out
	return out, nil
}

// redactedAny reports whether values were redacted in the body of an object, which bodyOf has just returned.
func (p *preparer) redactedAny(body []byte, o *source.Object) bool {
	if p.KeepManagedFields {
		return string(body) != string(o.Raw)
	}
	return string(body) != string(p.stripped)
}

// digested returns the form of an object that is digested, and the digester; nil: there are no digests. If values are
// redacted and there is no hash key, that form is the published body, so a change of only redacted values is no change.
func (p *preparer) digested(c *collection, o *source.Object) (*source.Object, *digester) {
	switch {
	case !c.configured:
		return nil, nil
	case c.redact == nil:
		return o, p.digests.plain
	case p.digests.sealed != nil:
		return o, p.digests.sealed
	}
	body, err := p.bodyOf(c, o)
	if err != nil {
		return nil, nil
	}
	published, err := source.ParseObject(body)
	if err != nil {
		return nil, nil
	}
	return &published, p.digests.plain
}

// Minor implements [reconcile.Prepared].
func (f *facts) Minor(known *reconcile.Object) bool {
	minor := !f.significant.IsZero() && f.significant == known.Significant
	if minor && known.Version != f.object.ResourceVersion {
		f.count(f.collection, Ignored, event.Modified)
	}
	return minor
}

// Lost implements [reconcile.Prepared]: the bus has refused the event in every form.
func (f *facts) Lost(e *reconcile.ObjectEvent) bool {
	if len(f.rejected) == 0 {
		return false
	}
	d := f.decision(publicationIn(0, e)) // the decision holds in every run
	return d != nil && d.level == lost
}

// Passes implements [reconcile.Prepared]. An event passes if the filter cannot be evaluated.
func (f *facts) Passes(t event.Type) bool {
	if f.filter == nil || f.object == nil {
		return true
	}
	in := filter.Input{
		Object: f.object.Raw, Type: t.String(), Resource: f.eventCollection.Resource, Group: f.eventCollection.Group,
		Namespace: f.object.Namespace, Name: f.object.Name,
	}
	if f.filter.Uses("before") {
		in.Before = f.consumersHave()
	}
	if f.filter.Uses("origin") {
		first := false
		if f.Run != nil {
			run, incarnation := f.Run(f.id)
			first = run == incarnation
		}
		in.Origin = string(originOf(f.origin, first))
	}
	pass, err := f.filter.Match(&in)
	if err != nil {
		f.count(f.collection, FilterErrors, t)
		f.filterFailed(f.collection, err)
	}
	if !pass {
		f.count(f.collection, Filtered, t)
	}
	return pass
}

// filterFailed logs each error of a filter once. An error may quote values that are redacted.
func (p *preparer) filterFailed(c *collection, err error) {
	text := err.Error()
	if c.redact != nil {
		text = "not shown, since values of these objects are redacted"
	}
	if len(c.failures) >= maxFilterErrors || c.failures[text] {
		return
	}
	c.failures[text] = true
	p.Log.Warn("filter failed, the event passes; each error is logged once", zap.String("collection", c.id), zap.String("error", text))
}

// consumersHave returns the body of the object that consumers have, or nil if it is not known for
// certain.
func (f *facts) consumersHave() []byte {
	if !f.asked && f.certain {
		f.before = f.keeper.lastPublished(f.collection, f.key, &f.known)
	}
	f.asked = true
	return f.before
}

// isDeadLetter reports whether the event of a seen object goes to the dead letters.
func (f *facts) isDeadLetter(s *reconcile.Sighting) bool {
	if f.Oversize != ToDeadLetters {
		return false
	}
	x := publication{uid: s.UID, version: s.Version}
	if d := f.decision(x); d != nil {
		return d.dead != nil
	}
	unchanged := f.certain && f.known.Status == reconcile.Published && f.known.Version == s.Version && f.known.Digest == s.Digest
	if unchanged && s.Origin == reconcile.List { // it has no event, so no dead letter
		return false
	}
	large := f.limit.exceeded(len(f.object.Raw))
	if f.redact == nil && !large {
		return false
	}
	body, err := f.bodyOf(f.collection, f.object)
	return err != nil || large && f.foresee(f.collection, f.key, x, len(body)) != nil
}

// originOf returns the origin of an event. first says that the run is the first of its incarnation.
func originOf(o reconcile.Origin, first bool) event.Origin {
	switch {
	case o == reconcile.Watch:
		return event.Watch
	case o == reconcile.Resync:
		return event.Resync
	case first:
		return event.Snapshot
	}
	return event.Reconcile
}
