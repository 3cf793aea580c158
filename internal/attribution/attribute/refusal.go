package attribute

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// refusalPrefix begins the keys of refusals: refusalPrefix and the ID of the request.
const refusalPrefix = "r/"

// maxRefusals and maxRefusalBytes bound the refusals of a collection that wait, for example because the bus refuses its route. Later ones are
// lost.
const maxRefusals, maxRefusalBytes = 10_000, 16 << 20

const (
	// maxDeniedPerMinute is how many requests of a user for a collection that were refused in the same minute have events of their own. The next one's
	// event counts the rest: clients without credentials can send any number.
	maxDeniedPerMinute = 60
	// maxDeniedText and maxDeniedURI bound the texts of a refused request that its client chooses, in bytes.
	maxDeniedText, maxDeniedURI = 256, 2 << 10
	// maxSenders bounds the users and collections whose requests are counted. If there are more, the counts begin again.
	maxSenders = 10_000
)

// sender is a user whose requests for a collection are refused.
type sender struct{ user, impersonated, collection string }

func senderOf(r *Refusal) sender {
	s := sender{user: r.Record.Actor.User.Name, collection: r.Collection}
	if r.Record.Actor.Impersonated != nil {
		s.impersonated = r.Record.Actor.Impersonated.Name
	}
	return s
}

// minute has what a sender was refused in a minute.
type minute struct {
	at     time.Time // by the clock of the API server
	events int
	rest   *Refusal // counts the requests beyond maxDeniedPerMinute; nil: there are none
}

// Refusal is a request that was refused, or a loss of records (see [audit.Record.Lost]), whose event is not published and committed yet.
//
// It is in the checkpoint from the commit of the position behind its record on, until the commit of its event. So where a sink is exactly
// once, the event of a record is published once.
type Refusal struct {
	ID         uint64       `json:"-"` // for [reconcile.Attribution]; no change has the same one
	Request    string       `json:"-"` // identifies the request
	Collection string       `json:"c"`
	Number     uint64       `json:"n"` // of the record
	Record     audit.Record `json:"r"`
	// More is how many more requests of the user for the collection the event counts, and Until is up to when they are counted: the event is not
	// published before. Zero: it counts none.
	More  uint64    `json:"m,omitzero"`
	Until time.Time `json:"u,omitzero"`

	counted bool // More has changed since it was noted for the store
	passed  bool // its event is in a batch
	durable bool // the store has it, or had it
	final   bool // the bus does not take its event
}

// refusals has the refusals of an Attribution.
type refusals struct {
	byID      map[uint64]*Refusal
	byRequest map[string]*Refusal
	waiting   map[string]int // by collection
	bytes     map[string]int // of records, by collection
	senders   map[sender]*minute
	counted   []*Refusal // since CountRefusals
	filling   []*Refusal // noted in the batch that fills
	flying    []*Refusal // noted in the batch on its way
}

func newRefusals() refusals {
	return refusals{byID: map[uint64]*Refusal{}, byRequest: map[string]*Refusal{}, waiting: map[string]int{}, bytes: map[string]int{}, senders: map[sender]*minute{}}
}

func (s *refusals) add(r *Refusal) {
	s.byID[r.ID], s.byRequest[r.Request] = r, r
	s.waiting[r.Collection]++
	s.bytes[r.Collection] += r.Record.Size()
}

func (s *refusals) remove(r *Refusal) {
	delete(s.byID, r.ID)
	delete(s.byRequest, r.Request)
	s.bytes[r.Collection] -= r.Record.Size()
	if s.waiting[r.Collection]--; s.waiting[r.Collection] == 0 {
		delete(s.waiting, r.Collection)
		delete(s.bytes, r.Collection)
	}
}

func (s *refusals) load(store checkpoint.Store, nextID func() uint64) error {
	*s = newRefusals()
	var found []*Refusal
	err := store.Scan([]byte(refusalPrefix), func(key, value []byte) error {
		r := &Refusal{Request: strings.TrimPrefix(string(key), refusalPrefix), durable: true}
		if err := json.Unmarshal(value, r); err != nil {
			return fmt.Errorf("%w: refused request %q: %w", checkpoint.ErrCorrupt, key, err)
		}
		found = append(found, r)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the checkpoint: %w", err)
	}
	slices.SortFunc(found, byNumber)
	for _, r := range found {
		r.ID = nextID()
		s.add(r)
	}
	return nil
}

func byNumber(x, y *Refusal) int { return int(int64(x.Number - y.Number)) }

// requestID identifies a request. The audit ID is not enough: clients can choose it.
func requestID(r *audit.Record) string {
	sum := sha256.New()
	for _, text := range []string{r.ID, r.URI, r.Verb, r.Actor.User.Name, strconv.FormatInt(r.Received.UnixMicro(), 10)} {
		fmt.Fprintf(sum, "%d:%s", len(text), text)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// Refuse adds a request that was refused, or a loss, with the number of its record and the collection whose events its own is among. It returns the
// changes of the checkpoint that become durable before its event, with the position of the reader: none if the request is known, or if too
// many wait.
func (a *Attribution) Refuse(number uint64, record *audit.Record, collection string) []event.KV {
	r := &Refusal{Request: requestID(record), Collection: collection, Number: number, Record: short(*record)}
	if record.Lost != nil { // it concerns several collections
		r.Request += "/" + collection
	}
	switch {
	case a.refusals.byRequest[r.Request] != nil: // its sender has repeated it
		return nil
	case record.Lost == nil && a.refusals.count(r, a.now):
		return nil
	case a.refusals.waiting[collection] >= maxRefusals, record.Lost == nil && a.refusals.bytes[collection]+record.Size() > maxRefusalBytes:
		a.counts.Refusals.Lost++
		return nil
	}
	r.ID = a.nextID()
	a.refusals.add(r)
	a.refusals.filling = append(a.refusals.filling, r)
	return []event.KV{r.kv()}
}

// count reports whether a refusal has no event of its own, because that of an earlier one counts it. It can make the refusal one that counts others.
func (s *refusals) count(r *Refusal, now time.Time) bool {
	of, at := senderOf(r), r.Record.Received.Truncate(time.Minute)
	m := s.senders[of]
	if m == nil || m.at.Before(at) {
		if len(s.senders) >= maxSenders {
			clear(s.senders)
		}
		m = &minute{at: at}
		s.senders[of] = m
	}
	if m.rest != nil && now.Before(m.rest.Until) {
		if m.rest.More++; !m.rest.counted {
			m.rest.counted, s.counted = true, append(s.counted, m.rest)
		}
		return true
	}
	if m.events++; m.events > maxDeniedPerMinute {
		m.rest, r.Until = r, now.Add(time.Minute).UTC()
	}
	return false
}

// CountRefusals returns the changes of the checkpoint that follow from counting refusals: one for each event that counts. It is called after Refuse, before
// the position of the reader is stored.
func (a *Attribution) CountRefusals() (changes []event.KV) {
	for _, r := range a.refusals.counted {
		r.counted = false
		changes = append(changes, r.kv())
	}
	a.refusals.counted = nil
	return changes
}

// short returns a record of which the texts that its client chooses are short.
func short(r audit.Record) audit.Record {
	for _, text := range []*string{&r.ID, &r.Namespace, &r.Name, &r.Subresource, &r.Actor.UserAgent} {
		r.Cut = r.Cut || len(*text) > maxDeniedText
		*text = audit.ShortenedTo(*text, maxDeniedText)
	}
	r.Cut = r.Cut || len(r.URI) > maxDeniedURI
	r.URI = strings.ToValidUTF8(r.URI[:min(len(r.URI), maxDeniedURI)], "")
	return r
}

// requestID returns the ID of the request, or of the loss.
func (r *Refusal) requestID() string {
	id, _, _ := strings.Cut(r.Request, "/")
	return id
}

// kv returns the change of the checkpoint that stores a refusal.
func (r *Refusal) kv() event.KV {
	value, _ := json.Marshal(r) // strings, numbers and times always encode
	return event.KV{Key: r.key(), Value: value}
}

func (r *Refusal) key() []byte { return []byte(refusalPrefix + r.Request) }

// Refusals returns the refusals whose events are in no batch, and that count no more requests, in the order of their records. The caller calls
// Pass or Drop for each, or leaves it for a later call.
func (a *Attribution) Refusals() (list []*Refusal) {
	for _, r := range a.refusals.byID {
		if !r.passed && !a.now.Before(r.Until) {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, byNumber)
	return list
}

// Final reports whether the bus does not take the event of a refusal.
func (r *Refusal) Final() bool { return r.final }

// Pass says that the event of a refusal is in the batch that fills.
func (a *Attribution) Pass(r *Refusal) { r.passed = true }

// DropRefusal gives up a refusal, and returns the change of the checkpoint that follows.
func (a *Attribution) DropRefusal(r *Refusal) event.KV {
	switch {
	case r.Record.Lost != nil: // it is no request
	case r.final:
		a.counts.Refusals.Rejected++
	default:
		a.counts.Refusals.Dropped++
	}
	a.refusals.remove(r)
	delete(a.rejected, r.ID)
	return event.KV{Key: r.key()}
}

// completeRefusal completes the event of a refusal: see [encode.Chronicle].
func (a *Attribution) completeRefusal(r *Refusal, e *event.Event) (done event.KV) {
	e.RequestID = r.requestID()
	if l := r.Record.Lost; l != nil {
		e.Type, e.Namespace = event.Lost, event.ParseCollection(r.Collection).Namespace
		e.Loss = &event.Loss{Since: event.FormatTime(l.Since), Until: event.FormatTime(l.Until), Detail: l.Detail}
		return event.KV{Key: r.key()}
	}
	version := r.Record.Version
	if group := event.ParseCollection(r.Collection).Group; group != "" && version != "" {
		version = group + "/" + version
	}
	e.Type, e.APIVersion, e.Namespace, e.Name = event.Denied, version, r.Record.Namespace, r.Record.Name
	e.Denial = &event.Denial{Request: request(&r.Record), Message: r.Record.Message, More: r.More}
	boundDenial(e.Denial, maxBytes>>(2*a.rejected[r.ID]))
	return event.KV{Key: r.key()}
}

// boundDenial is bound for a refused request. The message is left out last.
func boundDenial(d *event.Denial, limit int) {
	text, _ := json.Marshal(d.Message) // a string always encodes
	b := event.Attribution{Request: &d.Request}
	bound(&b, limit-len(text))
	if d.LeftOut = b.LeftOut; d.Message != "" && sizeOf(&d.Request)+len(text) > limit {
		d.Message, d.LeftOut = "", append(d.LeftOut, "message")
	}
}

// restore continues the refusals of a collection: batches do not have their events any more. One that was durable and is not in the store was
// published.
func (s *refusals) restore(store checkpoint.Store, collection string, counts *RefusalCounts) error {
	for _, r := range s.byID {
		if r.Collection != collection || !r.passed {
			continue
		}
		value, err := store.Get(r.key())
		switch {
		case err != nil:
			return fmt.Errorf("read the checkpoint: %w", err)
		case value == nil && r.durable:
			s.remove(r)
			counts.published(r)
		default:
			r.passed = false
		}
	}
	return nil
}

// published counts a refusal whose event is published. Losses are not counted: they are no requests.
func (c *RefusalCounts) published(r *Refusal) {
	if r.Record.Lost == nil {
		c.Published += 1 + r.More
	}
}

// RefusalCounts are numbers of refused requests since the start, except Waiting.
type RefusalCounts struct {
	Waiting   int // for their publication
	Published uint64
	Dropped   uint64 // the sink does not publish the resource any more
	Rejected  uint64 // the bus has not taken the event
	Lost      uint64 // too many were waiting
}
