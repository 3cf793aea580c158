package audit

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
)

const (
	// maxShort is the length from which on names, versions and the like are shortened: see Shortened. Most names that the API server stores have
	// at most 253 bytes; that of an RBAC object may be longer.
	maxShort = 4 << 10
	// maxURI and maxReason are the lengths from which on URI and Reason are cut.
	maxURI    = 8 << 10
	maxReason = 1 << 10
)

// earlyCloseMessage is in the Status that the API server makes up when a handler has sent nothing: WithAudit in k8s.io/apiserver
// pkg/endpoints/filters/audit.go. Its code is 200, although no response was sent.
const earlyCloseMessage = "Connection closed early"

// event has the members of an audit event that are used: k8s.io/apiserver pkg/apis/audit/v1. They come in any order.
type event struct {
	kind, apiVersion, level, id, stage, verb, uri value
	user, impersonated, sourceIPs, userAgent      value
	ref, status, request, response                value
	received, reached, annotations                value
	records                                       value // of Azure's envelope, which has this form, too, until its kind is known
}

// members are the names of the members, with where their values belong.
var members = map[string]func(e *event) *value{
	"kind":                     func(e *event) *value { return &e.kind },
	"apiVersion":               func(e *event) *value { return &e.apiVersion },
	"level":                    func(e *event) *value { return &e.level },
	"auditID":                  func(e *event) *value { return &e.id },
	"stage":                    func(e *event) *value { return &e.stage },
	"verb":                     func(e *event) *value { return &e.verb },
	"requestURI":               func(e *event) *value { return &e.uri },
	"user":                     func(e *event) *value { return &e.user },
	"impersonatedUser":         func(e *event) *value { return &e.impersonated },
	"sourceIPs":                func(e *event) *value { return &e.sourceIPs },
	"userAgent":                func(e *event) *value { return &e.userAgent },
	"objectRef":                func(e *event) *value { return &e.ref },
	"responseStatus":           func(e *event) *value { return &e.status },
	"requestObject":            func(e *event) *value { return &e.request },
	"responseObject":           func(e *event) *value { return &e.response },
	"requestReceivedTimestamp": func(e *event) *value { return &e.received },
	"stageTimestamp":           func(e *event) *value { return &e.reached },
	"annotations":              func(e *event) *value { return &e.annotations },
	"records":                  func(e *event) *value { return &e.records },
}

// checkItem checks an element of an EventList, which usually has neither kind nor apiVersion.
func (e *event) checkItem() error {
	if e.kind.isNull() && e.apiVersion.isNull() {
		return nil
	}
	kind, err := e.kind.text()
	if err != nil {
		return err
	}
	version, err := e.apiVersion.text()
	if err != nil {
		return err
	}
	return checkKind(kind, version, eventKind)
}

// add makes an event a record, if it is one. Reasons to drop it that cost least come first.
func (p *Parser) add(e *event, b *Batch) {
	verb, err := e.verb.bytes()
	stage, stageErr := e.stage.bytes()
	switch {
	case err != nil || stageErr != nil || e.verb == nil || len(stage) == 0:
		b.Fail(errors.New("an audit event has no verb or no stage"))
		return
	case !e.ref.isObject():
		b.drop(DropNonResource)
		return
	}
	started := string(stage) == "ResponseStarted" // another event says how the request has ended
	switch {
	case isRead(verb) && (!p.options.Denied || started || !e.status.isForbidden()):
		b.drop(DropRead)
		return
	case started:
		b.drop(DropStarted)
		return
	}
	r, d, err := p.record(e, string(verb))
	switch {
	case err != nil:
		b.Fail(err)
	case r == nil:
		b.drop(d)
	default:
		b.Records = append(b.Records, *r)
	}
}

func isRead(verb []byte) bool {
	switch string(verb) {
	case "get", "list", "watch":
		return true
	}
	return false
}

// isForbidden reports whether a responseStatus has code 403, which no other value has. It costs less than readStatus.
func (v value) isForbidden() bool {
	code, _ := v.at("code")
	return string(code) == "403"
}

// record returns the record of an event, or why it is dropped.
func (p *Parser) record(e *event, verb string) (*Record, Drop, error) {
	r := &Record{Verb: verb}
	status, err := readStatus(e.status)
	if err != nil {
		return nil, 0, err
	}
	r.Code, r.StatusUID = status.code, status.uid
	if err := r.readAnnotations(e.annotations); err != nil {
		return nil, 0, err
	}
	if err := r.readRef(e.ref); err != nil {
		return nil, 0, err
	}
	if r.Code == http.StatusBadRequest { // Refused looks at the URI
		if err := r.readURI(e); err != nil {
			return nil, 0, err
		}
	}
	denied := p.options.Denied && r.Denied()
	switch {
	case denied:
		r.Message = status.message
		r.Cut = r.Cut || status.cut
	case isRead([]byte(verb)):
		return nil, DropRead, nil
	case r.Refused() && !p.options.Ends:
		return nil, DropRefused, nil
	}
	if r.Group == "" && r.Resource == "namespaces" { // the API server says that it is in itself
		r.Namespace = ""
	}
	r.Group, r.Resource = ResourceOf(r.Group, r.Resource)
	if r.Group == "" && r.Resource == "bindings" { // the older form of a POST to pods/binding
		r.Resource, r.Subresource = "pods", "binding"
	}
	if !denied && r.virtual() {
		return nil, DropVirtual, nil
	}
	if err := r.readLog(e); err != nil {
		return nil, 0, err
	}
	if r.Code == http.StatusOK && r.Stage == Complete && status.message == earlyCloseMessage {
		r.Code = 0
	}
	if err := r.readObjects(e); err != nil {
		return nil, 0, err
	}
	return r, 0, p.readActor(r, e)
}

// Denied reports whether a request was refused because its user may not do it. Code 403 is also that of admission, and of a user who would
// give more rights than the user has: then the authorizer has allowed the request. No decision is in the record if the user may not impersonate
// another one.
func (r *Record) Denied() bool { return r.Code == http.StatusForbidden && r.Decision != "allow" }

// Refused reports whether a request has changed nothing because the API server refused it, by what k8s.io/apiserver does. Other codes of errors
// can follow a write.
//
//	request                       refused with
//	any                           401, 403 and 429 before the authorizer has allowed it
//	create, update, patch         401, 403, 404, 405, 409, 413, 415, 422, 429;
//	                              400 without a subresource and includeObject
//	delete                        404, 405
//	create of eviction,           -
//	deletecollection
//
// A create, an update and a patch make one write, after they are decoded, validated, and admitted, by which they end with these codes: 404 and 409
// (also by the storage) if the object does not exist, exists, or has another version, 413 if it is too large, 415 and 422 if it is not read or not
// valid, 401, 403, 422 and 429 by admission, a quota or the priority of the request, 405 if the resource has no such verb. What comes after the
// write (transformResponseObject in pkg/endpoints/handlers/response.go) ends with 400 or 406 if the object cannot be returned in the form of the
// header Accept: with 400 as a Table with a wrong includeObject, or as the scale of a custom resource. A webhook of admission may answer with any code: other ones are not taken as refused.
//
// A delete may make two writes: deletionTimestamp, and the removal, with an admission of its own, which may be refused for what the first
// one wrote (Store.Delete in pkg/registry/generic/registry/store.go). If the object is gone by then, the delete succeeds, so 404 is of the first write. An
// eviction and a deletecollection may fail when they have changed something.
func (r *Record) Refused() bool {
	switch r.Code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		if r.Decision != "allow" {
			return true
		}
	}
	switch {
	case r.Verb == "deletecollection", r.Subresource == "eviction":
		return false
	case r.Verb == "delete":
		return r.Code == http.StatusNotFound || r.Code == http.StatusMethodNotAllowed
	}
	switch r.Code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusConflict,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusTooManyRequests:
		return true
	case http.StatusBadRequest:
		return r.Subresource == "" && !r.Cut && !hasParameter(r.URI, "includeObject")
	}
	return false
}

// virtual reports whether a request is for a resource without objects, so that no change can follow from it.
func (r *Record) virtual() bool {
	switch r.Subresource {
	case "exec", "attach", "portforward", "proxy":
		return r.Group == "" && (r.Resource == "pods" || r.Resource == "nodes" || r.Resource == "services")
	case "token":
		return r.Group == "" && r.Resource == "serviceaccounts"
	}
	switch r.Group {
	case "authorization.k8s.io":
		return strings.HasSuffix(r.Resource, "accessreviews") || r.Resource == "selfsubjectrulesreviews"
	case "authentication.k8s.io":
		return r.Resource == "tokenreviews" || r.Resource == "selfsubjectreviews"
	}
	return false
}

// status is what is read of a responseStatus.
type status struct {
	code         int
	uid, message string
	cut          bool // the message is cut
}

func readStatus(v value) (s status, err error) {
	err = v.members(func(name []byte, v value) (err error) {
		switch string(name) {
		case "code":
			s.code, err = v.integer()
		case "message":
			s.message, s.cut, err = v.cutText(maxReason)
		case "details":
			if v, err = v.at("uid"); err == nil {
				s.uid, err = v.text()
			}
		}
		return err
	})
	return s, err
}

func (r *Record) readAnnotations(v value) error {
	return v.members(func(name []byte, v value) (err error) {
		switch string(name) {
		case "authorization.k8s.io/decision":
			r.Decision, err = r.text(v)
		case "authorization.k8s.io/reason":
			var cut bool
			r.Reason, cut, err = v.cutText(maxReason)
			r.Cut = r.Cut || cut
		case "audit.k8s.io/truncated": // plugin/pkg/audit/truncate in k8s.io/apiserver
			var b []byte
			b, err = v.bytes()
			r.Truncated = string(b) == "true"
		}
		return err
	})
}

func (r *Record) readRef(v value) error {
	return v.members(func(name []byte, v value) (err error) {
		switch string(name) {
		case "apiGroup":
			r.Group, err = r.text(v)
		case "apiVersion":
			r.Version, err = r.text(v)
		case "resource":
			r.Resource, err = r.text(v)
		case "subresource":
			r.Subresource, err = r.text(v)
		case "namespace":
			r.Namespace, err = r.text(v)
		case "name":
			r.Name, err = r.text(v)
		case "uid":
			r.UID, err = r.text(v)
		case "resourceVersion":
			r.Expected, err = v.version() // readObjects decides whether it is one
		}
		return err
	})
}

// text is [value.text], and says in Cut that the text is shortened.
func (r *Record) text(v value) (string, error) {
	b, err := v.bytes()
	r.Cut = r.Cut || len(b) > maxShort
	return Shortened(string(b)), err
}

// readLog reads what describes the event itself.
func (r *Record) readLog(e *event) (err error) {
	if r.ID, err = r.text(e.id); err != nil {
		return err
	}
	if r.Received, err = e.received.time(); err != nil {
		return err
	}
	if r.Reached, err = e.reached.time(); err != nil {
		return err
	}
	if r.Stage, err = named(e.stage, stages, "stage"); err != nil {
		return err
	}
	if r.Level, err = named(e.level, levels, "level"); err != nil {
		return err
	}
	return r.readURI(e)
}

func (r *Record) readURI(e *event) error {
	uri, cut, err := e.uri.cutText(maxURI)
	uri, content := withoutContent(uri, r.Verb, r.Subresource)
	r.URI, r.Cut = uri, r.Cut || cut || content
	return err
}

var (
	stages = map[string]Stage{"RequestReceived": Received, "ResponseComplete": Complete, "Panic": Panicked}
	levels = map[string]Level{"Metadata": Metadata, "Request": Request, "RequestResponse": RequestResponse}
)

// named returns what a text names.
func named[T any](v value, all map[string]T, what string) (T, error) {
	b, err := v.bytes()
	one, known := all[string(b)]
	if !known {
		err = errors.Join(err, errors.New("an audit event has an unknown "+what))
	}
	return one, err
}

// queryDryRun reports whether a URI has the parameter dryRun. Its only value that the API server accepts is All.
func queryDryRun(uri value) (bool, error) {
	b, err := uri.bytes()
	return hasParameter(string(b), "dryRun"), err
}

func hasParameter(uri, name string) bool {
	_, query, _ := strings.Cut(uri, "?")
	parameters, _ := url.ParseQuery(query) // what is wrong is left out, as by the API server
	return parameters.Has(name)
}
