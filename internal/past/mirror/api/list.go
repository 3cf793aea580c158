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
		var err error
		o.selector, err = o.selector.Transform(func(field, value string) (string, string, error) {
			if field == "metadata.name" {
				value = event.BoundName(value)
			}
			return field, value, nil
		})
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if o.ResourceVersion != "" {
		var err error
		if o.version, err = strconv.ParseUint(o.ResourceVersion, 10, 64); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("resourceVersion: Invalid value: %q: it is not a number", o.ResourceVersion))
		}
	}
	if o.Continue != "" && o.ResourceVersion != "" && o.ResourceVersion != "0" {
		return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	return o, nil
}

// token is what a continue token holds: the list that it is of, its position in one copy, and the last object of the page.
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

// listName says what a list is of. A token of another list is refused: positions of two resources have nothing in common.
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

// pageExpired is the API server's answer to a continue token whose view is not retained any more. It has a token for the rest of the newest state.
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
	prefix := eventFields[schema.GroupResource{Group: t.Group, Resource: t.resource}]
	if prefix == "" || o.selector == nil || o.Watch {
		return false
	}
	_, name := o.selector.RequiresExactMatch(prefix + "name")
	_, uid := o.selector.RequiresExactMatch(prefix + "uid")
	return name || uid
}

// noEvents answers a list of the Events about one object that is not served, because the bus has no Events, or not those that say which exist. kubectl describe
// sends it, and would show nothing of an object after an error. The list is empty, with a warning. done is false if Events are served, or may be.
func (s *Server) noEvents(w http.ResponseWriter, q *request, o *options, t *target) (done bool, err error) {
	id := store.Resource{Cluster: q.cluster, Name: t.resource}
	if t.Group != "" {
		id.Name += "." + t.Group
	}
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

// acquire waits until a list, or another answer that takes much memory, may be sent. Call release after it was sent.
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

// page calls fn for the objects of a page. It returns the name of the last one if there are more. It ends with an error if the client is gone, after the
// time for a list, and at an object of which it is not known whether it is selected: clients would take an object that is missing for deleted.
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

// checkTime returns an error if the client is gone, or has taken longer than it may for a list that began at a time: the store keeps old files as long.
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
	version := uint64(0)
	if text := q.URL.Query().Get("resourceVersion"); text != "" {
		if version, err = strconv.ParseUint(text, 10, 64); err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("resourceVersion: Invalid value: %q: it is not a number", text))
		}
	}
	at, warnings, err := s.notOlder(q, version)
	if err != nil {
		return err
	}
	view, name := store.View{Resource: q.resource.ID, At: at}, store.Name{Namespace: q.namespace, Name: event.BoundName(q.name)}
	x, err := s.Mirror.Store().Get(view, name)
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
		if x, err = s.Mirror.Store().Get(view, name); err != nil {
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
	switch form {
	case asTable:
		s.encode(w, q.table([]*store.Object{x}, at.Version, "", true, s.now()))
	case asMetadata:
		body, err := metadataOnly(x.Body)
		if err != nil {
			return err
		}
		s.write(w, body)
	default:
		s.write(w, x.Body)
	}
	return nil
}
