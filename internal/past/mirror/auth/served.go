package auth

import (
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// readOnly is why a right in the cluster is none here.
const readOnly = "bridge serve is a read-only copy of the cluster: it answers get, list and watch, and reviews of a user's own rights"

var readVerbs = []string{"get", "list", "watch"}

// SelfReviews are the resources that clients create to ask about themselves, by group.
var SelfReviews = map[string][]string{
	"authentication.k8s.io": {"selfsubjectreviews"},
	"authorization.k8s.io":  {"selfsubjectaccessreviews", "selfsubjectrulesreviews"},
}

// NotServed says why bridge serve does not answer such requests, whatever right the user has; "": it does.
func NotServed(a *Attributes) string {
	verbs := readVerbs
	switch {
	case a.Path != "":
		verbs = []string{"get"}
	case slices.Contains(SelfReviews[a.Group], a.Resource):
		verbs = []string{"create"}
	}
	switch {
	case !slices.Contains(verbs, a.Verb):
		return readOnly
	case a.Subresource != "":
		return "bridge serve has no subresources: they are not on the bus"
	}
	return ""
}

// Served returns the part of rules that [NotServed] does not take away. Its lists are not nil, as in answers of the API
// server.
func Served(all authorizationv1.SubjectRulesReviewStatus) authorizationv1.SubjectRulesReviewStatus {
	st := authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{}, Incomplete: all.Incomplete, EvaluationError: all.EvaluationError,
	}
	for _, r := range all.ResourceRules {
		if has(r.Verbs, "create") && len(r.ResourceNames) == 0 { // a review has no name
			st.ResourceRules = append(st.ResourceRules, reviewRules(&r)...)
		}
		r.Verbs = those(r.Verbs, readVerbs)
		r.Resources = slices.DeleteFunc(slices.Clone(r.Resources), func(name string) bool { return strings.Contains(name, "/") })
		if len(r.Verbs) > 0 && len(r.Resources) > 0 {
			st.ResourceRules = append(st.ResourceRules, r)
		}
	}
	for _, r := range all.NonResourceRules {
		if r.Verbs = those(r.Verbs, []string{"get"}); len(r.Verbs) > 0 {
			st.NonResourceRules = append(st.NonResourceRules, r)
		}
	}
	return st
}

// reviewRules returns the part of a rule that lets a user create reviews.
func reviewRules(r *authorizationv1.ResourceRule) (rules []authorizationv1.ResourceRule) {
	for _, group := range []string{"authentication.k8s.io", "authorization.k8s.io"} {
		if resources := those(r.Resources, SelfReviews[group]); has(r.APIGroups, group) && len(resources) > 0 {
			rules = append(rules, authorizationv1.ResourceRule{Verbs: []string{"create"}, APIGroups: []string{group}, Resources: resources})
		}
	}
	return rules
}

// those returns the values that a list has, of which "*" is all.
func those(list, values []string) []string {
	return slices.DeleteFunc(slices.Clone(values), func(value string) bool { return !has(list, value) })
}

// Everybody answers for a server that does not ask who its clients are: each of them may read everything.
type Everybody struct{}

// User returns the user that the API server gives to requests without credentials.
func (Everybody) User(*http.Request) (*User, error) {
	return &User{UserInfo: authenticationv1.UserInfo{Username: anonymous, Groups: []string{unauthenticated}}}, nil
}

// Review allows everything.
func (Everybody) Review(*http.Request, *Attributes) (authorizationv1.SubjectAccessReviewStatus, error) {
	return authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "bridge serve runs without --authorization: everybody may read everything"}, nil
}

// Rules allows everything.
func (Everybody) Rules(*http.Request, string, string) (st authorizationv1.SubjectRulesReviewStatus, err error) {
	all := []string{"*"}
	st.ResourceRules = []authorizationv1.ResourceRule{{Verbs: all, APIGroups: all, Resources: all}}
	st.NonResourceRules = []authorizationv1.NonResourceRule{{Verbs: all, NonResourceURLs: all}}
	return st, nil
}
