package attribute

import (
	"encoding/json"
	"slices"

	"github.com/kubebridge/kubebridge/pkg/event"
)

const (
	// maxBytes bounds the data of an event that says who made a change. A bus usually takes 1 MB, and each of several candidates can have
	// lists and texts of 64 KiB in the audit log, of which each byte may take six in JSON.
	maxBytes = 128 << 10
	// maxRejections is how often the bus may reject the event of a change. Each time the bound is a quarter of the one before. Then the change
	// is not attributed.
	maxRejections = 4
	// leftOutCandidates says in LeftOut that only the nearest candidates are there.
	leftOutCandidates = "candidates"
)

// bound leaves out members of the requests of a until its JSON, without Explains, has at most limit bytes, and says so in LeftOut. What a
// client can make long is left out before candidates are. At least one candidate and the names of the users stay, so the result can be larger
// if limit is less than maxBytes.
func bound(a *event.Attribution, limit int) {
	requests := a.Candidates
	if a.Request != nil {
		requests = []event.Request{*a.Request}
		defer func() { *a.Request = requests[0] }()
	}
	total := 0
	for i := range requests {
		total += sizeOf(&requests[i])
	}
	limit -= 200 // the other members
	for _, member := range []struct {
		name string
		omit func(r *event.Request)
	}{
		{"extra", func(r *event.Request) { eachUser(r, func(u *event.User) { u.Extra = nil }) }},
		{"groups", func(r *event.Request) { eachUser(r, func(u *event.User) { u.Groups = nil }) }},
		{"sourceips", func(r *event.Request) { r.SourceIPs = r.SourceIPs[max(0, len(r.SourceIPs)-1):] }}, // the last one is from the API server
		{"uri", func(r *event.Request) { r.URI = "" }},
		{"useragent", func(r *event.Request) { r.UserAgent = "" }},
		{"decisionreason", func(r *event.Request) { r.DecisionReason = "" }},
	} {
		if total <= limit {
			return
		}
		before := total
		total = 0
		for i := range requests {
			member.omit(&requests[i])
			total += sizeOf(&requests[i])
		}
		if total < before && !slices.Contains(a.LeftOut, member.name) {
			a.LeftOut = append(a.LeftOut, member.name)
		}
	}
	if total <= limit || len(a.Candidates) < 2 {
		return
	}
	if !slices.Contains(a.LeftOut, leftOutCandidates) {
		a.LeftOut = append(a.LeftOut, leftOutCandidates)
	}
	for n := len(a.Candidates) - 1; n > 0 && total > limit; n-- {
		total -= sizeOf(&a.Candidates[n])
		a.Candidates = a.Candidates[:n]
	}
}

func eachUser(r *event.Request, f func(u *event.User)) {
	f(&r.User)
	if r.Impersonated != nil {
		f(r.Impersonated)
	}
}

// sizeOf returns the size of a request in JSON, with the comma behind it.
func sizeOf(r *event.Request) int {
	text, _ := json.Marshal(r) // strings and numbers always encode
	return len(text) + 1
}
