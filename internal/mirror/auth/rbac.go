package auth

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Policy is what RBAC allows, by user and group.
type Policy struct {
	users, groups map[string][]grant
}

// grant is a binding with the rules of its role.
type grant struct {
	namespace string // "": of a ClusterRoleBinding
	rules     []rbacv1.PolicyRule
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
	for _, b := range o.RoleBindings {
		namespace := b.Namespace
		if b.RoleRef.Kind != "Role" {
			namespace = ""
		}
		p.bind(b.Subjects, grant{b.Namespace, rules[[3]string{b.RoleRef.Kind, namespace, b.RoleRef.Name}]})
	}
	for _, b := range o.ClusterRoleBindings {
		p.bind(b.Subjects, grant{"", rules[[3]string{b.RoleRef.Kind, "", b.RoleRef.Name}]})
	}
	return p
}

func (p *Policy) bind(subjects []rbacv1.Subject, g grant) {
	if len(g.rules) == 0 { // there is no such role, or it allows nothing
		return
	}
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			p.users[s.Name] = append(p.users[s.Name], g)
		case rbacv1.GroupKind:
			p.groups[s.Name] = append(p.groups[s.Name], g)
		case rbacv1.ServiceAccountKind:
			namespace := s.Namespace
			if namespace == "" {
				namespace = g.namespace
			}
			if namespace != "" {
				user := fmt.Sprintf("system:serviceaccount:%s:%s", namespace, s.Name)
				p.users[user] = append(p.users[user], g)
			}
		}
	}
}

// Allows reports whether a user may send a request.
func (p *Policy) Allows(u *User, a *Attributes) bool {
	if slices.Contains(u.Groups, masters) {
		return true
	}
	if allow(p.users[u.Name], a) {
		return true
	}
	return slices.ContainsFunc(u.Groups, func(name string) bool { return allow(p.groups[name], a) })
}

func allow(grants []grant, a *Attributes) bool {
	return slices.ContainsFunc(grants, func(g grant) bool {
		// A RoleBinding allows nothing outside its namespace: no path, and no list of all namespaces.
		if g.namespace != "" && (a.Path != "" || a.Namespace != g.namespace) {
			return false
		}
		return slices.ContainsFunc(g.rules, func(r rbacv1.PolicyRule) bool { return matches(&r, a) })
	})
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
