package event

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
)

// Attribution says who made the change of an object that another event is about, by the audit log of the API server. It is the data of an
// event of type [Attributed].
type Attribution struct {
	// Explains is the id of the event that has the change.
	Explains string `json:"explains"`
	// Request made the change; nil: it is not known which one did.
	Request *Request `json:"request,omitzero"`
	// Candidates are requests that may have made the change, if Request is nil, sorted by how near they were in time to the moment when the bridge
	// noticed it, the nearest first. There may be others.
	Candidates []Request `json:"candidates,omitzero"`
	// Reason says why Request is nil: see the table in docs/attribution.md. "": it is not.
	Reason string `json:"reason,omitzero"`
	// Warning is [OneCandidate] if there is one candidate.
	Warning string `json:"warning,omitzero"`
	// LeftOut names the members that would have made the event too large: of the requests "extra", "groups", "sourceips" (all but the
	// last one), "uri", "useragent" and "decisionreason"; and "candidates", if only the nearest of them are here, for that reason or because
	// there are more than 16.
	LeftOut []string `json:"leftout,omitzero"`
}

// OneCandidate says in words what a single candidate is not.
const OneCandidate = "A single candidate is no proof: it may not have made the change."

// Denial is a request that the API server has refused because its user may not do it. It is the data of an event of type [Denied].
type Denial struct {
	Request Request `json:"request"`
	// Message is what the API server has answered.
	Message string `json:"message,omitzero"`
	// More is how many more requests of the user for the collection were refused in about the same minute, and have no event of their own.
	More uint64 `json:"more,omitzero"`
	// LeftOut names the members that would have made the event too large, as in [Attribution]; and "message".
	LeftOut []string `json:"leftout,omitzero"`
}

// Loss says that records of the audit log may be missing. It is the data of an event of type [Lost].
type Loss struct {
	// Since and Until are times in [TimeFormat]: records of requests in between may be missing. Since is "" if it is not known.
	Since  string `json:"since,omitzero"`
	Until  string `json:"until"`
	Detail string `json:"detail"` // why, in one sentence for people
}

// Request is a request to the API server, as its audit log has it (audit.k8s.io/v1). Zero fields are left out: they are not known, or
// the bridge is configured to leave them out.
type Request struct {
	User         User     `json:"user"`
	Impersonated *User    `json:"impersonated,omitzero"` // in whose name User has sent the request
	SourceIPs    []string `json:"sourceips,omitzero"`    // the last one is from the API server, those before are the client's word
	UserAgent    string   `json:"useragent,omitzero"`    // the client's word
	Verb         string   `json:"verb,omitzero"`
	Subresource  string   `json:"subresource,omitzero"`
	URI          string   `json:"uri,omitzero"`
	AuditID      string   `json:"auditid,omitzero"`  // clients can choose it
	Received     string   `json:"received,omitzero"` // in [TimeFormat], by the clock of the API server
	Completed    string   `json:"completed,omitzero"`
	Code         int      `json:"code,omitzero"` // HTTP status of the response
	Decision     string   `json:"decision,omitzero"`
	// DecisionReason is the authorizer's, for example the name of a role binding.
	DecisionReason string `json:"decisionreason,omitzero"`
	// Cut says that a text was too long and is cut, that content is left out of URI, or that elements of a list are left out: texts have at most 1 KiB to 8 KiB, and all
	// texts about the users 64 KiB.
	Cut bool `json:"cut,omitzero"`
}

// EffectiveUser returns the user with whose permissions the request was made: the impersonated one, if there is one.
func (r *Request) EffectiveUser() User {
	if r.Impersonated != nil {
		return *r.Impersonated
	}
	return r.User
}

// Sender describes for people who sent the request: the user, the user who impersonates that one, the address that the API server saw, and the
// user agent up to the first space, for example "alice via system:serviceaccount:ci:deployer, from 10.0.0.12, with kubectl/v1.36.3". It can have
// control characters.
func (r *Request) Sender() string {
	s := named(r.User.Name)
	if r.Impersonated != nil {
		s = named(r.Impersonated.Name) + " via " + s
	}
	if n := len(r.SourceIPs); n > 0 {
		s += ", from " + r.SourceIPs[n-1]
	}
	if tool, _, _ := strings.Cut(r.UserAgent, " "); tool != "" {
		s += ", with " + tool
	}
	return s
}

func named(user string) string {
	if user == "" {
		return "without a name"
	}
	return user
}

// User is a user whom the API server has authenticated.
type User struct {
	Name   string              `json:"name"`
	UID    string              `json:"uid,omitzero"`
	Groups []string            `json:"groups,omitzero"`
	Extra  map[string][]string `json:"extra,omitzero"`
}

// FormatTime returns a time in [TimeFormat]; "" for the zero time.
func FormatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(TimeFormat)
}

// appendRequest appends the data of an event about a request.
func (e *Event) appendRequest(dst []byte) []byte {
	switch e.Type {
	case Denied:
		return appendWho(dst, e.Denial)
	case Lost:
		return appendWho(dst, e.Loss)
	}
	return appendWho(dst, e.Attribution)
}

// appendWho appends the JSON of a value about requests. Bytes that are no UTF-8 become U+FFFD, as in the audit log.
func appendWho(dst []byte, v any) []byte {
	to := bytes.NewBuffer(dst)
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // strings, numbers and times always encode
	return bytes.TrimSuffix(to.Bytes(), []byte("\n"))
}
