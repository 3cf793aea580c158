package status

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Audit is the state of the records of the API server's audit log. Numbers are since the start, except Bytes.
type Audit struct {
	Bytes    int64  `json:"bytes"`    // of records on disk, which a sink still needs
	MaxBytes int64  `json:"maxBytes"` // from which on no more records are accepted
	Records  uint64 `json:"records"`  // that were stored
	// Dropped are audit events that say nothing about a change, by reason: read, non-resource, response-started, refused, virtual, foreign.
	Dropped    map[string]uint64 `json:"dropped"`
	Unparsable uint64            `json:"unparsable"` // audit events that could not be read, and are lost
	// Refused are requests of the webhook that were not answered with 200, by reason: client, form, size, slow, busy, full, failed. The API server
	// repeats each of them, at most four times. nil: there is no webhook.
	Refused map[string]uint64 `json:"refused,omitzero"`
	// Needed are the numbers of records on disk that each sink still needs. The one that needs most keeps records of all.
	Needed map[string]uint64 `json:"needed,omitzero"`
	Gaps   uint64            `json:"gaps"` // places where an unknown number of records is missing
	// FileRead is a time: all that was written to the audit log file before it is stored. nil: there is no file, or its end was not reached
	// since the start.
	FileRead  *time.Time `json:"fileRead,omitzero"`
	Failing   string     `json:"failing,omitzero"` // the operation that is retried, and why
	Since     *time.Time `json:"failingSince,omitzero"`
	LastError *Trouble   `json:"lastError,omitzero"` // since the start
}

// Words describes the records for people.
func (a *Audit) Words(now time.Time) string {
	words := []string{size(a.Bytes) + " of " + size(a.MaxBytes), comma(int64(a.Records)) + " records stored"}
	if sink := a.holder(); sink != "" {
		words = append(words, "sink "+sink+" needs the oldest ("+comma(int64(a.Needed[sink]))+" records)")
	}
	if n := sum(a.Dropped); n > 0 {
		words = append(words, comma(int64(n))+" events not needed"+reasons(a.Dropped))
	}
	if a.Unparsable > 0 {
		words = append(words, comma(int64(a.Unparsable))+" unparsable")
	}
	if n := sum(a.Refused); n > 0 {
		words = append(words, comma(int64(n))+" requests refused"+reasons(a.Refused))
	}
	if a.Gaps == 1 {
		words = append(words, "1 gap")
	} else if a.Gaps > 1 {
		words = append(words, comma(int64(a.Gaps))+" gaps")
	}
	if a.FileRead != nil {
		words = append(words, "file read as of "+ago(*a.FileRead, now))
	}
	if a.Failing != "" {
		words = append(words, "failing: "+a.Failing)
		if a.Since != nil {
			words[len(words)-1] += " (for " + span(now.Sub(*a.Since)) + ")"
		}
	}
	return strings.Join(words, ", ")
}

// holder returns the sink that needs most records; "": none needs any.
func (a *Audit) holder() (holder string) {
	for _, sink := range slices.Sorted(maps.Keys(a.Needed)) {
		if a.Needed[sink] > a.Needed[holder] {
			holder = sink
		}
	}
	return holder
}

// Attribution are the published changes of a sink whose request the audit log says. Numbers are since the start, except Waiting.
type Attribution struct {
	Waiting    int               `json:"waiting"`    // changes that wait for their records
	Exact      uint64            `json:"exact"`      // changes with exactly one possible request, in an event of its own
	Carried    uint64            `json:"carried"`    // changes with exactly one possible request, in their own event: see audit.wait
	Candidates map[string]uint64 `json:"candidates"` // changes with candidates, by reason: see docs/attribution.md
	NoRecord   uint64            `json:"noRecord"`   // changes that no record fits: nothing was published
	Dropped    uint64            `json:"dropped"`    // changes of collections that were reset or removed since
	// Denied are denied requests, with audit.denied, by what has become of them: published, dropped (the sink does not publish the resource any
	// more), rejected by the bus, lost (too many were waiting). nil: they are not published.
	Denied        map[string]uint64 `json:"denied,omitzero"`
	DeniedWaiting int               `json:"deniedWaiting,omitzero"` // denied requests that wait for their publication
}

// Words describes the changes for people.
func (a *Attribution) Words() string {
	words := []string{comma(int64(a.Exact+a.Carried)) + " exact"}
	if a.Carried > 0 {
		words[0] += " (" + comma(int64(a.Carried)) + " in their own event)"
	}
	if n := sum(a.Candidates); n > 0 {
		words = append(words, comma(int64(n))+" with candidates"+reasons(a.Candidates))
	}
	if a.NoRecord > 0 {
		words = append(words, comma(int64(a.NoRecord))+" without a record")
	}
	if a.Dropped > 0 {
		words = append(words, comma(int64(a.Dropped))+" dropped")
	}
	words = append(words, comma(int64(a.Waiting))+" waiting")
	if a.Denied != nil {
		words = append(words, comma(int64(sum(a.Denied)))+" denied requests")
		if n := sum(a.Denied) - a.Denied["published"]; n > 0 {
			words[len(words)-1] += reasons(a.Denied)
		}
	}
	if a.DeniedWaiting > 0 {
		words = append(words, comma(int64(a.DeniedWaiting))+" denied requests waiting")
	}
	return strings.Join(words, ", ")
}

func sum(by map[string]uint64) (n uint64) {
	for _, one := range by {
		n += one
	}
	return n
}

// reasons lists what is not 0, in parentheses.
func reasons(by map[string]uint64) string {
	var words []string
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		if by[reason] > 0 {
			words = append(words, comma(int64(by[reason]))+" "+reason)
		}
	}
	return " (" + strings.Join(words, ", ") + ")"
}
