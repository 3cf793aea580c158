package auth

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func rule(verbs, groups, resources string, names ...string) rbacv1.PolicyRule {
	list := func(s string) []string { return strings.Split(s, ",") }
	return rbacv1.PolicyRule{Verbs: list(verbs), APIGroups: list(groups), Resources: list(resources), ResourceNames: names}
}

func user(name string) rbacv1.Subject  { return rbacv1.Subject{Kind: "User", Name: name} }
func group(name string) rbacv1.Subject { return rbacv1.Subject{Kind: "Group", Name: name} }
func account(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: name}
}

// objects are the RBAC objects of a cluster.
type objects struct {
	Roles               []rbacv1.Role
	ClusterRoles        []rbacv1.ClusterRole
	RoleBindings        []rbacv1.RoleBinding
	ClusterRoleBindings []rbacv1.ClusterRoleBinding
}

// policy sets the bindings before the roles: the order does not count.
func (o *objects) policy() *Policy {
	p := &Policy{}
	for _, b := range o.RoleBindings {
		p.SetBinding(b.Namespace, b.Name, b.RoleRef, b.Subjects)
	}
	for _, b := range o.ClusterRoleBindings {
		p.SetBinding("", b.Name, b.RoleRef, b.Subjects)
	}
	for _, r := range o.Roles {
		p.SetRole(r.Namespace, r.Name, r.Rules)
	}
	for _, r := range o.ClusterRoles {
		p.SetRole("", r.Name, r.Rules)
	}
	return p
}

// TestPolicy: the decisions are those of the API server for the same objects (test/e2e/history compares many more).
func TestPolicy(t *testing.T) {
	o := objects{
		ClusterRoles: []rbacv1.ClusterRole{
			{ObjectMeta: meta("", "reader"), Rules: []rbacv1.PolicyRule{rule("get,list,watch", "", "pods,configmaps")}},
			{ObjectMeta: meta("", "everything"), Rules: []rbacv1.PolicyRule{rule("*", "*", "*"), {Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}}},
			{ObjectMeta: meta("", "discovery"), Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/api", "/apis/*", "/version"}}}},
			{ObjectMeta: meta("", "one"), Rules: []rbacv1.PolicyRule{rule("get,list", "", "secrets", "token")}},
			{ObjectMeta: meta("", "logs"), Rules: []rbacv1.PolicyRule{rule("get", "", "pods/log,*/status")}},
			{ObjectMeta: meta("", "apps"), Rules: []rbacv1.PolicyRule{rule("list", "apps", "*")}},
		},
		Roles: []rbacv1.Role{
			{ObjectMeta: meta("shop", "reader"), Rules: []rbacv1.PolicyRule{rule("get", "", "services"), {Verbs: []string{"get"}, NonResourceURLs: []string{"*"}}}},
			{ObjectMeta: meta("shop", "itself"), Rules: []rbacv1.PolicyRule{rule("get", "", "namespaces")}},
		},
		RoleBindings: []rbacv1.RoleBinding{
			{ObjectMeta: meta("shop", "a"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"}, Subjects: []rbacv1.Subject{user("ann"), group("shoppers"), account("", "bot"), account("ci", "bot")}},
			{ObjectMeta: meta("shop", "b"), RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "reader"}, Subjects: []rbacv1.Subject{user("bob")}},
			{ObjectMeta: meta("shop", "c"), RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "itself"}, Subjects: []rbacv1.Subject{user("bob")}},
			{ObjectMeta: meta("infra", "d"), RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "reader"}, Subjects: []rbacv1.Subject{user("bob")}},
			{ObjectMeta: meta("shop", "e"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "everything"}, Subjects: []rbacv1.Subject{user("boss")}},
		},
		ClusterRoleBindings: []rbacv1.ClusterRoleBinding{
			{ObjectMeta: meta("", "f"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "everything"}, Subjects: []rbacv1.Subject{group("admins")}},
			{ObjectMeta: meta("", "g"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "discovery"}, Subjects: []rbacv1.Subject{group(authenticated)}},
			{ObjectMeta: meta("", "h"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "one"}, Subjects: []rbacv1.Subject{user("cat")}},
			{ObjectMeta: meta("", "i"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "logs"}, Subjects: []rbacv1.Subject{user("cat")}},
			{ObjectMeta: meta("", "j"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "apps"}, Subjects: []rbacv1.Subject{user("cat"), account("", "nobody")}},
			{ObjectMeta: meta("", "k"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "missing"}, Subjects: []rbacv1.Subject{user("dan")}},
			{ObjectMeta: meta("", "l"), RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "reader"}, Subjects: []rbacv1.Subject{user("dan")}},
		},
	}
	p := o.policy()
	list := func(namespace, group, resource string) Attributes {
		return Attributes{Verb: "list", Namespace: namespace, Group: group, Resource: resource}
	}
	get := func(namespace, resource, name string) Attributes {
		r, sub, _ := strings.Cut(resource, "/")
		return Attributes{Verb: "get", Namespace: namespace, Resource: r, Subresource: sub, Name: name}
	}
	path := func(p string) Attributes { return Attributes{Verb: "get", Path: p} }
	for _, c := range []struct {
		who  string // a user, and groups behind spaces
		a    Attributes
		want bool
	}{
		{"ann", list("shop", "", "pods"), true},
		{"ann", list("", "", "pods"), false},
		{"ann", list("infra", "", "pods"), false},
		{"ann", list("shop", "apps", "pods"), false},
		{"ann", list("shop", "", "secrets"), false},
		{"ann", get("shop", "pods/log", "x"), false},
		{"Ann", list("shop", "", "pods"), false},
		{"zoe shoppers", list("shop", "", "configmaps"), true},
		{"shoppers", list("shop", "", "configmaps"), false},
		{"system:serviceaccount:shop:bot", list("shop", "", "pods"), true},
		{"system:serviceaccount:ci:bot", list("shop", "", "pods"), true},
		{"system:serviceaccount:infra:bot", list("shop", "", "pods"), false},
		{"system:serviceaccount::nobody", list("shop", "apps", "deployments"), false},
		{"bob", get("shop", "services", "x"), true},
		{"bob", get("infra", "services", "x"), false}, // it has no such Role
		{"bob", path("/api"), false},                  // a Role allows no paths
		{"bob", get("shop", "namespaces", "shop"), true},
		{"boss", list("shop", "any", "thing"), true},
		{"boss", list("", "any", "thing"), false},
		{"boss", path("/metrics"), false},
		{"eve admins", list("", "any", "thing"), true},
		{"eve admins", path("/metrics"), true},
		{"eve " + masters, list("", "", "secrets"), true},
		{"eve", list("", "", "secrets"), false},
		{"eve " + authenticated, path("/api"), true},
		{"eve " + authenticated, path("/api/v1"), false},
		{"eve " + authenticated, path("/apis/apps/v1"), true},
		{"eve " + authenticated, path("/apis"), false},
		{"eve", path("/api"), false},
		{"cat", get("shop", "secrets", "token"), true},
		{"cat", get("shop", "secrets", "other"), false},
		{"cat", list("shop", "", "secrets"), false},
		{"cat", Attributes{Verb: "list", Namespace: "shop", Resource: "secrets", Name: "token"}, true}, // by a field selector
		{"cat", get("shop", "pods/log", "x"), true},
		{"cat", get("shop", "pods", "x"), false},
		{"cat", get("shop", "services/status", "x"), true},
		{"cat", get("shop", "log", "x"), false},
		{"cat", list("", "apps", "deployments"), true},
		{"cat", list("", "batch", "jobs"), false},
		{"dan", get("shop", "services", "x"), false},
		{"", get("shop", "services", "x"), false},
	} {
		parts := strings.Split(c.who, " ")
		got, reason := p.Allows(&User{UserInfo: authenticationv1.UserInfo{Username: parts[0], Groups: parts[1:]}}, &c.a)
		if got != c.want || got == (reason == "") && !strings.Contains(c.who, masters) {
			t.Errorf("%s, %+v: %v %q", c.who, c.a, got, reason)
		}
	}
}

// TestRules: the rules of a user are those of all bindings that count in the namespace, each binding once. Reasons have the API server's words.
func TestRules(t *testing.T) {
	paths := rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/api"}}
	o := objects{
		ClusterRoles: []rbacv1.ClusterRole{{ObjectMeta: meta("", "reader"), Rules: []rbacv1.PolicyRule{rule("get", "", "pods", "web"), paths}}},
		Roles:        []rbacv1.Role{{ObjectMeta: meta("shop", "writer"), Rules: []rbacv1.PolicyRule{rule("*", "*", "*")}}, {ObjectMeta: meta("infra", "lister"), Rules: []rbacv1.PolicyRule{rule("list", "", "nodes")}}},
		RoleBindings: []rbacv1.RoleBinding{
			{ObjectMeta: meta("shop", "a"), RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "writer"}, Subjects: []rbacv1.Subject{group("shoppers"), user("ann"), account("", "bot")}},
			{ObjectMeta: meta("infra", "b"), RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "lister"}, Subjects: []rbacv1.Subject{user("ann")}},
		},
		ClusterRoleBindings: []rbacv1.ClusterRoleBinding{{ObjectMeta: meta("", "c"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"}, Subjects: []rbacv1.Subject{group("shoppers")}}},
	}
	p := o.policy()
	ann := &User{UserInfo: authenticationv1.UserInfo{Username: "ann", Groups: []string{"shoppers", "others"}}}
	all := []string{"*"}
	want := authorizationv1.SubjectRulesReviewStatus{
		ResourceRules:    []authorizationv1.ResourceRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: []string{"web"}}, {Verbs: all, APIGroups: all, Resources: all}},
		NonResourceRules: []authorizationv1.NonResourceRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/api"}}},
	}
	if diff := cmp.Diff(want, p.Rules(ann, "shop")); diff != "" {
		t.Errorf("in shop (-want +got):\n%s", diff)
	}
	want.ResourceRules[1] = authorizationv1.ResourceRule{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"nodes"}}
	if diff := cmp.Diff(want, p.Rules(ann, "infra")); diff != "" {
		t.Errorf("in infra (-want +got):\n%s", diff)
	}
	if got := p.Rules(&User{UserInfo: authenticationv1.UserInfo{Username: "bob"}}, "shop"); got.ResourceRules != nil || got.NonResourceRules != nil {
		t.Errorf("of a stranger: %+v", got)
	}
	for who, want := range map[string]string{
		"ann":                            `RBAC: allowed by RoleBinding "a/shop" of Role "writer" to User "ann"`,
		"system:serviceaccount:shop:bot": `RBAC: allowed by RoleBinding "a/shop" of Role "writer" to ServiceAccount "bot/shop"`,
	} {
		if _, got := p.Allows(&User{UserInfo: authenticationv1.UserInfo{Username: who}}, &Attributes{Verb: "list", Namespace: "shop", Resource: "pods"}); got != want {
			t.Errorf("%s: %s, want %s", who, got, want)
		}
	}
	if _, got := p.Allows(ann, &Attributes{Verb: "get", Path: "/api"}); got != `RBAC: allowed by ClusterRoleBinding "c" of ClusterRole "reader" to Group "shoppers"` {
		t.Error(got)
	}
}

// TestPolicyChanges: a change of a role counts for its bindings, and that of a binding for the users that it names now and those that it named before.
func TestPolicyChanges(t *testing.T) {
	p := &Policy{}
	allows := func(who, namespace string, want bool) {
		t.Helper()
		if got, _ := p.Allows(&User{UserInfo: authenticationv1.UserInfo{Username: who, Groups: []string{"all"}}}, &Attributes{Verb: "get", Namespace: namespace, Resource: "pods"}); got != want {
			t.Errorf("%s in %q: %v, want %v", who, namespace, got, want)
		}
	}
	ref, cluster := rbacv1.RoleRef{Kind: "Role", Name: "r"}, rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"}
	rules := []rbacv1.PolicyRule{rule("get", "", "pods")}
	p.SetBinding("shop", "b", ref, []rbacv1.Subject{user("ann"), user("bob"), user("ann")})
	allows("ann", "shop", false)
	p.SetRole("shop", "r", rules)
	allows("ann", "shop", true)
	allows("bob", "shop", true)
	allows("ann", "infra", false)
	p.SetBinding("shop", "b", ref, []rbacv1.Subject{user("bob")})
	allows("ann", "shop", false)
	allows("bob", "shop", true)
	p.SetRole("shop", "r", nil)
	allows("bob", "shop", false)
	p.SetBinding("", "b", cluster, []rbacv1.Subject{group("all")})
	allows("ann", "", false)
	p.SetRole("", "r", rules)
	allows("ann", "", true)
	allows("ann", "infra", true)
	p.SetBinding("", "b", cluster, nil)
	allows("ann", "infra", false)
	if got, _ := p.Allows(&User{UserInfo: authenticationv1.UserInfo{Username: "ann"}}, &Attributes{Verb: "get", Path: "/api"}); got {
		t.Error("a policy without bindings allows a path")
	}
}

// TestRulesAreBounded: the admin of a namespace can bind one large role many times. The list of rights does not grow with that without an end.
func TestRulesAreBounded(t *testing.T) {
	p := &Policy{}
	var names []string
	for i := range 4000 {
		names = append(names, strings.Repeat("x", 90)+strconv.Itoa(i))
	}
	p.SetRole("shop", "r", []rbacv1.PolicyRule{rule("get", "", "pods", names...)})
	for i := range 1000 {
		p.SetBinding("shop", strconv.Itoa(i), rbacv1.RoleRef{Kind: "Role", Name: "r"}, []rbacv1.Subject{user("ann")})
	}
	st := p.Rules(&User{UserInfo: authenticationv1.UserInfo{Username: "ann"}}, "shop")
	if n := len(st.ResourceRules); n == 0 || n > 20 || !st.Incomplete || st.EvaluationError == "" {
		t.Errorf("%d rules, incomplete %v %q", n, st.Incomplete, st.EvaluationError)
	}
	if st = p.Rules(&User{UserInfo: authenticationv1.UserInfo{Username: "ann"}}, "infra"); st.Incomplete || st.ResourceRules != nil {
		t.Errorf("in another namespace: %+v", st)
	}
}

// TestServed: of a user's rules those count that bridge serve answers: to read, and to ask about oneself.
func TestServed(t *testing.T) {
	list := func(s string) []string { return strings.Split(s, ",") }
	resources := func(verbs, groups, resources string, names ...string) authorizationv1.ResourceRule {
		return authorizationv1.ResourceRule{Verbs: list(verbs), APIGroups: list(groups), Resources: list(resources), ResourceNames: names}
	}
	whoami, reviews := resources("create", "authentication.k8s.io", "selfsubjectreviews"), resources("create", "authorization.k8s.io", "selfsubjectaccessreviews,selfsubjectrulesreviews")
	for _, c := range []struct {
		in  authorizationv1.ResourceRule
		out []authorizationv1.ResourceRule
	}{
		{resources("get,list,delete", "", "pods,pods/log"), []authorizationv1.ResourceRule{resources("get,list", "", "pods")}},
		{resources("*", "apps", "*", "web"), []authorizationv1.ResourceRule{resources("get,list,watch", "apps", "*", "web")}},
		{resources("create,patch", "", "pods"), nil},
		{resources("get", "", "pods/log"), nil},
		{resources("*", "*", "*"), []authorizationv1.ResourceRule{whoami, reviews, resources("get,list,watch", "*", "*")}},
		{reviews, []authorizationv1.ResourceRule{reviews}},
		{resources("create", "authorization.k8s.io", "selfsubjectrulesreviews,subjectaccessreviews"), []authorizationv1.ResourceRule{resources("create", "authorization.k8s.io", "selfsubjectrulesreviews")}},
		{resources("create", "authorization.k8s.io", "*", "web"), nil},
	} {
		got := Served(authorizationv1.SubjectRulesReviewStatus{ResourceRules: []authorizationv1.ResourceRule{c.in}})
		if diff := cmp.Diff(c.out, got.ResourceRules, cmpopts.EquateEmpty()); diff != "" || got.ResourceRules == nil || got.NonResourceRules == nil {
			t.Errorf("%+v (-want +got):\n%s", c.in, diff)
		}
	}
	got := Served(authorizationv1.SubjectRulesReviewStatus{Incomplete: true, EvaluationError: "why", NonResourceRules: []authorizationv1.NonResourceRule{
		{Verbs: []string{"*"}, NonResourceURLs: []string{"/x"}}, {Verbs: []string{"post"}, NonResourceURLs: []string{"/y"}},
	}})
	if diff := cmp.Diff([]authorizationv1.NonResourceRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/x"}}}, got.NonResourceRules); diff != "" || !got.Incomplete || got.EvaluationError != "why" {
		t.Errorf("%+v", got)
	}
}
