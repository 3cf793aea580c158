package join

import (
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// outcome is what a request has done to the objects of the API server.
type outcome uint8

const (
	unknown outcome = iota // it may have changed something, or may still do so
	done                   // it has succeeded, and may have changed nothing
	refused                // it has changed nothing; so has a dry run
)

// outcome returns what is known of the outcome. An error of the API server does not say that nothing was changed: a request may go on after
// its client got code 504, and others may fail when they have changed something: see [audit.Record.Refused].
func (q *request) outcome() outcome {
	switch {
	case q.record.DryRun:
		return refused
	case q.lasting():
		return unknown
	case q.record.Code < 300:
		return done
	case q.record.Refused():
		return refused
	}
	return unknown
}

// capacity returns how many changes a request can make.
func capacity(r *audit.Record) int {
	switch {
	case r.Subresource == "eviction": // a condition of the pod, its deletionTimestamp, its end
		return 3
	case r.Verb == "delete": // deletionTimestamp, its end
		return 2
	case r.Verb == "deletecollection":
		return math.MaxInt
	}
	return 1
}

// can reports whether a request can have made a change, if only these two are looked at.
//
//	request                          created           changed             removed
//	create                           201 *             -                   -
//	create of eviction               -                 yes                 yes
//	create of another subresource    -                 yes                 -
//	update, patch                    201 *             200 *               200 ***
//	delete                           -                 yes **              yes **
//	deletecollection                 -                 yes ****            yes ****
//	others                           -                 -                   -
//
// * If there is an answer, it has the UID and the resourceVersion of the change. If the record has no answer, the code is enough. An update
// that names a resourceVersion must name that of the object before, where this is known. Requests of which the outcome is unknown
// can have made what they make with any code.
//
// ** If the answer is an object: see deletes.
//
// *** If there is an answer, it is an object that has a deletionTimestamp, no finalizers and no grace period, with an earlier resourceVersion than
// that of the removal. What the request names excludes nothing, nor does the UID of its answer: the API server compares the resourceVersion in a
// first step, and removes whatever has the name in a second one (deleteWithoutFinalizers in pkg/registry/generic/registry/store.go of
// k8s.io/apiserver). Another request can write in between.
//
// **** If the answer names what it has selected, the object is one of these.
func can(q *request, c *Change) bool {
	if c.Kind == Written {
		return can(q, c.as(Created)) || can(q, c.as(Changed))
	}
	r := q.record
	o := q.outcome()
	if o == refused {
		return false
	}
	written := func(code int) bool { return o == unknown || r.Code == code }
	switch r.Verb {
	case "create":
		switch {
		case r.Subresource == "eviction":
			return c.Kind != Created
		case r.Subresource != "":
			return c.Kind == Changed
		}
		return c.Kind == Created && written(http.StatusCreated) && answers(r, c)
	case "update", "patch":
		switch c.Kind {
		case Created:
			return written(http.StatusCreated) && answers(r, c)
		case Changed:
			return written(http.StatusOK) && answers(r, c) && expects(r, c)
		}
		a := r.Answer
		return written(http.StatusOK) && (a == nil || !remains(r) && (a.Version == "" || event.Newer(c.Version, a.Version)))
	case "delete":
		return c.Kind != Created && (r.Answer == nil || deletes(r, c))
	case "deletecollection":
		return c.Kind != Created && (r.Selected == nil || slices.Contains(r.Selected, c.Name))
	}
	return false
}

// deletes reports whether a deletion whose answer is an object can have made a change, which is no creation.
//
//	the answer is                     changed                                    removed
//	an object with another UID        if the answer has a later version          -
//	the object, and it remains        if the answer has the version              if the answer has the version
//	the object, and it is removed     if the answer has no earlier version       if the answer has a version
//
// A deletion makes up to two writes: the deletionTimestamp, and the removal (Store.Delete in pkg/registry/generic/registry/store.go of
// k8s.io/apiserver). In between, other requests can remove the object: then the answer has no resourceVersion (lastExisting). They can also create
// another one with its name: then that one is removed, and is the answer. The second write does not look at finalizers, so the removed object can look as
// if it remained.
func deletes(r *audit.Record, c *Change) bool {
	version := r.Answer.Version
	switch {
	case !sameUID(r, c):
		return c.Kind == Changed && event.Newer(version, c.Version)
	case remains(r):
		return version == c.Version
	case c.Kind == Changed:
		return version == "" || !event.Older(version, c.Version)
	}
	return version != ""
}

// remains reports whether the answer of a request is an object that looks as if it still existed after the request.
func remains(r *audit.Record) bool {
	if r.Answer.Ending {
		return !r.Answer.Bare
	}
	return r.Verb != "delete"
}

// removes reports whether the answer of a request is an object that the request has removed. That of a deletion of a Namespace does not say so: it can
// be the Namespace with its new deletionTimestamp (REST.Delete in pkg/registry/core/namespace/storage of k8s.io/kubernetes).
func removes(r *audit.Record) bool {
	return r.Verb == "delete" && !remains(r) && (r.Group != "" || r.Resource != "namespaces")
}

// effective reports whether the success of a request that can have made a change says that it has changed the object. A deletion of many
// objects succeeds also if it finds none. This matters for removals, which the API server also makes without a request.
func effective(q *request, c *Change) bool {
	if q.outcome() != done {
		return false
	}
	return c.Kind != Removed || q.record.Verb == "delete" || q.record.Answer != nil
}

// as returns the change with another kind.
func (c *Change) as(kind Kind) *Change {
	other := *c
	other.Kind = kind
	return &other
}

// answers reports whether the answer of a request, if it is known, is the object after the change.
func answers(r *audit.Record, c *Change) bool {
	if r.Answer == nil || r.Answer.UID == "" {
		return true
	}
	return sameUID(r, c) && r.Answer.Version == c.Version
}

// sameUID reports whether the answer of a request has the UID of the changed object. Those of some subresources are other objects.
func sameUID(r *audit.Record, c *Change) bool {
	return r.Answer.UID == c.UID
}

// expects reports whether the resourceVersion that a request names, if it does, can be that of the object before the change.
func expects(r *audit.Record, c *Change) bool {
	return !names(r) || r.Expected != c.Version && (c.Before == "" || r.Expected == c.Before)
}

// names reports whether a request names a resourceVersion that the API server compares, in the form in which it writes them itself: then two
// of them are the same if their texts are. The API server does not compare 0.
func names(r *audit.Record) bool {
	v := r.Expected
	return v != "" && v[0] != '0' && strings.Trim(v, "0123456789") == ""
}

// proves reports whether a record alone is enough to know who made a change: see the comment of the package.
func (j *Join) proves(q *request, c *Change) bool {
	if c.Kind == Written {
		return j.proves(q, c.as(Created)) || j.proves(q, c.as(Changed))
	}
	r := q.record
	if q.outcome() != done || r.Answer == nil || r.Answer.UID != c.UID || c.UID == "" || r.Answer.Version != c.Version || c.Version == "" || j.ofEarlierHistory(q) {
		return false
	}
	switch c.Kind {
	case Created:
		return r.Code == http.StatusCreated && r.Subresource == "" && (r.Verb == "create" || r.Verb == "update" || r.Verb == "patch")
	case Changed:
		return r.Code == http.StatusOK && r.Verb == "update" && names(r) && r.Expected != r.Answer.Version
	case Removed:
		return removes(r)
	}
	return false
}
