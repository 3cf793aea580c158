package api

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	fields "k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubebridge/kubebridge/internal/past/mirror"
	"github.com/kubebridge/kubebridge/internal/past/mirror/auth"
)

const maxBody = 64 << 10

// review is a kind whose objects clients create to ask about themselves. They are answered, and not kept.
type review struct {
	schema.GroupVersion
	kind   string
	object func() runtime.Object // returns an empty one
	// fill answers an object that a client has sent.
	fill func(s *Server, r *http.Request, v view, o runtime.Object) error
}

var reviews = []review{
	{authenticationv1.SchemeGroupVersion, "SelfSubjectReview", func() runtime.Object { return &authenticationv1.SelfSubjectReview{} }, (*Server).whoAmI},
	{authorizationv1.SchemeGroupVersion, "SelfSubjectAccessReview", func() runtime.Object { return &authorizationv1.SelfSubjectAccessReview{} }, (*Server).mayI},
	{authorizationv1.SchemeGroupVersion, "SelfSubjectRulesReview", func() runtime.Object { return &authorizationv1.SelfSubjectRulesReview{} }, (*Server).whatMayI},
}

func (x *review) plural() string { return strings.ToLower(x.kind) + "s" }

func (x *review) describe() *kind {
	return &kind{
		Kind: mirror.Kind{APIVersion: x.String(), Kind: x.kind}, gv: x.GroupVersion, plural: x.plural(), singular: strings.ToLower(x.kind),
		verbs: metav1.Verbs{"create"}, review: x,
	}
}

// reviewOf returns the review that a path names; nil: it names another resource.
func reviewOf(t *target) *review {
	i := slices.IndexFunc(reviews, func(x review) bool { return x.GroupVersion == t.GroupVersion && x.plural() == t.resource })
	if i < 0 || t.namespace != "" || t.name != "" {
		return nil
	}
	return &reviews[i]
}

// create answers a POST: a review, or that nothing can be written.
func (s *Server) create(w *countingWriter, r *http.Request) error {
	v, path, err := s.parseView(r.URL.Path)
	if err != nil {
		return err
	}
	t, _ := targetOf(strings.Split(strings.Trim(path, "/"), "/"))
	x := reviewOf(&t)
	if x == nil {
		return notAllowed(r.Method)
	}
	w.verb = "create"
	if err := impersonates(r); err != nil {
		return err
	}
	a := auth.Attributes{Cluster: v.cluster, Verb: "create", Group: t.Group, Version: t.Version, Resource: t.resource}
	if err := s.check(r, &a); err != nil {
		return err
	}
	if f, err := negotiate(r); err != nil || f != asObjects {
		return notAcceptable("create")
	}
	o, warnings, err := x.read(w, r)
	if err != nil {
		return err
	}
	if err := x.fill(s, r, v, o); err != nil {
		return err
	}
	o.GetObjectKind().SetGroupVersionKind(x.WithKind(x.kind))
	warn(w, warnings)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	s.encode(w, o)
	return nil
}

// read reads the body of a request as the API server does: as JSON, YAML or protobuf.
func (x *review) read(w http.ResponseWriter, r *http.Request) (o runtime.Object, warnings []string, err error) {
	known := scheme.Codecs.SupportedMediaTypes()
	kind, _, err := mime.ParseMediaType(cmp.Or(r.Header.Get("Content-Type"), runtime.ContentTypeJSON))
	info, ok := runtime.SerializerInfoForMediaType(known, kind)
	if err != nil || !ok {
		var names []string
		for _, m := range known {
			names = append(names, m.MediaType)
		}
		return nil, nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "create", schema.GroupResource{}, "",
			"the body of the request was in an unknown format - accepted media types include: "+strings.Join(names, ", "), 0, true)
	}
	body, err := readBody(w, r)
	if err != nil {
		return nil, nil, err
	}
	query := r.URL.Query()
	options := metav1.CreateOptions{
		DryRun: query["dryRun"], FieldManager: query.Get("fieldManager"), FieldValidation: query.Get("fieldValidation"),
	}
	if errs := validation.ValidateCreateOptions(&options); len(errs) > 0 {
		return nil, nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "CreateOptions"}, "", errs)
	}
	decoder := info.StrictSerializer
	if options.FieldValidation == metav1.FieldValidationIgnore {
		decoder = info.Serializer
	}
	want := x.WithKind(x.kind)
	o, got, err := decoder.Decode(body, &want, x.object())
	if strict, ok := runtime.AsStrictDecodingError(err); ok && o != nil && options.FieldValidation != metav1.FieldValidationStrict {
		for _, e := range strict.Errors() {
			warnings = append(warnings, e.Error())
		}
		err = nil
	}
	if err == nil && *got != want {
		err = errors.New("it is of another type")
	}
	switch {
	case err != nil && got != nil && got.Kind != "":
		why := fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", got.Kind, got.Version, x.kind, err)
		return nil, nil, apierrors.NewBadRequest(why)
	case err != nil:
		why := fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", x.kind, err, summary(body))
		return nil, nil, apierrors.NewBadRequest(why)
	}
	return o, warnings, nil
}

// summary returns the beginning of a body, as text if it can be JSON.
func summary(body []byte) string {
	const most = 30
	rest := ""
	if len(body) > most {
		body, rest = body[:most], " ..."
	}
	switch {
	case len(body) == 0:
		return "<empty>"
	case body[0] == '{':
		return string(body) + rest
	}
	return hex.EncodeToString(body) + rest
}

// readBody reads a body. The server limits the time for it.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if errors.As(err, new(*http.MaxBytesError)) {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("the body did not arrive: " + err.Error())
	}
	return body, nil
}

func (s *Server) whoAmI(r *http.Request, _ view, o runtime.Object) error {
	u, err := s.Self.User(r)
	if err != nil {
		return err
	}
	answer := o.(*authenticationv1.SelfSubjectReview)
	*answer = authenticationv1.SelfSubjectReview{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(s.now())}}
	answer.Status.UserInfo = u.UserInfo
	return nil
}

// mayI answers whether a request would be answered: selectors do not count, because they do not count for requests.
func (s *Server) mayI(r *http.Request, v view, o runtime.Object) error {
	review := o.(*authorizationv1.SelfSubjectAccessReview)
	resource, path := review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes
	if err := invalid(review); err != nil {
		return err
	}
	a := auth.Attributes{Cluster: v.cluster}
	if resource != nil {
		resource.FieldSelector, resource.LabelSelector = nil, nil
		a.Verb, a.Group, a.Version, a.Resource = resource.Verb, resource.Group, resource.Version, resource.Resource
		a.Subresource, a.Namespace, a.Name = resource.Subresource, resource.Namespace, resource.Name
	} else {
		a.Verb, a.Path = path.Verb, path.Path
	}
	review.Status = authorizationv1.SubjectAccessReviewStatus{}
	if why := auth.NotServed(&a); why != "" {
		review.Status.Denied, review.Status.Reason = true, why
		return nil
	}
	var err error
	review.Status, err = s.Self.Review(r, &a)
	return err
}

// invalid says what is wrong with a review, as the API server does.
func invalid(review *authorizationv1.SelfSubjectAccessReview) error {
	resource, path := review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes
	var errs fields.ErrorList
	add := func(at string, value any, text string) {
		errs = append(errs, fields.Invalid(fields.NewPath(at), value, text))
	}
	switch {
	case resource != nil && path != nil:
		add("spec", path, "cannot be specified in combination with resourceAttributes")
	case resource == nil && path == nil:
		add("spec", path, "exactly one of nonResourceAttributes or resourceAttributes must be specified")
	case path != nil && path.Path == "":
		add("spec.nonResourceAttributes.path", "", "bridge serve needs a path")
	}
	meta := *review.ObjectMeta.DeepCopy()
	meta.ManagedFields = nil
	if !equality.Semantic.DeepEqual(meta, metav1.ObjectMeta{}) {
		add("metadata", review.ObjectMeta, "must be empty")
	}
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: authorizationv1.GroupName}, "", errs)
}

func (s *Server) whatMayI(r *http.Request, v view, o runtime.Object) error {
	review := o.(*authorizationv1.SelfSubjectRulesReview)
	namespace := review.Spec.Namespace
	if namespace == "" {
		return apierrors.NewBadRequest("no namespace on request")
	}
	rules, err := s.Self.Rules(r, v.cluster, namespace)
	if err != nil {
		return err
	}
	*review = authorizationv1.SelfSubjectRulesReview{Status: auth.Served(rules)}
	return nil
}
