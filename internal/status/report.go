package status

import (
	"cmp"
	"slices"
	"time"
)

// Report is the state of a bridge. The status page, /api/status, /readyz, `bridge status` and the metrics read
// it, and nothing else says whether a bridge is ready, or a collection is in trouble, in a gap or behind.
//
// It is the body of /api/status and /readyz: field names and meanings stay; fields may be added. What is not known is left out,
// never 0. It holds no bodies, no names of objects and no secrets.
type Report struct {
	// Ready: the cluster is known and the sinks take what they are given; a collection in trouble does not count. A
	// standby is ready if it could take over.
	Ready      bool      `json:"ready"`
	Waiting    string    `json:"waiting,omitzero"` // why the cluster is not known yet
	Name       string    `json:"name"`             // the bridge's
	Version    string    `json:"version"`
	Cluster    string    `json:"cluster"`
	ClusterUID string    `json:"clusterUID,omitzero"`
	Started    time.Time `json:"started"`
	At         time.Time `json:"at"` // when this was true
	// ConfigDigest is the SHA-256 of the configuration file that was taken over
	// last, in hex; empty: it is not known.
	ConfigDigest string    `json:"configDigest,omitzero"`
	Election     *Election `json:"election,omitzero"` // nil: there is none
	Sinks        []Sink    `json:"sinks"`             // none of a standby
}

// Word is the state of the bridge in a word or two.
func (r *Report) Word() string {
	switch {
	case !r.Ready:
		return "not ready"
	case r.Election != nil && r.Election.Role == Standby:
		return "standby"
	}
	return "ready"
}

// Standby is the role of a replica that does not deliver.
const Standby = "standby"

// Election is which of several replicas delivers.
type Election struct {
	Role     string `json:"role"`             // leader or standby
	Lease    string `json:"lease,omitzero"`   // namespace/name
	Identity string `json:"identity"`         // of this process
	Holder   string `json:"holder,omitzero"`  // the identity of the leader, as last seen; empty: none is known
	Problem  string `json:"problem,omitzero"` // why the Lease could not be read or written at the last attempt
}

// Trouble is an error that heals, or healed, on its own or by what a person does.
type Trouble struct {
	Error  string    `json:"error"`
	Advice string    `json:"advice"` // what to do
	At     time.Time `json:"at"`     // when it was met last
}

// Sink is the state of a sink with its pipeline.
type Sink struct {
	Name      string     `json:"name"`
	Bus       string     `json:"bus,omitzero"`     // kafka, nats, file or stdout
	Address   string     `json:"address,omitzero"` // of the bus, without credentials
	Delivery  string     `json:"delivery,omitzero"`
	Ready     bool       `json:"ready"`            // the bus and the checkpoint take what they are given
	Failing   string     `json:"failing,omitzero"` // what is being tried again, and why
	Since     *time.Time `json:"failingSince,omitzero"`
	LastError *Trouble   `json:"lastError,omitzero"` // since the start
	Delivered uint64     `json:"delivered"`          // events since the start
	Lost      *uint64    `json:"lost,omitzero"`      // events that the bus took in no form, and those of Delivered that an at-most-once bus did not take; nil: none
	Foreign   *uint64    `json:"foreign,omitzero"`   // messages on the bus that the bridge did not write, and ignores; nil: it does not look for them
	LastEvent *time.Time `json:"lastEvent,omitzero"`
	// LastCommit is when the checkpoint last moved.
	LastCommit  *time.Time   `json:"lastCommit,omitzero"`
	Rate        *float64     `json:"rate,omitzero"` // events a second, over the last minute
	Lag         *float64     `json:"lag,omitzero"`  // seconds, see [Sink.lag]
	Queue       Queue        `json:"queue"`
	Collections []Collection `json:"collections"`
}

// Word is the state of the sink in a word.
func (s *Sink) Word() string {
	if s.Ready {
		return "up"
	}
	return "failing"
}

// Queue is what was read and is not yet delivered: the batch that is written and the one that fills.
type Queue struct {
	Events        int64      `json:"events"`
	EventCapacity int64      `json:"eventCapacity"`
	Bytes         int64      `json:"bytes"`           // of encoded events
	ByteCapacity  int64      `json:"byteCapacity"`    // one event may exceed it
	Oldest        *time.Time `json:"oldest,omitzero"` // when the first of the events was read
}

// Collection is the state of one collection of a sink.
type Collection struct {
	ID         string     `json:"id"`                // or the entry, pattern or API group of which nothing can be watched
	Resource   string     `json:"resource,omitzero"` // with its group, as kubectl takes it; empty: nothing can be watched
	Route      string     `json:"route,omitzero"`    // its own topic, or the template of its subjects; empty: the sink's
	APIVersion string     `json:"apiVersion,omitzero"`
	Kind       string     `json:"kind,omitzero"`
	State      State      `json:"state"`
	Since      time.Time  `json:"since"` // of the state
	RetryAt    *time.Time `json:"retryAt,omitzero"`
	Error      string     `json:"error,omitzero"`     // of now
	LastError  *Trouble   `json:"lastError,omitzero"` // since the start
	Position   string     `json:"position,omitzero"`  // resourceVersion of the last delivered event, or of the checkpoint at the start
	Synced     *time.Time `json:"synced,omitzero"`    // when the last synced event was acknowledged; absent while a gap is open
	Delivered  uint64     `json:"delivered"`          // events since the start
	LastEvent  *time.Time `json:"lastEvent,omitzero"` // when it was delivered
	Rate       *float64   `json:"rate,omitzero"`      // events a second, over the last minute
	// Lag is how long the last delivered watch event was in the bridge, in seconds,
	// from when it was read: Kubernetes does not say when a change happened.
	Lag     *float64 `json:"lag,omitzero"`
	Objects *int64   `json:"objects,omitzero"` // in the inventory
	List    *List    `json:"list,omitzero"`    // under way
	Gap     *Gap     `json:"gap,omitzero"`     // the last one since the start
	// Diffs: modified events are to show what changed.
	Diffs bool `json:"-"`
}

// State is what a collection is doing.
type State string

// The states, those of [source.Phase].
const (
	Discovering State = "discovering"
	Reconciling State = "reconciling"
	Watching    State = "watching"
	Waiting     State = "waiting"
	Stalled     State = "stalled"
	Gone        State = "gone"
)

// States are all states.
func States() []State { return []State{Discovering, Reconciling, Watching, Waiting, Stalled, Gone} }

// List is a list under way.
type List struct {
	Read      int64  `json:"read"`               // objects
	Remaining *int64 `json:"remaining,omitzero"` // objects on pages to come, if the server says so
}

// Gap is a gap that was published.
type Gap struct {
	Reason string     `json:"reason"` // see docs/events.md
	Detail string     `json:"detail,omitzero"`
	Opened time.Time  `json:"opened"`
	Closed *time.Time `json:"closed,omitzero"`
}

// Troubled reports whether a person may have to look after the collection.
func (c *Collection) Troubled() bool {
	return c.Error != "" || c.State == Waiting || c.State == Stalled
}

// Unwatched reports whether it stands for something that is configured and of which nothing can be watched now.
func (c *Collection) Unwatched() bool { return c.Resource == "" }

// InGap reports whether changes may be missing: a gap is open.
func (c *Collection) InGap() bool { return c.Gap != nil && c.Gap.Closed == nil }

// Lists are the lists under way of some collections.
type Lists struct {
	Running, Read, Remaining int64
	Unknown                  bool // the server does not say what remains of one of them
}

// Add adds a collection's list, if one is under way.
func (l *Lists) Add(c *Collection) {
	if c.State != Reconciling || c.List == nil {
		return
	}
	l.Running++
	l.Read += c.List.Read
	if c.List.Remaining == nil {
		l.Unknown = true
	} else {
		l.Remaining += *c.List.Remaining
	}
}

// Lists are all lists under way.
func (r *Report) Lists() (l Lists) {
	for i := range r.Sinks {
		for j := range r.Sinks[i].Collections {
			l.Add(&r.Sinks[i].Collections[j])
		}
	}
	return l
}

// lag is how far the sink is behind what the bridge has read, in seconds: the age
// of the oldest event that waits or, while none does, the lag of what was
// delivered since a time. nil: nothing was, so there is nothing to be behind with.
func (s *Sink) lag(now, since time.Time) *float64 {
	if t := s.Queue.Oldest; t != nil {
		age := max(now.Sub(*t).Seconds(), 0)
		return &age
	}
	var most *float64
	for i := range s.Collections {
		c := &s.Collections[i]
		if c.Lag != nil && c.LastEvent != nil && c.LastEvent.After(since) && (most == nil || *c.Lag > *most) {
			most = c.Lag
		}
	}
	return most
}

// Entry is a collection and its sink.
type Entry struct {
	Sink       *Sink
	Collection *Collection
}

// Entries are all collections, those in trouble first, then by ID and sink.
func (r *Report) Entries() []Entry {
	var out []Entry
	for i := range r.Sinks {
		for j := range r.Sinks[i].Collections {
			out = append(out, Entry{&r.Sinks[i], &r.Sinks[i].Collections[j]})
		}
	}
	slices.SortStableFunc(out, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(rank(a.Collection), rank(b.Collection)),
			cmp.Compare(a.Collection.ID, b.Collection.ID), cmp.Compare(a.Sink.Name, b.Sink.Name))
	})
	return out
}

// rank is lower for what needs a look sooner.
func rank(c *Collection) int {
	switch {
	case c.Troubled():
		return 0
	case c.State == Watching:
		return 3
	case c.State == Gone:
		return 2
	default:
		return 1
	}
}
