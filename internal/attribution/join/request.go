package join

import (
	"container/list"
	"net/http"
	"slices"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
)

// request is a request with what its records say.
//
//	state    records                                       next
//	open     stage Received; or the API server has not     over, with another record, or after Options.MaxOpen
//	         said how it ended (code 5xx, stage Panicked):
//	         it may still change something
//	over     stage Complete; or none came in time          -
type request struct {
	object     Object        // without a name if that is not known
	record     *audit.Record // the latest
	others     int           // how many more requests have its key and are open: a client can send such requests, and an API server can send a record twice
	begin, end place         // of its records. begin is zero if that record was not read, end if the request is open
	expired    time.Time     // when it was over, because it was open for too long; zero: it was not
	at         time.Time     // when its latest record was read
	made       int           // how many changes it has made
	returned   []state       // to which it has led: see [Join.Return]
	restored   bool          // it was removed, and is there again because of returned: it has made nothing else
	queued     *list.Element // in requests.queue; nil: it was removed
}

// reached reports whether a verdict that was returned says that the request has led to a state.
func (q *request) reached(s state) bool { return slices.Contains(q.returned, s) }

// has reports whether an object is another one, or one of those of a request without a name.
func (o Object) has(other Object) bool {
	all := o
	if all.Name == "" {
		all.Name = other.Name
		if all.Namespace == "" {
			all.Namespace = other.Namespace
		}
	}
	return all == other
}

// place is where a record was read. The zero value: it was not read.
type place struct {
	input  int
	number uint64
}

// before reports whether a place is known to come before another one.
func (p place) before(other place) bool {
	return p.number != 0 && other.number != 0 && p.input == other.input && p.number < other.number
}

func (q *request) over() bool { return q.end.number != 0 || !q.expired.IsZero() }

// overAt reports whether a request was over at a floor. f may be nil.
func (q *request) overAt(f *floor) bool {
	if f == nil {
		return false
	}
	return q.end.number != 0 && q.end.number <= f.marks.of(q.end.input) || !q.expired.IsZero() && !f.at.Before(q.expired)
}

// lasting reports whether a request that has an answer may still change something: the API server goes on with a request whose client has
// got code 504.
func (q *request) lasting() bool {
	code := q.record.Code
	return q.record.Stage != audit.Complete || code == 0 || code >= 500 || code == http.StatusRequestTimeout
}

// distance returns how far a time is from the time between the beginning of a request and its end.
func (q *request) distance(t time.Time) time.Duration {
	switch r := q.record; {
	case t.Before(r.Received):
		return r.Received.Sub(t)
	case r.Stage == audit.Complete && t.After(r.Reached):
		return t.Sub(r.Reached)
	}
	return 0
}

// pairKey finds the records of one request. The audit ID is not enough: clients can choose it.
type pairKey struct {
	id, uri, verb, user string
	received            int64
}

func keyOf(r *audit.Record) pairKey {
	return pairKey{r.ID, r.URI, r.Verb, r.Actor.User.Name, r.Received.UnixMicro()}
}

// requests has the requests of a join.
type requests struct {
	byKey map[pairKey]*request
	of    map[Object][]*request // by object
	queue *list.List            // in the order in which they were read
	bytes int                   // memory of their records
}

func newRequests() requests {
	return requests{byKey: map[pairKey]*request{}, of: map[Object][]*request{}, queue: list.New()}
}

func (s *requests) len() int { return s.queue.Len() }

// add adds a record to its request, which may be new. A record that was read before changes nothing.
func (s *requests) add(p place, r *audit.Record, now time.Time) *request {
	key := keyOf(r)
	q := s.byKey[key]
	switch {
	case q != nil && r.Stage == audit.Received && q.record.Stage == audit.Received && q.begin != p:
		q.others++
		return q
	case q != nil && q.others > 0 && (&request{record: r}).outcome() == refused: // it is not known which one
		q.others--
		return q
	case q != nil && (r.Stage == audit.Received || q.record.Stage == r.Stage && q.record.Reached.Equal(r.Reached)):
		return q
	case q != nil && q.record.Stage == audit.Received:
		s.leave(q.object, func(other *request) bool { return other == q })
	default:
		q = &request{}
		q.queued = s.queue.PushBack(q)
		s.byKey[key] = q
	}
	if q.record != nil {
		s.bytes -= q.record.Size()
	}
	s.bytes += r.Size()
	q.object, q.record, q.at = objectOf(r), r, now
	switch {
	case r.Stage == audit.Received:
		q.begin = p
	case q.lasting():
	default:
		q.end = p
	}
	s.of[q.object] = append(s.of[q.object], q)
	return q
}

// objectOf returns the object of a request, without a name if the record does not have it.
func objectOf(r *audit.Record) Object {
	o := Object{r.Group, r.Resource, r.Namespace, r.Name}
	if o.Name == "" && r.Verb != "deletecollection" && r.Answer != nil {
		o.Name = r.Answer.Name
	}
	return o
}

// leave removes requests from an object.
func (s *requests) leave(o Object, match func(*request) bool) {
	left := slices.DeleteFunc(s.of[o], match)
	if s.of[o] = left; len(left) == 0 {
		delete(s.of, o)
	}
}

func (s *requests) remove(q *request) {
	if q.queued != nil {
		s.removeQueued(q)
		s.leave(q.object, isRemoved)
	}
}

// removeIf removes the requests that match.
func (s *requests) removeIf(match func(*request) bool) {
	objects := map[Object]bool{}
	s.all(func(q *request) {
		if match(q) {
			s.removeQueued(q)
			objects[q.object] = true
		}
	})
	for o := range objects {
		s.leave(o, isRemoved)
	}
}

func isRemoved(q *request) bool { return q.queued == nil }

// removeQueued removes a request, except from its object.
func (s *requests) removeQueued(q *request) {
	s.queue.Remove(q.queued)
	s.bytes -= q.record.Size()
	q.queued = nil
	if key := keyOf(q.record); s.byKey[key] == q {
		delete(s.byKey, key)
	}
}

// restore adds a request that was removed.
func (s *requests) restore(q *request, now time.Time) {
	if q.at = now; q.queued != nil {
		return
	}
	q.queued, q.restored = s.queue.PushBack(q), true
	s.bytes += q.record.Size()
	s.of[q.object] = append(s.of[q.object], q)
	if key := keyOf(q.record); s.byKey[key] == nil { // else its records have been read again
		s.byKey[key] = q
	}
}

// about returns the requests that may be about an object: its own, and those without a name.
func (s *requests) about(o Object) (all []*request) {
	all = append(all, s.of[o]...)
	scope := Object{o.Group, o.Resource, o.Namespace, ""}
	all = append(all, s.of[scope]...)
	if o.Namespace != "" {
		scope.Namespace = ""
		all = append(all, s.of[scope]...)
	}
	return all
}

// oldest returns the request that was read first.
func (s *requests) oldest() *request { return s.queue.Front().Value.(*request) }

// all calls f for each request, which f may remove.
func (s *requests) all(f func(*request)) {
	for e := s.queue.Front(); e != nil; {
		q := e.Value.(*request)
		e = e.Next()
		f(q)
	}
}
