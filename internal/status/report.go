package status

import (
	"cmp"
	"slices"
	"time"
)

// Report is what a bridge shows of itself: the body of /api/status. Field names
// and meanings stay; fields may be added. What is not known is left out, never 0.
// It holds no bodies, no names of objects and no secrets.
type Report struct {
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
	ConfigDigest string  `json:"configDigest,omitzero"`
	Leader       *Leader `json:"leader,omitzero"` // nil: nobody is elected
	Sinks        []Sink  `json:"sinks"`
}

// Leader is who of several replicas delivers.
type Leader struct {
	Holder  string `json:"holder,omitzero"`  // its identity, as last seen; empty: nobody is known to
	Self    bool   `json:"self"`             // it is this process; otherwise that is a standby
	Lease   string `json:"lease,omitzero"`   // namespace/name
	Problem string `json:"problem,omitzero"` // why the Lease could not be read or written at the last attempt
}

// Trouble is an error that heals, or healed, by itself or by what a person does.
type Trouble struct {
	Error  string    `json:"error"`
	Advice string    `json:"advice"` // what to do
	At     time.Time `json:"at"`     // when it was met last
}

// Sink is one lane.
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
	LastEvent *time.Time `json:"lastEvent,omitzero"`
	// LastCommit is when the checkpoint last moved.
	LastCommit  *time.Time   `json:"lastCommit,omitzero"`
	Rate        *float64     `json:"rate,omitzero"` // events a second, over the last minute
	Lag         *float64     `json:"lag,omitzero"`  // seconds, see [Sink.lag]
	Queue       Queue        `json:"queue"`
	Collections []Collection `json:"collections"`
}

// Queue is what was read and is not yet delivered.
type Queue struct {
	Events        int64      `json:"events"`
	EventCapacity int64      `json:"eventCapacity"`
	Bytes         int64      `json:"bytes"`
	ByteCapacity  int64      `json:"byteCapacity"`
	Oldest        *time.Time `json:"oldest,omitzero"` // when the first of the events was read
}

// Collection is one watched set of objects of a sink.
type Collection struct {
	ID         string     `json:"id"`
	Route      string     `json:"route,omitzero"` // its own topic, or the template of its subjects; empty: the sink's
	APIVersion string     `json:"apiVersion,omitzero"`
	Kind       string     `json:"kind,omitzero"`
	State      string     `json:"state"` // discovering, reconciling, watching, waiting, stalled or gone
	Since      time.Time  `json:"since"` // of the state
	RetryAt    *time.Time `json:"retryAt,omitzero"`
	Error      string     `json:"error,omitzero"`     // of now
	LastError  *Trouble   `json:"lastError,omitzero"` // since the start
	Position   string     `json:"position,omitzero"`  // resourceVersion of the last delivered event, or of the checkpoint at the start
	Synced     *time.Time `json:"synced,omitzero"`    // when the bus was last told that it is complete
	Delivered  uint64     `json:"delivered"`          // events since the start
	LastEvent  *time.Time `json:"lastEvent,omitzero"` // when it was delivered
	Rate       *float64   `json:"rate,omitzero"`      // events a second, over the last minute
	// Lag is how long the last delivered watch event was in the bridge, in seconds,
	// from when it was read: Kubernetes does not say when a change happened.
	Lag     *float64 `json:"lag,omitzero"`
	Objects *int64   `json:"objects,omitzero"` // in the inventory
	List    *List    `json:"list,omitzero"`    // under way
	Gap     *Gap     `json:"gap,omitzero"`     // the last one since the start
}

// List is a list under way.
type List struct {
	Read      int64  `json:"read"`               // objects
	Remaining *int64 `json:"remaining,omitzero"` // objects on pages to come, if the server says so
}

// Gap is a gap that the bus was told of.
type Gap struct {
	Reason string     `json:"reason"` // see docs/events.md
	Detail string     `json:"detail,omitzero"`
	Opened time.Time  `json:"opened"`
	Closed *time.Time `json:"closed,omitzero"`
}

// Troubled reports whether a person may have to look after the collection.
func (c *Collection) Troubled() bool {
	return c.Error != "" || c.State == "waiting" || c.State == "stalled"
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
	case c.State == "watching":
		return 3
	case c.State == "gone":
		return 2
	default:
		return 1
	}
}
