package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/internal/core/selectable"
	"github.com/kubebridge/kubebridge/internal/past/mirror"
	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// smallBody is the largest body of an object that is sent without a place among the lists.
const smallBody = 64 << 10

// options are the query parameters of a list or watch.
type options struct {
	metainternal.ListOptions
	labels          labels.Selector
	selector        fields.Selector
	name, namespace string                      // that the field selector requires; name is in the bounded form of the bus
	exactName       string                      // as the client has written it
	fields          map[string]selectable.Field // that the field selector needs beside name and namespace
	version         uint64                      // 0: any, or the newest
	selections      map[string]event.Selection  // of the collections, in the era that is read; nil: fields is nil
}

func parseOptions(q *request) (*options, error) {
	o := &options{namespace: q.namespace}
	if err := internalscheme.ParameterCodec.DecodeParameters(q.URL.Query(), metav1.SchemeGroupVersion, &o.ListOptions); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if errs := validation.ValidateListOptions(&o.ListOptions, true); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if o.Watch { // as at the API server, a watch has no pages: all initial objects are sent
		o.Limit, o.Continue = 0, ""
	}
	o.labels, o.selector = o.LabelSelector, o.FieldSelector
	if o.selector != nil {
		o.exactName, _ = o.selector.RequiresExactMatch("metadata.name")
		o.name = event.BoundName(o.exactName)
		if ns, ok := o.selector.RequiresExactMatch("metadata.namespace"); ok && o.namespace == "" {
			o.namespace = ns
		}
		o.selector, _ = o.selector.Transform(func(field, value string) (string, string, error) { // which returns no error
			if field == "metadata.name" {
				value = event.BoundName(value)
			}
			return field, value, nil
		})
	}
	var err error
	if o.version, err = parseVersion(o.ResourceVersion); err != nil {
		return nil, err
	}
	if o.Continue != "" && o.ResourceVersion != "" && o.ResourceVersion != "0" {
		return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	return o, nil
}

// parseVersion reads a resourceVersion of a query; "" is 0.
func parseVersion(text string) (version uint64, err error) {
	if text == "" {
		return 0, nil
	}
	if version, err = strconv.ParseUint(text, 10, 64); err != nil {
		err = apierrors.NewBadRequest(fmt.Sprintf("resourceVersion: Invalid value: %q: it is not a number", text))
	}
	return version, err
}

// token is a continue token: its list, the position in one copy, and the last object of the page.
type token struct {
	List            string // see [request.listName]
	Copy            string `json:",omitzero"` // that At is a position of: see [store.Store.ID]
	At              store.Position
	Namespace, Name string
	Newest          bool `json:",omitzero"` // instead of At: the view of the list is not retained any more
}

func (t token) String() string {
	text, _ := json.Marshal(t) // numbers and texts
	return base64.RawURLEncoding.EncodeToString(text)
}

// listName says what a list is of. A token of another list is refused: their positions have nothing in common.
func (q *request) listName() string {
	return path.Join(q.resource.ID.Cluster, q.resource.ID.Name, "at", q.past)
}

func (q *request) parseToken(s string) (t token, err error) {
	text, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(text, &t)
	}
	if err != nil || (t.At.Era == 0) != t.Newest {
		return t, apierrors.NewBadRequest("continue key is not valid")
	}
	if t.List != q.listName() {
		return t, apierrors.NewBadRequest("continue key is not valid: it is of another list: use it with the cluster, the resource and the /at/ that it is from")
	}
	return t, nil
}

// pageExpired is the API server's answer to a continue token that expired. It has a token for the rest of the newest
// state.
func (q *request) pageExpired(after store.Name) error {
	e := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. You can start a new list without " +
		"the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided " +
		"token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned " +
		"and now may show up in the list.")
	e.ErrStatus.Continue = token{List: q.listName(), Namespace: after.Namespace, Name: after.Name, Newest: true}.String()
	return e
}

// served reports whether a position is of a state that was served, and is retained.
func served(r *mirror.Resource, at store.Position) bool {
	return at.Compare(r.Floor) >= 0 && slices.ContainsFunc(r.Eras, func(e mirror.Era) bool {
		last := e.Last
		if e.Number == r.Served.Era {
			last = r.Served
		}
		return e.Number == at.Era && e.Complete && e.Base <= at.Version && at.Compare(last) <= 0
	})
}

// listed returns the position of a list. id is that of the store.
func (s *Server) listed(q *request, o *options, id string) (at store.Position, after store.Name, warnings []string, err error) {
	if o.Continue != "" {
		t, err := q.parseToken(o.Continue)
		if err != nil {
			return at, after, nil, err
		}
		if o.namespace != "" && t.Namespace != o.namespace { // it would show what is between the two namespaces
			return at, after, nil, apierrors.NewBadRequest("continue key is not valid")
		}
		after = store.Name{Namespace: t.Namespace, Name: t.Name}
		if t.Newest {
			at, warnings, err = s.position(q)
			return at, after, warnings, err
		}
		if t.Copy != id || !served(q.resource, t.At) {
			return at, after, nil, q.pageExpired(after)
		}
		if err := s.covered(q, t.At); err != nil {
			return at, after, nil, err
		}
		return t.At, after, q.warningsAt(t.At), nil
	}
	exact := o.ResourceVersionMatch == metav1.ResourceVersionMatchExact || o.ResourceVersionMatch == "" && o.Limit > 0 && o.version != 0
	if !exact {
		at, warnings, err = s.notOlder(q, o.version)
		return at, after, warnings, err
	}
	if err := s.reach(q.Context(), q, o.version); err != nil {
		return at, after, nil, err
	}
	now, _, err := s.position(q)
	if err != nil {
		return at, after, nil, err
	}
	at, err = q.resource.AtVersion(o.version, q.at.Epoch)
	if q.past != "" && (err == nil && at.Compare(now) > 0 || errors.Is(err, mirror.ErrTooNew)) {
		return at, after, nil, q.laterThanPast(o.version)
	}
	if err != nil {
		return at, after, nil, s.failed(q, err)
	}
	if err := s.covered(q, at); err != nil {
		return at, after, nil, err
	}
	return at, after, q.warningsAt(at), nil
}

func (s *Server) list(w http.ResponseWriter, q *request, o *options) error {
	form, err := negotiate(q.Request)
	if err != nil {
		return err
	}
	id, err := s.Mirror.Store().ID()
	if err != nil {
		return err
	}
	at, after, warnings, err := s.listed(q, o, id)
	if err != nil {
		return err
	}
	o.readIn(q.resource, at.Era)
	release, err := s.acquire(q.Request)
	if err != nil {
		return err
	}
	defer release()
	out := newListWriter(s, w, q, form)
	out.warnings, out.version = warnings, at.Version
	next, err := s.page(q, o, at, after, out.add)
	if err != nil && out.begun {
		level := zap.InfoLevel
		if errors.Is(err, errGone) || q.Context().Err() != nil {
			level = zap.DebugLevel
		}
		s.Log.Log(level, "list broken off", zap.String("resource", q.resource.ID.Name), zap.Error(err))
		panic(http.ErrAbortHandler) // the client must not take what it has for the whole list
	}
	switch {
	case errors.Is(err, store.ErrTrimmed) && o.Continue != "":
		return q.pageExpired(after)
	case err != nil:
		return s.failed(q, err)
	}
	if next != (store.Name{}) {
		out.next = token{List: q.listName(), Copy: id, At: at, Namespace: next.Namespace, Name: next.Name}.String()
	}
	return out.end()
}

// eventFields are the fields by which clients list the Events about an object.
var eventFields = map[schema.GroupResource]string{
	{Resource: "events"}: "involvedObject.", {Group: "events.k8s.io", Resource: "events"}: "regarding.",
}

// ofOneObject reports whether a list is of the Events about one object.
func (o *options) ofOneObject(t *target) bool {
	prefix := eventFields[t.groupResource()]
	if prefix == "" || o.selector == nil || o.Watch {
		return false
	}
	_, name := o.selector.RequiresExactMatch(prefix + "name")
	_, uid := o.selector.RequiresExactMatch(prefix + "uid")
	return name || uid
}

// noEvents answers a list of the Events about one object with an empty list and a warning, if Events are not served.
// kubectl describe sends it, and shows nothing after an error. done is false if Events are served, or may be.
func (s *Server) noEvents(w http.ResponseWriter, q *request, o *options, t *target) (done bool, err error) {
	id := store.Resource{Cluster: q.cluster, Name: t.groupResource().String()}
	r, why := s.Mirror.Resource(id), "the bus has none"
	b, known := s.Builtin(id.Name)
	switch {
	case s.Ready() != nil || !known || b.APIVersion != t.String():
		return false, nil
	case r == nil:
		r = &mirror.Resource{ID: id}
	case q.past != "":
		return false, nil
	case r.Closed:
		why = "the bridge does not publish them any more"
	case r.Unpublished() != "":
		why = fmt.Sprintf("the bridge does not publish their %s events", r.Unpublished())
	case t.namespace != "" && r.Served.Era != 0 && !r.Covers(t.namespace, r.Served.Era):
		why = "the bridge does not publish those of the namespace " + t.namespace
	default:
		return false, nil
	}
	q.resource = r
	q.kind = &kind{Kind: mirror.Kind{APIVersion: b.APIVersion, Kind: b.Kind, Namespaced: true}, resource: r}
	form, err := negotiate(q.Request)
	if err != nil {
		return true, err
	}
	if err := o.find(q.kind); err != nil {
		return true, err
	}
	out := newListWriter(s, w, q, form)
	out.warnings = []string{fmt.Sprintf("%s are not served, so there are none in this list: %s", id.Name, why)}
	return true, out.end()
}

// acquire waits until an answer that takes much memory may be sent. Call release after it.
func (s *Server) acquire(r *http.Request) (release func(), err error) {
	if s.AcquireList == nil {
		return func() {}, nil
	}
	release, ok := s.AcquireList(r.Context(), r.RemoteAddr)
	if !ok {
		return nil, apierrors.NewTooManyRequests("too many lists and other large answers are being sent: try again later", 5)
	}
	return release, nil
}

// page calls fn for the objects of a page, and returns the last name if there are more. It is an error if the client is
// gone, after the time for a list, and if it is not known whether an object is selected: clients take what is missing
// for deleted.
func (s *Server) page(q *request, o *options, at store.Position, after store.Name, fn func(*store.Object) error) (next store.Name, err error) {
	began := time.Now()
	n, last, more := int64(0), store.Name{}, false
	failed := s.Mirror.Store().List(store.View{Resource: q.resource.ID, At: at}, o.namespace, after, func(x *store.Object) bool {
		if err = s.checkTime(q.Context(), began); err != nil { // a selector may select nothing for long
			return false
		}
		var is selection
		switch is, err = o.selects(x); {
		case err != nil || is == notSelected:
			return err == nil
		case is == undecided:
			err = s.failed(q, undecidedError(mirror.ErrIncomplete, x))
			return false
		}
		if o.Limit > 0 && n == o.Limit {
			more = true
			return false
		}
		n, last = n+1, x.Name
		err = fn(x)
		return err == nil
	})
	if failed != nil {
		return next, failed
	}
	if err == nil && more {
		next = last
	}
	return next, err
}

// checkTime returns an error if the client is gone, or a list takes too long: the store keeps old files meanwhile.
func (s *Server) checkTime(ctx context.Context, began time.Time) error {
	if time.Since(began) > s.limits.list {
		return s.tooLong()
	}
	return ctx.Err()
}

// tooLong is the error after the time for a list, and for the changes that a watch is behind.
func (s *Server) tooLong() error {
	return apierrors.NewTimeoutError(fmt.Sprintf("the answer took longer than %s: request pages (limit) or one namespace", s.limits.list), 0)
}

func (s *Server) get(w http.ResponseWriter, q *request) error {
	form, err := negotiate(q.Request)
	if err != nil {
		return err
	}
	version, err := parseVersion(q.URL.Query().Get("resourceVersion"))
	if err != nil {
		return err
	}
	at, warnings, err := s.notOlder(q, version)
	if err != nil {
		return err
	}
	name := store.Name{Namespace: q.namespace, Name: event.BoundName(q.name)}
	read := func() (*store.Object, error) {
		return s.Mirror.Store().Get(store.View{Resource: q.resource.ID, At: at}, name)
	}
	x, err := read()
	if err != nil {
		return err
	}
	if x != nil && len(x.Body) > smallBody {
		x = nil // its body is not kept while the request waits
		release, err := s.acquire(q.Request)
		if err != nil {
			return err
		}
		defer release()
		if x, err = read(); err != nil {
			return err
		}
	}
	if x == nil || q.kind.Namespaced != (q.namespace != "") {
		warn(w, warnings)
		return apierrors.NewNotFound(q.kind.groupResource(), q.name)
	}
	if x.Extent != store.Whole {
		warnings = append(warnings, "the object is not whole: the bus has only a part of it")
	}
	warn(w, warnings)
	w.Header().Set("Content-Type", "application/json")
	body := x.Body
	switch form {
	case asTable:
		s.encode(w, q.table([]*store.Object{x}, at.Version, "", true, s.now()))
		return nil
	case asMetadata:
		if body, err = metadataOnly(body); err != nil {
			return err
		}
	}
	s.write(w, body)
	return nil
}
