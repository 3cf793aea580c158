package encode

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape/filter"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// maxFilterErrors bounds how many different errors of one filter are logged.
const maxFilterErrors = 10

// look is the sighting at hand: from one call of Prepare until the next.
type look struct {
	*collection
	key         string
	origin      reconcile.Origin
	object      *source.Object // nil: it was not seen
	significant uint64

	// certain says that consumers have the object as known says.
	certain bool
	known   reconcile.Object
	before  []byte // the body that consumers have, nil if it is not known; once it was asked for
	asked   bool

	// The body as it is published, or why it cannot be; once it was made.
	body []byte
	err  error
	made bool
}

// Prepare implements the loop's encoder. For a sighting that is not of an object that was seen it
// only notes where the sighting comes from.
func (e *Encoder) Prepare(collection string, s *reconcile.Sighting, known *reconcile.Object, inDoubt bool) {
	e.now = look{collection: e.collection(collection), key: s.Key, origin: s.Origin}
	o, _ := s.Body.(*source.Object)
	if s.Form != reconcile.Seen || o == nil {
		return
	}
	n := &e.now
	n.object = o
	if known != nil && known.UID == s.UID && (known.Status == reconcile.Published || known.Status == reconcile.Outdated) {
		n.certain, n.known = !inDoubt, *known
	}
	s.APIVersion, s.Kind = o.APIVersion, o.Kind
	s.Digest = e.digest()
	if n.filter != nil {
		s.Passes = e.passes
	}
	if n.ignore != nil {
		n.significant = e.significant()
		s.Significant, s.Minor = n.significant, e.minor
	}
	s.DeadLetter = e.isDeadLetter(s)
}

// bodyOf returns an object as it is published, until it is called for another one.
func (e *Encoder) bodyOf(c *collection, o *source.Object) ([]byte, error) {
	n := &e.now
	if n.collection != c || n.object != o { // of a deletion
		e.now = look{collection: c, origin: n.origin, key: n.key, object: o}
	}
	if !n.made {
		n.body, n.err = e.makeBody(c, o)
		n.made = true
	}
	return n.body, n.err
}

func (e *Encoder) makeBody(c *collection, o *source.Object) ([]byte, error) {
	if !c.configured {
		return nil, errNotConfigured
	}
	raw := o.Raw
	if !e.KeepManagedFields {
		e.stripped = o.AppendWithoutManagedFields(e.stripped[:0])
		raw = e.stripped
	}
	if c.redact == nil {
		return raw, nil
	}
	out, err := c.redact.Append(e.redacted[:0], raw, objectName(o.Namespace, o.Name))
	if err != nil {
		return nil, err
	}
	e.redacted = out
	return out, nil
}

// digest is that of the object at hand, and says nothing of values that are redacted: whoever reads
// the checkpoint, which may be on a bus, could try values until one fits. With the key of the
// redacted values it is a keyed one. Without a key it is of the object as it is published, and a
// change of redacted values alone is no change.
func (e *Encoder) digest() uint64 {
	n := &e.now
	switch {
	case !n.configured:
		return 0
	case n.redact == nil:
		return n.object.Hash()
	case len(e.Secrets.Key) > 0:
		return e.seal.digest(e.Secrets.Key, n.object.Hash())
	}
	body, err := e.bodyOf(n.collection, n.object)
	if err != nil {
		return 0
	}
	published, err := source.ParseObject(body)
	if err != nil {
		return 0
	}
	return published.Hash()
}

// significant is a digest of what the ignore rules leave of the object at hand, with the identity
// of the rules. It says as little of redacted values as digest; 0 is like no other.
func (e *Encoder) significant() uint64 {
	n := &e.now
	if !n.configured {
		return 0
	}
	raw, keyed := n.object.Raw, n.redact != nil && len(e.Secrets.Key) > 0
	if n.redact != nil && !keyed {
		var err error
		if raw, err = e.bodyOf(n.collection, n.object); err != nil {
			return 0
		}
	}
	digest, err := n.ignore.Digest(raw)
	if err != nil {
		return 0
	}
	if keyed {
		digest = e.seal.digest(e.Secrets.Key, digest)
	}
	return n.ignoreID | max(digest>>16, 1)
}

// isMinor reports whether only ignored fields of the object at hand differ from what was published.
func (e *Encoder) isMinor(known *reconcile.Object) bool {
	n := &e.now
	minor := n.significant != 0 && n.significant == known.Significant
	if minor && known.Version != n.object.ResourceVersion {
		e.count(n.collection, Ignored, event.Modified)
	}
	return minor
}

// filterPasses reports whether the filter lets an event of the object at hand through. An event
// that it cannot judge passes.
func (e *Encoder) filterPasses(t event.Type) bool {
	n := &e.now
	in := filter.Input{
		Object: n.object.Raw, Type: t.String(), Resource: n.eventCollection.Resource, Group: n.eventCollection.Group,
		Namespace: n.object.Namespace, Name: n.object.Name,
	}
	if n.filter.Uses("before") {
		in.Before = e.consumersHave()
	}
	if n.filter.Uses("origin") {
		first := false
		if e.Run != nil {
			run, incarnation := e.Run(n.id)
			first = run == incarnation
		}
		in.Origin = string(originOf(n.origin, first))
	}
	pass, err := n.filter.Match(&in)
	if err != nil {
		e.count(n.collection, FilterErrors, t)
		e.filterFailed(n.collection, err)
	}
	if !pass {
		e.count(n.collection, Filtered, t)
	}
	return pass
}

// filterFailed logs each error of a filter once. An error may quote values that are redacted.
func (e *Encoder) filterFailed(c *collection, err error) {
	text := err.Error()
	if c.redact != nil {
		text = "not shown, since values of these objects are redacted"
	}
	if len(c.failures) >= maxFilterErrors || c.failures[text] {
		return
	}
	c.failures[text] = true
	e.Log.Warn("filter failed, the event passes; each error is logged once", zap.String("collection", c.id), zap.String("error", text))
}

// consumersHave is the body of the object at hand that consumers have, nil if it is not known for
// certain.
func (e *Encoder) consumersHave() []byte {
	n := &e.now
	if !n.asked && n.certain {
		n.before = e.lastPublished(n.collection, n.key, &n.known)
	}
	n.asked = true
	return n.before
}

// isDeadLetter reports whether the event of a seen object goes to the dead letters.
func (e *Encoder) isDeadLetter(s *reconcile.Sighting) bool {
	n := &e.now
	if e.Oversize != ToDeadLetters {
		return false
	}
	p := publication{uid: s.UID, version: s.Version}
	if d := n.decision(p); d != nil {
		return d.dead != nil
	}
	unchanged := n.certain && n.known.Status == reconcile.Published && n.known.Version == s.Version && n.known.Digest == s.Digest
	if unchanged && s.Origin == reconcile.List { // it has no event that could be a dead letter
		return false
	}
	large := n.limit.exceeded(len(n.object.Raw))
	if n.redact == nil && !large {
		return false
	}
	body, err := e.bodyOf(n.collection, n.object)
	return err != nil || large && e.foresee(n.collection, n.key, p, len(body)) != nil
}

// originOf is the origin of an event. first says that the run is the first of its incarnation.
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

// sealer makes digests that cannot be made without a key.
type sealer struct {
	mac    hash.Hash
	buffer []byte
}

func (s *sealer) digest(key []byte, digest uint64) uint64 {
	if s.mac == nil {
		s.mac = hmac.New(sha256.New, key)
	}
	s.mac.Reset()
	s.buffer = binary.LittleEndian.AppendUint64(append(s.buffer[:0], "checkpoint\x00"...), digest)
	s.mac.Write(s.buffer)
	s.buffer = s.mac.Sum(s.buffer[:0])
	return binary.LittleEndian.Uint64(s.buffer)
}
