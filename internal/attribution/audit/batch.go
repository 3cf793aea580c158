package audit

// Options of a [Parser]. The zero value keeps all requests that may have changed objects, with all that is known of the actor.
type Options struct {
	// Denied keeps requests for resources that were refused because the user may not do them, reads too: see [Record.Denied].
	Denied bool
	// Ends keeps the ends of requests that were refused before they changed an object, so that their beginnings have an end.
	Ends bool
	// OmitGroups, OmitSourceIPs and OmitExtra leave out parts of actors.
	OmitGroups, OmitSourceIPs, OmitExtra bool
	// AzureResourceID is the resource ID of the AKS cluster whose records in Azure's envelope are kept; upper and lower case are the same. "": none are,
	// because an event hub can have the records of other clusters, too: see [ErrNoCluster].
	AzureResourceID string
}

// Drop is why an audit event does not become a record.
type Drop uint8

// The reasons.
const (
	DropRead        Drop = iota // get, list, watch
	DropNonResource             // the URL is no resource
	DropStarted                 // stage ResponseStarted: another event follows
	DropRefused                 // the request was refused before it changed an object: see [Record.Refused]
	DropVirtual                 // the resource has no objects: a review, a token, a connection to a pod
	DropForeign                 // it is in an envelope of another log, or of another cluster
	dropReasons
)

// String returns the reason as it is used for metrics.
func (d Drop) String() string {
	return [...]string{"read", "non-resource", "response-started", "refused", "virtual", "foreign"}[d]
}

// Dropped are numbers of audit events by [Drop].
type Dropped [dropReasons]int

// Add adds the numbers of another one.
func (d *Dropped) Add(more *Dropped) {
	for reason, n := range more {
		d[reason] += n
	}
}

// ByName returns the numbers by [Drop.String].
func (d *Dropped) ByName() map[string]uint64 {
	out := map[string]uint64{}
	for reason, n := range d {
		out[Drop(reason).String()] = uint64(n)
	}
	return out
}

// Sum returns the number of all of them.
func (d *Dropped) Sum() (n int) {
	for _, one := range d {
		n += one
	}
	return n
}

// Batch is what a [Parser] has read. The zero value is empty. Each audit event is a record, dropped, or unparsable.
type Batch struct {
	Records    []Record
	Dropped    Dropped
	Unparsable int
	Err        error // why the first unparsable event does not parse; it has no values of the event, except its apiVersion
}

// Events returns the number of audit events.
func (b *Batch) Events() int { return len(b.Records) + b.Dropped.Sum() + b.Unparsable }

// Reset empties the batch, and keeps its memory.
func (b *Batch) Reset() {
	clear(b.Records)
	*b = Batch{Records: b.Records[:0]}
}

func (b *Batch) drop(d Drop) { b.Dropped[d]++ }

// Fail counts an event that does not parse.
func (b *Batch) Fail(err error) {
	if b.Unparsable++; b.Err == nil {
		b.Err = err
	}
}
