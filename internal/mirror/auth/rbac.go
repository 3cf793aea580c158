package auth

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// Policy is what RBAC allows, by user and group.
type Policy struct {
	users, groups map[string][]grant
}

// grant is what a binding gives to a subject: the rules of its role.
type grant struct {
	namespace string // "": of a ClusterRoleBinding
	rules     []rbacv1.PolicyRule
	binding   int    // its number: ClusterRoleBindings come first
	source    string // the binding, the role and the subject, in the API server's words
}

// Objects are the RBAC objects of a cluster. Names of Roles and RoleBindings count within their namespaces.
type Objects struct {
	Roles               []rbacv1.Role
	ClusterRoles        []rbacv1.ClusterRole
	RoleBindings        []rbacv1.RoleBinding
	ClusterRoleBindings []rbacv1.ClusterRoleBinding
}

// NewPolicy returns the policy of all RBAC objects of a cluster. Aggregated ClusterRoles have the rules that the cluster has put into them.
func NewPolicy(o *Objects) *Policy {
	p := &Policy{users: map[string][]grant{}, groups: map[string][]grant{}}
	rules := map[[3]string][]rbacv1.PolicyRule{} // by kind, namespace and name
	for _, r := range o.Roles {
		rules[[3]string{"Role", r.Namespace, r.Name}] = r.Rules
	}
	for _, r := range o.ClusterRoles {
		rules[[3]string{"ClusterRole", "", r.Name}] = r.Rules
	}
	for i, b := range o.ClusterRoleBindings {
		p.bind(b.Subjects, grant{
			rules: rules[[3]string{b.RoleRef.Kind, "", b.RoleRef.Name}], binding: i,
			source: fmt.Sprintf("ClusterRoleBinding %q of %s %q", b.Name, b.RoleRef.Kind, b.RoleRef.Name),
		})
	}
	for i, b := range o.RoleBindings {
		namespace := b.Namespace
		if b.RoleRef.Kind != "Role" {
			namespace = ""
		}
		p.bind(b.Subjects, grant{
			namespace: b.Namespace, rules: rules[[3]string{b.RoleRef.Kind, namespace, b.RoleRef.Name}], binding: len(o.ClusterRoleBindings) + i,
			source: fmt.Sprintf("RoleBinding %q of %s %q", b.Name+"/"+b.Namespace, b.RoleRef.Kind, b.RoleRef.Name),
		})
	}
	return p
}

func (p *Policy) bind(subjects []rbacv1.Subject, g grant) {
	if len(g.rules) == 0 { // there is no such role, or it allows nothing
		return
	}
	source := g.source
	for _, s := range subjects {
		g.source = fmt.Sprintf("%s to %s %q", source, s.Kind, s.Name)
		switch s.Kind {
		case rbacv1.UserKind:
			p.users[s.Name] = append(p.users[s.Name], g)
		case rbacv1.GroupKind:
			p.groups[s.Name] = append(p.groups[s.Name], g)
		case rbacv1.ServiceAccountKind:
			namespace := cmp.Or(s.Namespace, g.namespace)
			if namespace != "" {
				user := fmt.Sprintf("system:serviceaccount:%s:%s", namespace, s.Name)
				g.source = fmt.Sprintf("%s to %s %q", source, s.Kind, s.Name+"/"+namespace)
				p.users[user] = append(p.users[user], g)
			}
		}
	}
}

// Allows reports whether a user may send a request. reason says which binding allows it; "": none, or the user may do everything.
func (p *Policy) Allows(u *User, a *Attributes) (allowed bool, reason string) {
	if slices.Contains(u.Groups, masters) {
		return true, ""
	}
	if g := allow(p.users[u.Name], a); g != nil {
		return true, "RBAC: allowed by " + g.source
	}
	for _, name := range u.Groups {
		if g := allow(p.groups[name], a); g != nil {
			return true, "RBAC: allowed by " + g.source
		}
	}
	return false, ""
}

// allow returns a grant that allows a request; nil: there is none.
func allow(grants []grant, a *Attributes) *grant {
	i := slices.IndexFunc(grants, func(g grant) bool {
		// A RoleBinding allows nothing outside its namespace: no path, and no list of all namespaces.
		if g.namespace != "" && (a.Path != "" || a.Namespace != g.namespace) {
			return false
		}
		return slices.ContainsFunc(g.rules, func(r rbacv1.PolicyRule) bool { return matches(&r, a) })
	})
	if i < 0 {
		return nil
	}
	return &grants[i]
}

// Rules returns what a user may do in a namespace, as the API server does: the rules of all bindings that count there.
func (p *Policy) Rules(u *User, namespace string) authorizationv1.SubjectRulesReviewStatus {
	grants := slices.Clone(p.users[u.Name])
	for _, name := range u.Groups {
		grants = append(grants, p.groups[name]...)
	}
	slices.SortStableFunc(grants, func(a, b grant) int { return cmp.Compare(a.binding, b.binding) })
	grants = slices.CompactFunc(grants, func(a, b grant) bool { return a.binding == b.binding }) // one binding can name the user and its groups
	s := authorizationv1.SubjectRulesReviewStatus{}
	for _, g := range grants {
		if g.namespace != "" && g.namespace != namespace {
			continue
		}
		for _, r := range g.rules {
			if len(r.Resources) > 0 {
				s.ResourceRules = append(s.ResourceRules, authorizationv1.ResourceRule{Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames})
			}
			if len(r.NonResourceURLs) > 0 {
				s.NonResourceRules = append(s.NonResourceRules, authorizationv1.NonResourceRule{Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs})
			}
		}
	}
	return s
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
