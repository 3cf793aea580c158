// Package audit reads the records of the API server's audit log (audit.k8s.io/v1).
//
// A record says who sent a request, and what the API server answered. Only requests that may change objects become a
// [Record]; reads and requests for URLs that are no resources are left out as early as possible.
package audit

import "time"

// Record is what the API server says about one request at one stage.
type Record struct {
	// ID is the audit ID. A client can choose it (header Audit-ID), also the same one for several requests, so it identifies nothing.
	ID    string `json:"id,omitzero"`
	Stage Stage  `json:"stage,omitzero"`
	Level Level  `json:"level,omitzero"`

	Verb        string `json:"verb,omitzero"` // create, update, patch, delete, deletecollection, or another one of the API server
	Group       string `json:"group,omitzero"`
	Version     string `json:"version,omitzero"` // of the API group
	Resource    string `json:"resource,omitzero"`
	Subresource string `json:"subresource,omitzero"`
	Namespace   string `json:"namespace,omitzero"`
	Name        string `json:"name,omitzero"` // "": not known, for example a creation with generateName, or a deletecollection
	UID         string `json:"uid,omitzero"`  // of the request; "": not known
	DryRun      bool   `json:"dryRun,omitzero"`
	// Expected is the resourceVersion of the request: the API server fails the request if the object has another one. "": there is none,
	// or it is not known. That of a patch is not read.
	Expected string `json:"expected,omitzero"`

	Code int `json:"code,omitzero"` // HTTP status; 0: there is no answer yet
	// Answer is the object of the response; nil: there is none, it is not logged, or the response is a Status.
	Answer *Answer `json:"answer,omitzero"`

	Received time.Time `json:"received,omitzero"` // when the request came, by the clock of the API server
	Reached  time.Time `json:"reached,omitzero"`  // when it reached Stage, by the same clock

	Actor Actor  `json:"actor"`
	URI   string `json:"uri,omitzero"`
	// Decision and Reason are of the authorizer: "allow" or "forbid", and for example the name of a role binding.
	Decision string `json:"decision,omitzero"`
	Reason   string `json:"reason,omitzero"`
}

// Answer is what a response says about the object.
type Answer struct {
	Namespace string `json:"namespace,omitzero"`
	Name      string `json:"name,omitzero"`
	UID       string `json:"uid,omitzero"`
	Version   string `json:"version,omitzero"` // resourceVersion
	// Ending says that the object has a deletionTimestamp, and Bare that it has no finalizers.
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
