// Package audit reads the records of the API server's audit log (audit.k8s.io/v1).
//
// A record says who sent a request, and what the API server answered. Only requests that may change objects, and those that are refused,
// become a [Record]; other reads and requests for URLs that are no resources are left out as early as possible. A [Parser] reads the formats in which
// audit events are delivered.
package audit

import (
	"errors"
	"fmt"
	"time"
)

// Record is what the API server says about one request at one stage.
type Record struct {
	// ID is the audit ID. A client can choose it (header Audit-ID), also the same one for several requests, so it identifies nothing.
	ID    string `json:"id,omitzero"`
	Stage Stage  `json:"stage,omitzero"`
	Input int    `json:"input,omitzero"` // where the record came from. Records of one input are in the order in which they were written
	Level Level  `json:"level,omitzero"`

	Verb        string `json:"verb,omitzero"`    // create, update, patch, delete, deletecollection, or another one of the API server
	Group       string `json:"group,omitzero"`   // Group and Resource are those of [ResourceOf]
	Version     string `json:"version,omitzero"` // of the API group
	Resource    string `json:"resource,omitzero"`
	Subresource string `json:"subresource,omitzero"`
	Namespace   string `json:"namespace,omitzero"`
	Name        string `json:"name,omitzero"` // "": not known, for example a creation with generateName, or a deletecollection
	UID         string `json:"uid,omitzero"`  // of the request, or the precondition of a delete; "": not known
	DryRun      bool   `json:"dryRun,omitzero"`
	// MaybeDryRun says that the request may be a dry run, and that nobody can know: a deletion and an eviction have that option in the body,
	// and the body is not logged.
	MaybeDryRun bool `json:"maybeDryRun,omitzero"`
	// Expected is the resourceVersion of the request: the API server fails the request if the object has another one. "": there is none,
	// or it is not known. It is that of an update or, at level Request, the precondition of a delete; that of a patch is not read. The API
	// server takes "0" as none, and compares numbers, so leading zeros are removed: text that differs means a version that differs.
	Expected string `json:"expected,omitzero"`

	// Code is the HTTP status. 0: there is no answer yet or, at stage Complete, none was sent, and the request may have changed the object.
	Code int `json:"code,omitzero"`
	// Answer is the object of the response; nil: there is none, it is not logged, or the response is a Status, a list or a Table.
	Answer *Answer `json:"answer,omitzero"`
	// Selected has the names of the objects that a deletecollection has selected, by its response; nil: it is not known, or there are more than 100.
	Selected []string `json:"selected,omitzero"`
	// StatusUID is the UID in the Status of a response, which also records at level Metadata have: a delete that has removed an object names it.
	StatusUID string `json:"statusUID,omitzero"`

	Received time.Time `json:"received,omitzero"` // when the request came, by the clock of the API server
	Reached  time.Time `json:"reached,omitzero"`  // when it reached Stage, by the same clock

	Actor Actor  `json:"actor"`
	URI   string `json:"uri,omitzero"`
	// Decision and Reason are of the authorizer: "allow" or "forbid", and for example the name of a role binding.
	Decision string `json:"decision,omitzero"`
	Reason   string `json:"reason,omitzero"`
	// Message is the answer to a request that was refused: see [Record.Denied]. "": none, or another request.
	Message string `json:"message,omitzero"`

	// Truncated says that objects were too large for the log, and were left out: the record has less than its level promises.
	Truncated bool `json:"truncated,omitzero"`
	// Lost makes this no record of a request: records before it may be missing. Only ID and Input are set beside it.
	Lost *Loss `json:"lost,omitzero"`
	// Cut says that a text was too long and is cut, that content is left out of URI, or that elements of a list of Actor are left out. Texts that name something are [Shortened].
	Cut bool `json:"cut,omitzero"`
}

// ResourceOf returns the group and the resource by which requests for a resource are joined with changes of its objects: the same two for all names
// under which the API server serves the objects. It serves Events in two groups. A record has them; those of a collection are asked for here.
func ResourceOf(group, resource string) (string, string) {
	if group == "events.k8s.io" && resource == "events" {
		return "", resource
	}
	return group, resource
}

// maxSize is more than the size of any record that a [Parser] makes.
const maxSize = 1 << 20

// Check returns an error if no [Parser] makes such a record, nor another replica a loss: its stage is unknown, it is too long, or a time has a year that
// JSON does not have. It is for records that come from outside. Their Input is not checked.
func (r *Record) Check() error {
	times := []time.Time{r.Received, r.Reached}
	if r.Lost != nil {
		times = append(times, r.Lost.Since, r.Lost.Until)
	} else if r.Stage < Received || r.Stage > Panicked {
		return errors.New("an audit record has an unknown stage")
	}
	for _, t := range times {
		if !hasYear(t) {
			return errors.New("an audit record has a time outside of the years 0 to 9999")
		}
	}
	if n := r.Size(); n > maxSize {
		return fmt.Errorf("an audit record has %d bytes, which is more than %d", n, maxSize)
	}
	return nil
}

// hasYear reports whether RFC 3339 has the year of a time in UTC.
func hasYear(t time.Time) bool {
	year := t.UTC().Year()
	return year >= 0 && year <= 9999
}

// Size returns about how many bytes of memory a record takes. A client can make it long: its texts are bounded, to about 130 KiB.
func (r *Record) Size() int {
	n := 1 << 10
	for _, text := range []string{
		r.ID, r.Verb, r.Group, r.Version, r.Resource, r.Subresource, r.Namespace, r.Name, r.UID, r.Expected, r.StatusUID, r.URI, r.Decision, r.Reason, r.Message, r.Actor.UserAgent,
	} {
		n += len(text)
	}
	if a := r.Answer; a != nil {
		n += len(a.Namespace) + len(a.Name) + len(a.UID) + len(a.Version)
	}
	n += sizeOf(r.Actor.SourceIPs) + sizeOf(r.Selected) + r.Actor.User.size()
	if r.Actor.Impersonated != nil {
		n += r.Actor.Impersonated.size()
	}
	if r.Lost != nil {
		n += len(r.Lost.Detail)
	}
	return n
}

func (u *User) size() int {
	n := len(u.Name) + len(u.UID) + sizeOf(u.Groups)
	for key, values := range u.Extra {
		n += perText + len(key) + sizeOf(values)
	}
	return n
}

// perText is about the memory of a string without its bytes.
const perText = 16

func sizeOf(list []string) (n int) {
	for _, text := range list {
		n += perText + len(text)
	}
	return n
}

// Loss says that records of requests between two times may be missing, by the clock of the program that has noticed it.
type Loss struct {
	Since  time.Time `json:"since,omitzero"` // zero: not known
	Until  time.Time `json:"until"`
	Detail string    `json:"detail"`
}

// Answer is what a response says about the object.
type Answer struct {
	Namespace string `json:"namespace,omitzero"`
	Name      string `json:"name,omitzero"`
	UID       string `json:"uid,omitzero"`
	Version   string `json:"version,omitzero"` // resourceVersion
	// Ending says that the object has a deletionTimestamp, and Bare that neither finalizers nor a grace period keep it then: a Pod in its grace
	// period remains, and deletions that do not shorten the grace period change nothing (BeforeDelete in k8s.io/apiserver pkg/registry/rest/delete.go).
	Ending bool `json:"ending,omitzero"`
	Bare   bool `json:"bare,omitzero"`
}

// Actor is who sent a request.
type Actor struct {
	User User `json:"user"`
	// Impersonated is the user in whose name the request was made (header Impersonate-User); nil: none. Then User is the impersonator.
	Impersonated *User `json:"impersonated,omitzero"`
	// SourceIPs are addresses of the client. Only the last one is from the API server; those before are the client's word.
	SourceIPs []string `json:"sourceIPs,omitzero"`
	UserAgent string   `json:"userAgent,omitzero"` // the client's word
}

// User is a user as the API server has authenticated it.
type User struct {
	Name   string              `json:"name,omitzero"`
	UID    string              `json:"uid,omitzero"`
	Groups []string            `json:"groups,omitzero"`
	Extra  map[string][]string `json:"extra,omitzero"`
}

// Stage is a stage of a request.
type Stage uint8

// The stages. Those of responses that go on for long (watches) are left out.
const (
	Received Stage = iota + 1 // before the API server handles the request
	Complete                  // after the response
	Panicked                  // the API server has failed in between; the request may have changed the object
)

// Level says how much a record has.
type Level uint8

// The levels of an audit policy.
const (
	Metadata        Level = iota + 1 // who, what, when
	Request                          // and the object of the request
	RequestResponse                  // and the object of the response
)
