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
	now     sighting

	passes func(t event.Type) bool // filterPasses, isMinor and isLost, for the current sighting
	minor  func(known *reconcile.Object) bool
	lost   func(e *reconcile.ObjectEvent) bool

	stripped, redacted []byte // the current object, without managedFields and then redacted
}

func newPreparer(o *Options, k *keeper) *preparer {
	p := &preparer{Options: o, keeper: k}
	p.passes, p.minor, p.lost = p.filterPasses, p.isMinor, p.isLost
	return p
}

// sighting is the current sighting, from one call of Prepare until the next.
type sighting struct {
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

	// The published body, or why it cannot be published; set on first use.
	body []byte
	err  error
	made bool
}

// prepare completes a sighting.
func (p *preparer) prepare(c *collection, s *reconcile.Sighting, known *reconcile.Object, inDoubt bool) {
	p.now = sighting{collection: c, key: s.Key, origin: s.Origin, inDoubt: inDoubt}
	if known != nil {
		p.now.knownUID, p.now.knownVersion = known.UID, known.Version
	}
	if len(c.rejected) > 0 {
		s.Lost = p.lost
	}
	o, _ := s.Body.(*source.Object)
	if s.Form != reconcile.Seen || o == nil {
		return
	}
	n := &p.now
	n.object = o
	if known != nil && known.UID == s.UID && (known.Status == reconcile.Published || known.Status == reconcile.Outdated) {
		n.certain, n.known = !inDoubt, *known
	}
	s.APIVersion, s.Kind = o.APIVersion, o.Kind
	visible, by := p.digested()
	s.Digest = by.digest(visible)
	if n.filter != nil {
		s.Passes = p.passes
	}
	if n.ignore != nil && o.CutFrom == 0 { // otherwise a field that was cut off may have changed
		n.significant = by.significant(visible, n.rules)
		s.Significant, s.Minor = n.significant, p.minor
	}
	s.DeadLetter = p.isDeadLetter(s)
}

// bodyOf returns the published body of an object. It is valid until the call for another object.
func (p *preparer) bodyOf(c *collection, o *source.Object) ([]byte, error) {
	n := &p.now
	if n.collection != c || n.object != o { // the object of a deletion
		p.now = sighting{collection: c, origin: n.origin, key: n.key, inDoubt: n.inDoubt, object: o}
	}
	if !n.made {
		n.body, n.err = p.makeBody(c, o)
		n.made = true
	}
	return n.body, n.err
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

// digested returns the form of the current object that is digested, and the digester; nil: there are no digests. If values are
// redacted and there is no hash key, that form is the published body, so a change of only redacted values is no change.
func (p *preparer) digested() (*source.Object, *digester) {
	n := &p.now
	switch {
	case !n.configured:
		return nil, nil
	case n.redact == nil:
		return n.object, p.digests.plain
	case p.digests.sealed != nil:
		return n.object, p.digests.sealed
	}
	body, err := p.bodyOf(n.collection, n.object)
	if err != nil {
		return nil, nil
	}
	published, err := source.ParseObject(body)
	if err != nil {
		return nil, nil
	}
	return &published, p.digests.plain
}

// isMinor reports whether only ignored fields of the current object differ from the published state.
func (p *preparer) isMinor(known *reconcile.Object) bool {
	n := &p.now
	minor := !n.significant.IsZero() && n.significant == known.Significant
	if minor && known.Version != n.object.ResourceVersion {
		p.count(n.collection, Ignored, event.Modified)
	}
	return minor
}

// isLost reports whether the bus has refused an event in every form.
func (p *preparer) isLost(e *reconcile.ObjectEvent) bool {
	d := p.now.decision(publicationIn(0, e)) // the decision holds in every run
	return d != nil && d.level == lost
}

// filterPasses reports whether the filter lets an event of the current object through. An event passes if
// the filter cannot be evaluated.
func (p *preparer) filterPasses(t event.Type) bool {
	n := &p.now
	in := filter.Input{
		Object: n.object.Raw, Type: t.String(), Resource: n.eventCollection.Resource, Group: n.eventCollection.Group,
		Namespace: n.object.Namespace, Name: n.object.Name,
	}
	if n.filter.Uses("before") {
		in.Before = p.consumersHave()
	}
	if n.filter.Uses("origin") {
		first := false
		if p.Run != nil {
			run, incarnation := p.Run(n.id)
			first = run == incarnation
		}
		in.Origin = string(originOf(n.origin, first))
	}
	pass, err := n.filter.Match(&in)
	if err != nil {
		p.count(n.collection, FilterErrors, t)
		p.filterFailed(n.collection, err)
	}
	if !pass {
		p.count(n.collection, Filtered, t)
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

// consumersHave returns the body of the current object that consumers have, or nil if it is not known for
// certain.
func (p *preparer) consumersHave() []byte {
	n := &p.now
	if !n.asked && n.certain {
		n.before = p.keeper.lastPublished(n.collection, n.key, &n.known)
	}
	n.asked = true
	return n.before
}

// isDeadLetter reports whether the event of a seen object goes to the dead letters.
func (p *preparer) isDeadLetter(s *reconcile.Sighting) bool {
	n := &p.now
	if p.Oversize != ToDeadLetters {
		return false
	}
	x := publication{uid: s.UID, version: s.Version}
	if d := n.decision(x); d != nil {
		return d.dead != nil
	}
	unchanged := n.certain && n.known.Status == reconcile.Published && n.known.Version == s.Version && n.known.Digest == s.Digest
	if unchanged && s.Origin == reconcile.List { // it has no event, so no dead letter
		return false
	}
	large := n.limit.exceeded(len(n.object.Raw))
	if n.redact == nil && !large {
		return false
	}
	body, err := p.bodyOf(n.collection, n.object)
	return err != nil || large && p.foresee(n.collection, n.key, x, len(body)) != nil
}

// redactedAny reports whether values were redacted in the body of the current object.
func (p *preparer) redactedAny(body []byte) bool {
	if p.KeepManagedFields {
		return string(body) != string(p.now.object.Raw)
	}
	return string(body) != string(p.stripped)
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
