package auth

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	kjson "sigs.k8s.io/json"

	"github.com/kubebridge/kubebridge/internal/mirror"
	"github.com/kubebridge/kubebridge/internal/mirror/store"
)

// RBACResources are the resources that [Bus] needs on the bus.
func RBACResources() []string {
	return []string{
		"clusterrolebindings.rbac.authorization.k8s.io", "clusterroles.rbac.authorization.k8s.io",
		"rolebindings.rbac.authorization.k8s.io", "roles.rbac.authorization.k8s.io",
	}
}

// clockTolerance is how far the bridge's clock may be ahead of this one. After an event of a later time, nobody would notice that no more events come.
const clockTolerance = 10 * time.Second

// BusOptions are the options of a [Bus].
type BusOptions struct {
	Mirror *mirror.Mirror
	// Ready returns why the bus was not read yet up to where it ended at the start; nil: it was. Rights may have been revoked by what was not read yet.
	Ready func() error
	// Skipped is called with each Role or binding that does not count, because the bus has only a part of it: its body was too large.
	Skipped func(resource, namespace, name string)
	// MaxAge is the largest age of the last event of each resource in each partition; 0: any. A bridge that has stopped publishes no revoked right.
	MaxAge time.Duration
}

// Bus authorizes by the RBAC objects that the bus has of the request's cluster. It implements [Authorizer].
type Bus struct {
	BusOptions

	mu       sync.Mutex
	policies map[string]*built // by cluster
}

// built is a policy, and the served positions of the resources that it is of.
type built struct {
	at     []store.Position
	policy *Policy
}

// NewBus returns an authorizer without policies, which it reads when it is asked.
func NewBus(o BusOptions) *Bus {
	if o.Skipped == nil {
		o.Skipped = func(string, string, string) {}
	}
	return &Bus{BusOptions: o, policies: map[string]*built{}}
}

// Review implements [Authorizer].
func (b *Bus) Review(_ context.Context, u *User, a *Attributes) (st authorizationv1.SubjectAccessReviewStatus, err error) {
	p, err := b.policy(a.Cluster)
	if err != nil {
		return st, err
	}
	st.Allowed, st.Reason = p.Allows(u, a)
	return st, nil
}

// Rules implements [Authorizer].
func (b *Bus) Rules(_ context.Context, u *User, s *Scope) (st authorizationv1.SubjectRulesReviewStatus, err error) {
	p, err := b.policy(s.Cluster)
	if err != nil {
		return st, err
	}
	return p.Rules(u, s.Namespace), nil
}

func (b *Bus) policy(cluster string) (*Policy, error) {
	var at []store.Position
	var from []*mirror.Resource
	for _, name := range RBACResources() {
		r := b.Mirror.Resource(store.Resource{Cluster: cluster, Name: name}).For(func(string) bool { return false })
		if why := b.unusable(r); why != "" {
			return nil, &UnansweredError{fmt.Sprintf("permissions cannot be checked now: %s of cluster %q %s", name, cluster, why), nil}
		}
		from, at = append(from, r), append(at, r.Served)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.policies[cluster]; known != nil && slices.Equal(known.at, at) {
		return known.policy, nil
	}
	var o Objects
	for i, read := range []func(*store.Object) error{
		into(&o.ClusterRoleBindings), into(&o.ClusterRoles), into(&o.RoleBindings), into(&o.Roles),
	} {
		var failed error
		err := b.Mirror.Store().List(store.View{Resource: from[i].ID, At: at[i]}, "", store.Name{}, func(x *store.Object) bool {
			if x.Extent != store.Whole { // RBAC only grants: a large Role takes no rights from other users
				b.Skipped(from[i].ID.Name, x.Namespace, x.Name.Name)
				return true
			}
			failed = read(x)
			return failed == nil
		})
		if err != nil {
			return nil, err
		}
		if failed != nil {
			return nil, &UnansweredError{fmt.Sprintf("permissions cannot be checked now: %s of cluster %q cannot be read", from[i].ID.Name, cluster), failed}
		}
	}
	p := NewPolicy(&o)
	b.policies[cluster] = &built{at, p}
	return p, nil
}

// into returns a function that appends objects to a list.
func into[T rbacv1.Role | rbacv1.ClusterRole | rbacv1.RoleBinding | rbacv1.ClusterRoleBinding](list *[]T) func(*store.Object) error {
	return func(x *store.Object) error {
		var o T
		if err := kjson.UnmarshalCaseSensitivePreserveInts(x.Body, &o); err != nil {
			return fmt.Errorf("%s/%s: %w", x.Namespace, x.Name, err)
		}
		*list = append(*list, o)
		return nil
	}
}

// unusable says why a resource does not show all rights as they are now; "": it does.
func (b *Bus) unusable(r *mirror.Resource) string {
	if r == nil {
		return "are not on the bus"
	}
	if _, err := r.Latest(); err != nil {
		return "cannot be used: " + err.Error()
	}
	if gap := r.Gap(); gap != "" {
		return "may lack changes: " + gap
	}
	if len(r.Collections) != 1 {
		return fmt.Sprintf("are published by %d collections, and --authorization bus needs one", len(r.Collections))
	}
	if notes := r.Notes(r.Served.Era, func(string) bool { return true }); len(notes) > 0 {
		return "are not whole: " + notes[0]
	}
	if err := b.Ready(); err != nil {
		return "may lack changes: " + err.Error()
	}
	if b.MaxAge == 0 {
		return ""
	}
	// Each partition has changes of its own, and events that show that there are no others.
	switch age := time.Since(r.LastEvent); {
	case r.LastEvent.IsZero():
		return "may lack changes: not every partition has an event of them"
	case age < -clockTolerance:
		return fmt.Sprintf("may lack changes: the last event of them is %s in the future, by the bridge's clock", -age.Truncate(time.Second))
	case age > b.MaxAge:
		return fmt.Sprintf("may lack changes: the last event of them is %s old in a partition", age.Truncate(time.Second))
	}
	return ""
}
