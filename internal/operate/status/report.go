package status

import (
	"cmp"
	"slices"
	"time"
)

// Report is the state of a bridge. It is the only source of readiness, troubles, gaps and lags: the status page, /api/status,
// /readyz, `bridge status` and the metrics read it.
//
// It is the body of /api/status and /readyz: field names and meanings do not change; fields may be added. Values that are not known are left out,
// never 0. It contains no bodies, no names of objects and no secrets.
type Report struct {
	// Ready is true if the cluster is known and all sinks accept events. Collections in trouble do not affect it. A
	// standby is ready if it could take over.
	Ready      bool      `json:"ready"`
	Waiting    string    `json:"waiting,omitzero"` // why the cluster is not known yet
	Name       string    `json:"name"`             // the bridge's name
	Version    string    `json:"version"`
	Cluster    string    `json:"cluster"`
	ClusterUID string    `json:"clusterUID,omitzero"`
	Started    time.Time `json:"started"`
	At         time.Time `json:"at"` // the time of the report
	// ConfigDigest is a SHA-256 of the settings in effect, in hex, without passwords, tokens and URLs: replicas with equal settings have equal
	// digests. Empty: it is not known.
	ConfigDigest string    `json:"configDigest,omitzero"`
	Election     *Election `json:"election,omitzero"` // nil: there is no leader election
	// LeaderStatus is how to reach the status of the leader, for people. Empty: this replica leads, or it is not known who does.
	LeaderStatus string  `json:"leaderStatus,omitzero"`
	Watches      int     `json:"watches"`         // open at the API server: sinks that read the same objects share one
	Buffer       *Buffer `json:"buffer,omitzero"` // nil: nothing is buffered on disk
	Audit        *Audit  `json:"audit,omitzero"`  // nil: the audit log is not read, as on a standby
	Sinks        []Sink  `json:"sinks"`           // empty for a standby
}

// Word returns the state of the bridge in one or two words.
func (r *Report) Word() string {
	switch {
	case !r.Ready:
		return "not ready"
	case r.Election != nil && r.Election.Role == Standby:
		return "standby"
	}
	return "ready"
}

// Elsewhere says on a standby, which has no sinks, where their status is; "" on other replicas.
func (r *Report) Elsewhere() string {
	switch {
	case r.Election == nil || r.Election.Role != Standby:
		return ""
	case r.Election.Holder == "":
		return "This replica is a standby, and no replica leads at the moment."
	}
	text := "This replica is a standby and delivers nothing. The leader, " + r.Election.Holder + ", has the status of sinks and collections"
	if r.LeaderStatus != "" {
		text += ": " + r.LeaderStatus
	}
	return text
}

// Standby is the role of a replica that does not deliver.
const Standby = "standby"

// Election says which of several replicas delivers.
type Election struct {
	Role     string `json:"role"`             // leader or standby
	Lease    string `json:"lease,omitzero"`   // namespace/name
	Identity string `json:"identity"`         // the identity of this process
	Holder   string `json:"holder,omitzero"`  // the identity of the leader, as last seen; empty: it is not known
	Problem  string `json:"problem,omitzero"` // why the Lease could not be read or written at the last attempt
}

// Buffer is the state of the disk buffer. It is empty while every sink is in step. A standby has one if it buffers what the leader buffers.
type Buffer struct {
	Bytes    int64  `json:"bytes"`          // on disk
	MaxBytes int64  `json:"maxBytes"`       // from which on nothing more is buffered
	Targets  int    `json:"targets"`        // resources or namespaces of resources that are being buffered
	Ended    int    `json:"ended"`          // of which nothing more is buffered, because the buffer was full, a write failed, or the resource is gone
	Aged     int    `json:"aged"`           // of which something was deleted that is not published, because it was older than maxAge
	Failed   uint64 `json:"failed"`         // recordings that could not begin since the start, because the disk is full or fails
	Frames   uint64 `json:"frames"`         // changes, list items and bookmarks that were buffered since the start
	Error    string `json:"error,omitzero"` // why it is not used until the next start; empty: it is used
	// Unlisted is how many recordings of the leader standbys do not learn of, because the ConfigMap for them is full or
	// cannot be written.
	Unlisted int    `json:"unlisted,omitzero"`
	Problem  string `json:"problem,omitzero"` // why that ConfigMap was not read or written at the last attempt
}

// Words describes the buffer for people.
func (b *Buffer) Words() string {
	if b.Error != "" {
		return "not used: " + b.Error
	}
	words := size(b.Bytes) + " of " + size(b.MaxBytes)
	if b.Targets > 0 {
		words += ", " + comma(int64(b.Targets)) + " watches recorded"
	}
	if b.Ended > 0 {
		words += ", " + comma(int64(b.Ended)) + " of them ended"
	}
	if b.Aged > 0 {
		words += ", " + comma(int64(b.Aged)) + " of them have lost what was older than maxAge"
	}
	if b.Failed > 0 {
		words += ", " + comma(int64(b.Failed)) + " could not begin since the start"
	}
	if b.Unlisted > 0 {
		words += ", " + comma(int64(b.Unlisted)) + " of them not listed for standbys"
	}
	return words
}

// Trouble is an error with the remedy. The operation is retried.
type Trouble struct {
	Error  string    `json:"error"`
	Advice string    `json:"advice"` // what to do
	At     time.Time `json:"at"`     // when it occurred last
}

// Sink is the state of a sink with its pipeline.
type Sink struct {
	Name      string     `json:"name"`
	Bus       string     `json:"bus,omitzero"`     // kafka, nats, file or stdout
	Address   string     `json:"address,omitzero"` // the address of the bus, without credentials
	Delivery  string     `json:"delivery,omitzero"`
	Ready     bool       `json:"ready"`            // the bus and the checkpoint store accept writes
	Failing   string     `json:"failing,omitzero"` // the operation that is retried, and why
	Since     *time.Time `json:"failingSince,omitzero"`
	LastError *Trouble   `json:"lastError,omitzero"` // since the start
	Delivered uint64     `json:"delivered"`          // events since the start
	// Lost is the number of events that the bus accepted neither as events nor as dead letters, and of those counted in Delivered
	// that an at-most-once bus did not receive; nil: none.
	Lost      *uint64    `json:"lost,omitzero"`
	Foreign   *uint64    `json:"foreign,omitzero"` // messages on the bus that the bridge did not write, and ignores; nil: it does not look for them
	LastEvent *time.Time `json:"lastEvent,omitzero"`
	// LastCommit is the time of the last commit to the checkpoint.
	LastCommit  *time.Time   `json:"lastCommit,omitzero"`
	Rate        *float64     `json:"rate,omitzero"` // events a second, over the last minute
	Lag         *float64     `json:"lag,omitzero"`  // seconds, see [Sink.lag]
	Queue       Queue        `json:"queue"`
	Attribution *Attribution `json:"attribution,omitzero"` // nil: nobody asks who made changes, or the sink has no plan yet
	Collections []Collection `json:"collections"`
}

// Word returns the state of the sink in one word.
func (s *Sink) Word() string {
	if s.Ready {
		return "up"
	}
	return "failing"
}

// Queue describes the events that were read and are not yet delivered: those of the batch that is being written and of the one that fills.
type Queue struct {
	Events        int64      `json:"events"`
	EventCapacity int64      `json:"eventCapacity"`
	Bytes         int64      `json:"bytes"`           // bytes of encoded events
	ByteCapacity  int64      `json:"byteCapacity"`    // one event may exceed it
	Oldest        *time.Time `json:"oldest,omitzero"` // when the oldest of the events was read
}

// Collection is the state of one collection of a sink.
type Collection struct {
	ID         string     `json:"id"`                // the collection's ID, or the entry, pattern or API group of which nothing can be watched
	Resource   string     `json:"resource,omitzero"` // with its group, as kubectl accepts it; empty: nothing can be watched
	Route      string     `json:"route,omitzero"`    // its own topic, or the template of its subjects; empty: it uses the sink's
	APIVersion string     `json:"apiVersion,omitzero"`
	Kind       string     `json:"kind,omitzero"`
	State      State      `json:"state"`
	Since      time.Time  `json:"since"` // when the state began
	RetryAt    *time.Time `json:"retryAt,omitzero"`
	Error      string     `json:"error,omitzero"`     // the present error
	LastError  *Trouble   `json:"lastError,omitzero"` // since the start
	Position   string     `json:"position,omitzero"`  // resourceVersion up to which all changes are delivered; absent while a list is due or read
	Synced     *time.Time `json:"synced,omitzero"`    // when the last synced event was acknowledged; absent while a gap is open
	Delivered  uint64     `json:"delivered"`          // events since the start
	LastEvent  *time.Time `json:"lastEvent,omitzero"` // when the last event was delivered
	Rate       *float64   `json:"rate,omitzero"`      // events a second, over the last minute
	// Lag is how long the last delivered watch event was in the bridge, in seconds
	// from the time it was read, because Kubernetes does not say when a change happened.
	// The status leaves it out a minute after that event.
	Lag     *float64  `json:"lag,omitzero"`
	LagAt   time.Time `json:"-"`                // when Lag was measured
	Objects *int64    `json:"objects,omitzero"` // number of objects in the inventory
	List    *List     `json:"list,omitzero"`    // the list that is being read
	Gap     *Gap      `json:"gap,omitzero"`     // the last gap since the start
	// EditWaits is since when a changed configuration of the collection waits until what the disk buffer has is published; nil: none waits.
	EditWaits *time.Time `json:"editWaits,omitzero"`
	// Diffs is true if modified events are configured to show what changed.
	Diffs bool `json:"-"`
}

// State says what a collection is doing.
type State string

// The states. They are those of [source.Phase].
const (
	Discovering State = "discovering"
	Reconciling State = "reconciling"
	Watching    State = "watching"
	Waiting     State = "waiting"
	Stalled     State = "stalled"
	Gone        State = "gone"
	Buffered    State = "buffered" // it reads what was buffered on disk
)

// States returns all states.
func States() []State {
	return []State{Discovering, Reconciling, Watching, Waiting, Stalled, Gone, Buffered}
}

// List is a list that is being read.
type List struct {
	Read      int64  `json:"read"`               // objects that were read
	Remaining *int64 `json:"remaining,omitzero"` // objects on the remaining pages; nil: the server does not say
}

// Gap is a gap that was published.
type Gap struct {
	Reason string     `json:"reason"` // see docs/events.md
	Detail string     `json:"detail,omitzero"`
	Opened time.Time  `json:"opened"`
	Closed *time.Time `json:"closed,omitzero"`
}

// Words describes the state for people.
func (c *Collection) Words() string {
	if c.EditWaits != nil {
		return string(c.State) + ", changed configuration waits"
	}
	return string(c.State)
}

// Troubled reports whether the collection may need a person's attention.
func (c *Collection) Troubled() bool {
	return c.Error != "" || c.State == Waiting || c.State == Stalled
}

// Unwatched reports whether c stands for a configured entry, pattern or group of which nothing can be watched now.
func (c *Collection) Unwatched() bool { return c.Resource == "" }

// InGap reports whether a gap is open, so that changes may be missing.
func (c *Collection) InGap() bool { return c.Gap != nil && c.Gap.Closed == nil }

// Lists sums up the lists that are being read.
type Lists struct {
	Running, Read, Remaining int64
	Unknown                  bool // the server does not say how many objects remain of one of them
}

// Add adds a collection's list, if one is being read.
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

// Lists sums up all lists that are being read.
func (r *Report) Lists() (l Lists) {
	for i := range r.Sinks {
		for j := range r.Sinks[i].Collections {
			l.Add(&r.Sinks[i].Collections[j])
		}
	}
	return l
}

// lag returns how far the sink is behind the bridge's reads, in seconds: the age of the oldest event that waits or, if
// none waits, the greatest lag of the collections with events delivered after since. It returns nil if there are none.
func (s *Sink) lag(now, since time.Time) *float64 {
	if t := s.Queue.Oldest; t != nil {
		age := max(now.Sub(*t).Seconds(), 0)
		return &age
	}
	var most *float64
	for i := range s.Collections {
		c := &s.Collections[i]
		if c.Lag != nil && c.LagAt.After(since) && (most == nil || *c.Lag > *most) {
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

// Entries returns all collections, sorted by trouble, ID and sink.
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

// rank is lower for collections that need attention sooner.
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
