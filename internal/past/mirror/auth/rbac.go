package auth

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

const (
	// maxObject is the size of a Role or binding above which it gives no rights, maxNamespace that of all in a namespace:
	// who writes them must not decide how much memory and time the rights of others take.
	maxObject, maxNamespace = 512 << 10, 4 << 20
	// maxRules is the size of the rules that are listed for a user: a few bindings can list large roles many times.
	maxRules = 4 << 20
)

// Policy is what RBAC allows; the zero value nothing. Aggregated ClusterRoles have the rules that the cluster put into
// them.
type Policy struct {
	scopes map[string]*scope // by namespace; "": ClusterRoles and ClusterRoleBindings
}

// scope are the Roles and RoleBindings of a namespace, or those of the cluster.
type scope struct {
	namespace     string
	roles         map[string][]rbacv1.PolicyRule
	bindings      map[string]*binding
	users, groups map[string][]*binding
	bytes         int  // of the JSON of all objects that may give rights
	left          bool // the objects are not held, because they are too large together
}

// binding gives the rules of a role to subjects.
type binding struct {
	name     string
	ref      rbacv1.RoleRef
	subjects []subject // sorted
}

type subject struct {
	name  string
	group bool
}

func (p *Policy) scope(namespace string) *scope {
	s := p.scopes[namespace]
	if s == nil {
		s = &scope{namespace: namespace}
		s.clear()
		if p.scopes == nil {
			p.scopes = map[string]*scope{}
		}
		p.scopes[namespace] = s
	}
	return s
}

func (s *scope) clear() {
	s.roles, s.bindings = map[string][]rbacv1.PolicyRule{}, map[string]*binding{}
	s.users, s.groups = map[string][]*binding{}, map[string][]*binding{}
}

// SetRole sets the rules of a Role, or of a ClusterRole if namespace is "". A role without rules is removed.
func (p *Policy) SetRole(namespace, name string, rules []rbacv1.PolicyRule) {
	s := p.scope(namespace)
	if s.roles[name] = rules; len(rules) == 0 {
		delete(s.roles, name)
	}
}

// SetBinding sets what a RoleBinding gives, or a ClusterRoleBinding if namespace is "". Without subjects it is removed.
func (p *Policy) SetBinding(namespace, name string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
	s := p.scope(namespace)
	if was := s.bindings[name]; was != nil {
		for _, x := range was.subjects {
			of := s.by(x)
			if of[x.name] = slices.DeleteFunc(of[x.name], func(b *binding) bool { return b == was }); len(of[x.name]) == 0 {
				delete(of, x.name)
			}
		}
		delete(s.bindings, name)
	}
	if len(subjects) == 0 {
		return
	}
	b := &binding{name: name, ref: ref}
	for i := range subjects {
		if x := subjectOf(&subjects[i], namespace); x.name != "" {
			b.subjects = append(b.subjects, x)
		}
	}
	slices.SortFunc(b.subjects, func(x, y subject) int { return cmp.Compare(x.name, y.name) })
	b.subjects = slices.Clip(slices.Compact(b.subjects))
	for _, x := range b.subjects {
		of := s.by(x)
		of[x.name] = append(of[x.name], b)
	}
	s.bindings[name] = b
}

// by returns the bindings of users, or of groups.
func (s *scope) by(x subject) map[string][]*binding {
	if x.group {
		return s.groups
	}
	return s.users
}

// subjectOf returns a binding's subject; without a name if it is nobody. A service account is a user.
func subjectOf(s *rbacv1.Subject, namespace string) subject {
	switch s.Kind {
	case rbacv1.UserKind:
		return subject{name: s.Name}
	case rbacv1.GroupKind:
		return subject{name: s.Name, group: true}
	case rbacv1.ServiceAccountKind:
		if namespace = cmp.Or(s.Namespace, namespace); namespace != "" {
			return subject{name: accountPrefix + namespace + ":" + s.Name}
		}
	}
	return subject{}
}

const accountPrefix = "system:serviceaccount:"

// rules returns the rules that a binding of a scope gives; none if there is no such role.
func (p *Policy) rules(s *scope, b *binding) []rbacv1.PolicyRule {
	switch of := p.scopes[""]; {
	case b.ref.Kind == "ClusterRole" && of != nil:
		return of.roles[b.ref.Name]
	case b.ref.Kind == "Role" && s.namespace != "":
		return s.roles[b.ref.Name]
	}
	return nil
}

// visit calls fn for the bindings that name a user or its groups, those of the cluster first, until fn returns false.
// With "" it leaves out those of namespaces.
func (p *Policy) visit(u *User, namespace string, fn func(s *scope, b *binding, x subject) bool) {
	for _, namespace := range slices.Compact([]string{"", namespace}) {
		s := p.scopes[namespace]
		if s == nil {
			continue
		}
		names := []subject{{name: u.Username}}
		for _, name := range u.Groups {
			names = append(names, subject{name, true})
		}
		for _, x := range names {
			for _, b := range s.by(x)[x.name] {
				if !fn(s, b, x) {
					return
				}
			}
		}
	}
}

// Allows reports whether a user may send a request, and which binding allows it; "": none, or the user may do
// everything.
func (p *Policy) Allows(u *User, a *Attributes) (allowed bool, reason string) {
	if slices.Contains(u.Groups, masters) {
		return true, ""
	}
	namespace := a.Namespace
	if a.Path != "" {
		namespace = ""
	}
	type role struct {
		s   *scope
		ref rbacv1.RoleRef
	}
	refused := map[role]bool{} // many bindings can give one large role
	p.visit(u, namespace, func(s *scope, b *binding, x subject) bool {
		if r := (role{s, b.ref}); !refused[r] {
			allowed = slices.ContainsFunc(p.rules(s, b), func(r rbacv1.PolicyRule) bool { return matches(&r, a) })
			if refused[r] = !allowed; allowed {
				reason = "RBAC: allowed by " + b.describe(s, x)
			}
		}
		return !allowed
	})
	return allowed, reason
}

// describe names a binding, its role and a subject in the API server's words.
func (b *binding) describe(s *scope, x subject) string {
	kind, name, who := "ClusterRoleBinding", b.name, "User"
	if s.namespace != "" {
		kind, name = "RoleBinding", b.name+"/"+s.namespace
	}
	namespace, account, isAccount := strings.Cut(strings.TrimPrefix(x.name, accountPrefix), ":")
	switch {
	case x.group:
		who = "Group"
	case strings.HasPrefix(x.name, accountPrefix) && isAccount:
		who, x.name = "ServiceAccount", account+"/"+namespace
	}
	return fmt.Sprintf("%s %q of %s %q to %s %q", kind, name, b.ref.Kind, b.ref.Name, who, x.name)
}

// Rules returns what a user may do in a namespace, as the API server does: the rules of all bindings that count there.
func (p *Policy) Rules(u *User, namespace string) authorizationv1.SubjectRulesReviewStatus {
	s := authorizationv1.SubjectRulesReviewStatus{}
	bytes, seen := 0, map[*binding]bool{} // one binding can name the user and its groups
	p.visit(u, namespace, func(in *scope, b *binding, _ subject) bool {
		if seen[b] {
			return true
		}
		seen[b] = true
		for _, r := range p.rules(in, b) {
			if bytes += ruleBytes(&r); bytes > maxRules {
				s.Incomplete, s.EvaluationError = true, fmt.Sprintf("the rules have more than %d bytes: the others are left out", maxRules)
				return false
			}
			if len(r.Resources) > 0 {
				s.ResourceRules = append(s.ResourceRules, authorizationv1.ResourceRule{Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames})
			}
			if len(r.NonResourceURLs) > 0 {
				s.NonResourceRules = append(s.NonResourceRules, authorizationv1.NonResourceRule{Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs})
			}
		}
		return true
	})
	return s
}

// ruleBytes returns about how many bytes of JSON a rule has.
func ruleBytes(r *rbacv1.PolicyRule) (n int) {
	const names, quotes = 64, 3
	for _, list := range [][]string{r.Verbs, r.APIGroups, r.Resources, r.ResourceNames, r.NonResourceURLs} {
		for _, s := range list {
			n += len(s) + quotes
		}
	}
	return n + names
}

func matches(r *rbacv1.PolicyRule, a *Attributes) bool {
	if !has(r.Verbs, a.Verb) {
		return false
	}
	if a.Path != "" {
		return slices.ContainsFunc(r.NonResourceURLs, func(path string) bool {
			return path == "*" || path == a.Path || strings.HasSuffix(path, "*") && strings.HasPrefix(a.Path, strings.TrimRight(path, "*"))
		})
	}
	return has(r.APIGroups, a.Group) && hasResource(r.Resources, a) && (len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.Name))
}

func has(values []string, value string) bool {
	return slices.Contains(values, "*") || slices.Contains(values, value)
}

// hasResource reports whether resources have that of a request: "pods", "pods/log", "*/log" or "*".
func hasResource(resources []string, a *Attributes) bool {
	if a.Subresource == "" {
		return has(resources, a.Resource)
	}
	return has(resources, a.Resource+"/"+a.Subresource) || slices.Contains(resources, "*/"+a.Subresource)
}
