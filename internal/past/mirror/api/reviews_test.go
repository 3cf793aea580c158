package api

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/internal/past/mirror/auth"
)

func (b *bus) typed(prefix, contentType string) kubernetes.Interface {
	b.t.Helper()
	k, err := kubernetes.NewForConfig(&rest.Config{Host: b.url + prefix, WarningHandler: rest.NoWarnings{}, ContentConfig: rest.ContentConfig{
		ContentType: contentType, AcceptContentTypes: "application/json",
	}})
	if err != nil {
		b.t.Fatal(err)
	}
	return k
}

// self answers what the tests want.
type self struct {
	asked   auth.Attributes
	cluster string
	err     error
}

func (s *self) User(*http.Request) (*auth.User, error) {
	return &auth.User{UserInfo: authenticationv1.UserInfo{Username: "ann", UID: "u", Groups: []string{"shoppers"}, Extra: map[string]authenticationv1.ExtraValue{"pod": {"a"}}}}, s.err
}

func (s *self) Review(_ *http.Request, a *auth.Attributes) (st authorizationv1.SubjectAccessReviewStatus, err error) {
	s.asked = *a
	st.Allowed, st.Reason, st.EvaluationError = true, "why", "what"
	return st, s.err
}

func (s *self) Rules(_ *http.Request, cluster, namespace string) (st authorizationv1.SubjectRulesReviewStatus, err error) {
	s.cluster = cluster
	st.Incomplete, st.EvaluationError = true, namespace
	st.ResourceRules = []authorizationv1.ResourceRule{{Verbs: []string{"get", "delete"}, APIGroups: []string{""}, Resources: []string{"pods"}}}
	return st, s.err
}

// TestEverybodyReviews: without authorization everybody may read everything, and reviews say so; nobody may write.
func TestEverybodyReviews(t *testing.T) {
	b := threePods(t)
	b.readUntil(start.Add(time.Hour))
	for _, prefix := range []string{"", "/at/50", "/clusters/prod", "/clusters/prod/at/2026-03-14T10:00:00Z"} {
		k := b.typed(prefix, "application/json")
		for verb, allowed := range map[string]bool{"get": true, "list": true, "watch": true, "create": false, "delete": false, "*": false, "": false} {
			r, err := k.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: "pods", Namespace: "shop"}},
			}, metav1.CreateOptions{})
			if err != nil || r.Status.Allowed != allowed || r.Status.Denied == allowed || !allowed && !strings.Contains(r.Status.Reason, "read-only copy") || r.Status.Reason == "" {
				t.Errorf("%s: %s: %+v (%v)", prefix, verb, r.Status, err)
			}
		}
		rules, err := k.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "shop"},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		all := []string{"*"}
		want := authorizationv1.SubjectRulesReviewStatus{
			ResourceRules: []authorizationv1.ResourceRule{
				{Verbs: []string{"create"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"selfsubjectreviews"}},
				{Verbs: []string{"create"}, APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews"}},
				{Verbs: []string{"get", "list", "watch"}, APIGroups: all, Resources: all},
			},
			NonResourceRules: []authorizationv1.NonResourceRule{{Verbs: []string{"get"}, NonResourceURLs: all}},
		}
		if diff := cmp.Diff(want, rules.Status); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", prefix, diff)
		}
		who, err := k.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil || who.Status.UserInfo.Username != "system:anonymous" || who.CreationTimestamp.IsZero() {
			t.Errorf("%s: %+v (%v)", prefix, who, err)
		}
	}
}

// TestReviews: reviews are sent as JSON, YAML or protobuf. They are authorized as creations, and ask about the cluster of their path.
func TestReviews(t *testing.T) {
	b := threePods(t)
	x := &self{}
	b.server.Self = x
	var checked auth.Attributes
	b.server.Check = func(_ *http.Request, a *auth.Attributes) error {
		checked = *a
		return nil
	}
	for _, kind := range []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"} {
		k := b.typed("/clusters/test", kind)
		spec := authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "list", Group: "apps", Version: "v1", Resource: "deployments", Namespace: "shop", Name: "web",
			FieldSelector: &authorizationv1.FieldSelectorAttributes{RawSelector: "a=b"},
		}}
		r, err := k.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		if err != nil || r.Status != (authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "why", EvaluationError: "what"}) || r.Spec.ResourceAttributes.FieldSelector != nil {
			t.Errorf("%s: %+v (%v)", kind, r, err)
		}
		if diff := cmp.Diff(auth.Attributes{Cluster: "test", Verb: "list", Group: "apps", Version: "v1", Resource: "deployments", Namespace: "shop", Name: "web"}, x.asked); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", kind, diff)
		}
		if diff := cmp.Diff(auth.Attributes{Cluster: "test", Verb: "create", Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}, checked); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", kind, diff)
		}
		spec = authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/x"}}
		if r, err := k.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{Spec: spec}, metav1.CreateOptions{}); err != nil || !r.Status.Allowed || x.asked.Path != "/x" {
			t.Errorf("%s: %+v (%v)", kind, r, err)
		}
		x.asked = auth.Attributes{}
		spec.NonResourceAttributes.Verb = "post"
		if r, err := k.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{Spec: spec}, metav1.CreateOptions{}); err != nil || r.Status.Allowed || x.asked.Path != "" {
			t.Errorf("%s: %+v (%v)", kind, r, err)
		}
		rules, err := k.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "shop"}}, metav1.CreateOptions{})
		if err != nil || !rules.Status.Incomplete || rules.Status.EvaluationError != "shop" || len(rules.Status.ResourceRules[0].Verbs) != 1 || x.cluster != "test" {
			t.Errorf("%s: %+v (%v)", kind, rules, err)
		}
		who, err := k.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		want := authenticationv1.UserInfo{Username: "ann", UID: "u", Groups: []string{"shoppers"}, Extra: map[string]authenticationv1.ExtraValue{"pod": {"a"}}}
		if diff := cmp.Diff(want, who.Status.UserInfo); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", kind, err, diff)
		}
	}
	x.err = apierrors.NewServiceUnavailable("not known now")
	for path, body := range map[string]string{
		"authorization.k8s.io/v1/selfsubjectaccessreviews": `{"spec":{"nonResourceAttributes":{"verb":"get","path":"/"}}}`,
		"authorization.k8s.io/v1/selfsubjectrulesreviews":  `{"spec":{"namespace":"shop"}}`,
		"authentication.k8s.io/v1/selfsubjectreviews":      `{}`,
	} {
		if status, _, text := b.post(t, "/apis/"+path, "", body); status != 503 || !strings.Contains(text, "not known now") {
			t.Errorf("%s without an answer: %d %s", path, status, text)
		}
		b.server.Check = func(*http.Request, *auth.Attributes) error {
			return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
		}
		if status, _, text := b.post(t, "/apis/"+path, "", body); status != 403 {
			t.Errorf("%s without the right: %d %s", path, status, text)
		}
		b.server.Check = nil
	}
}

// post sends a body; contentType "": application/json.
func (b *bus) post(t *testing.T, path, contentType, body string) (code int, header http.Header, text string) {
	t.Helper()
	if contentType == "" {
		contentType = "application/json"
	}
	a, err := http.Post(b.url+path, contentType, strings.NewReader(body)) //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	all, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, a.Header, string(all)
}

// TestWrongReviews: a body that is no review is an error in the API server's words, and other writes stay refused.
func TestWrongReviews(t *testing.T) {
	b := threePods(t)
	access, rules := "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
	good := `{"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`
	for _, c := range []struct {
		path, contentType, body string
		code                    int
		want                    string
	}{
		{access, "", good, 201, `"allowed":true`},
		{access, "application/yaml", "spec: {resourceAttributes: {verb: get, resource: pods}}", 201, `"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1"`},
		{access, "", ``, 400, "must be of type SelfSubjectAccessReview"},
		{access, "", `{`, 400, "must be of type SelfSubjectAccessReview"},
		{access, "", `{"spec":{"resourceAttributes":7}}`, 400, "cannot be handled as a SelfSubjectAccessReview"},
		{access, "", `{"kind":"Pod","apiVersion":"v1"}`, 400, `Pod in version \"v1\" cannot be handled as a SelfSubjectAccessReview`},
		{access, "", `{"kind":"SelfSubjectRulesReview","apiVersion":"authorization.k8s.io/v1"}`, 400, "cannot be handled as a SelfSubjectAccessReview"},
		{access, "", `{"kind":"None","apiVersion":"none/v1"}`, 400, "cannot be handled as a SelfSubjectAccessReview"},
		{access, "", `{}`, 422, "exactly one of nonResourceAttributes or resourceAttributes must be specified"},
		{access, "", `{"spec":{"resourceAttributes":{},"nonResourceAttributes":{}}}`, 422, "cannot be specified in combination with resourceAttributes"},
		{access, "", `{"metadata":{"name":"x"},"spec":{"resourceAttributes":{}}}`, 422, "must be empty"},
		{access, "", `{"metadata":{"managedFields":[{"manager":"x"}]},"spec":{"resourceAttributes":{}}}`, 201, ""},
		{access, "text/plain", good, 415, "accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf"},
		{access, "/", good, 415, ""},
		{access, "", fmt.Sprintf(`{"spec":{"resourceAttributes":{"verb":%q}}}`, strings.Repeat("x", 64<<10)), 413, "limit is 65536"},
		{access + "?dryRun=None", "", good, 422, "dryRun"},
		{access + "?dryRun=All&fieldManager=x", "", good, 201, ""},
		{access + "?fieldValidation=Strict", "", `{"spec":{"resourceAttributes":{"verb":"get","none":1}}}`, 400, `unknown field \"spec.resourceAttributes.none\"`},
		{access + "?fieldValidation=None", "", good, 422, "fieldValidation"},
		{rules, "", `{}`, 400, "no namespace on request"},
		{"/at/yesterday" + access, "", good, 400, "/at/yesterday"},
		{"/at/2026-03-14T11:00:01Z" + access, "", good, 504, "later than now"},
		{access + "/x", "", good, 405, "it can only be read"},
		{"/apis/authorization.k8s.io/v1/namespaces/shop/selfsubjectaccessreviews", "", good, 405, "it can only be read"},
		{"/apis/authorization.k8s.io/v1/subjectaccessreviews", "", good, 405, "it can only be read"},
		{"/apis/authorization.k8s.io/v1beta1/selfsubjectaccessreviews", "", good, 405, "it can only be read"},
		{"/api/v1/namespaces/shop/pods", "", `{}`, 405, "it can only be read"},
		{"/", "", `{}`, 405, "it can only be read"},
	} {
		code, _, text := b.post(t, c.path, c.contentType, c.body)
		if code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%s %.80s: %d %s, want %d %s", c.path, c.body, code, text, c.code, c.want)
		}
	}
	unknown := `{"spec":{"resourceAttributes":{"verb":"get","none":1}}}`
	if code, header, text := b.post(t, access, "", unknown); code != 201 || header.Get("Warning") != `299 - "unknown field \"spec.resourceAttributes.none\""` {
		t.Errorf("an unknown field: %d %v %s", code, header, text)
	}
	many := strings.Builder{}
	for i := range 50 {
		fmt.Fprintf(&many, `,"none%d":1`, i)
	}
	if code, header, text := b.post(t, access, "", fmt.Sprintf(`{"spec":{"resourceAttributes":{"verb":"get"%s}}}`, many.String())); code != 201 || len(header.Values("Warning")) != maxWarnings+1 {
		t.Errorf("many unknown fields: %d %v %s", code, header, text)
	}
	if code, header, text := b.post(t, access+"?fieldValidation=Ignore", "", unknown); code != 201 || header.Get("Warning") != "" {
		t.Errorf("an unknown field that is ignored: %d %v %s", code, header, text)
	}
	if code, _, text := b.get(t, access, ""); code != 405 {
		t.Errorf("a list of reviews: %d %s", code, text)
	}
	for name, want := range map[string]int{"Accept: application/yaml": 406, "Impersonate-User: eve": 403} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+access, strings.NewReader(good))
		if err != nil {
			t.Fatal(err)
		}
		key, value, _ := strings.Cut(name, ": ")
		r.Header.Set(key, value)
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
		if a.StatusCode != want {
			t.Errorf("%s: %d", name, a.StatusCode)
		}
	}
}
