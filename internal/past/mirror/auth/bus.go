package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	kjson "sigs.k8s.io/json"

	"github.com/kubebridge/kubebridge/internal/past/mirror"
	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
)

// RBACResources are the resources that [Bus] needs on the bus.
func RBACResources() []string {
	return []string{
		"clusterrolebindings.rbac.authorization.k8s.io", "clusterroles.rbac.authorization.k8s.io",
		"rolebindings.rbac.authorization.k8s.io", "roles.rbac.authorization.k8s.io",
	}
}

// clockTolerance is how far the bridge's clock may be ahead: later, nobody would notice that no more events come.
const clockTolerance = 10 * time.Second

// BusOptions are the options of a [Bus].
type BusOptions struct {
	Mirror *mirror.Mirror
	// Ready returns why the bus was not read yet up to its end at the start: rights may have been revoked there; nil: it
	// was.
	Ready func() error
	// Skipped is called with each Role or binding that gives no rights, and why; without a name, with a namespace whose
	// give none.
	Skipped func(id store.Resource, o store.Name, why string)
	// MaxAge is the largest age of each resource's last event in each partition; 0: any. A stopped bridge publishes no
	// revoked right.
	MaxAge time.Duration
}

// Bus authorizes by the RBAC objects on the bus. It implements [Authorizer]. [Bus.Run] keeps an index of them, so that
// a request does no work for objects that others write.
type Bus struct {
	BusOptions

	mu      sync.RWMutex
	rights  map[string]*rights // by cluster; only Run changes them
	updated chan struct{}      // closed when Run has changed them
	failed  error              // of the last update
}

// rights is the index of a cluster. It has the states of [RBACResources] at these positions, or later ones.
type rights struct {
	policy Policy
	at     []store.Position
}

// NewBus returns an authorizer, which does not know rights before Run.
func NewBus(o BusOptions) *Bus {
	if o.Skipped == nil {
		o.Skipped = func(store.Resource, store.Name, string) {}
	}
	return &Bus{BusOptions: o, rights: map[string]*rights{}, updated: make(chan struct{})}
}

// Review implements [Authorizer].
func (b *Bus) Review(ctx context.Context, u *User, a *Attributes) (st authorizationv1.SubjectAccessReviewStatus, err error) {
	err = b.read(ctx, a.Cluster, func(p *Policy) { st.Allowed, st.Reason = p.Allows(u, a) })
	return st, err
}

// Rules implements [Authorizer].
func (b *Bus) Rules(ctx context.Context, u *User, s *Scope) (st authorizationv1.SubjectRulesReviewStatus, err error) {
	err = b.read(ctx, s.Cluster, func(p *Policy) { st = p.Rules(u, s.Namespace) })
	return st, err
}

// read calls fn once the index has what is served now.
func (b *Bus) read(ctx context.Context, cluster string, fn func(p *Policy)) error {
	var at []store.Position
	for _, name := range RBACResources() {
		r := b.Mirror.Resource(store.Resource{Cluster: cluster, Name: name}).For(func(string) bool { return false })
		if why := b.unusable(r); why != "" {
			return &UnansweredError{fmt.Sprintf("permissions cannot be checked now: %s of cluster %q %s", name, cluster, why), nil}
		}
		at = append(at, r.Served)
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	for {
		updated, failed := b.tryRead(cluster, at, fn)
		if updated == nil {
			return nil
		}
		select {
		case <-updated:
		case <-ctx.Done():
			why := fmt.Sprintf("permissions cannot be checked now: Roles and bindings of cluster %q are being read", cluster)
			return &UnansweredError{why, errors.Join(failed, ctx.Err())}
		}
	}
}

// tryRead calls fn if the index has some positions. Otherwise it returns a channel that is closed at its next change,
// and the last error.
func (b *Bus) tryRead(cluster string, at []store.Position, fn func(p *Policy)) (<-chan struct{}, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	lower := func(known, needed store.Position) int { return min(known.Compare(needed), 0) }
	x := b.rights[cluster]
	if x == nil || slices.CompareFunc(x.at, at, lower) != 0 {
		return b.updated, b.failed
	}
	fn(&x.policy)
	return nil, nil
}

// retryUpdate is the time after which an update that failed is tried again.
const retryUpdate = time.Second

// Run keeps the index up to date until ctx ends.
func (b *Bus) Run(ctx context.Context) error {
	for {
		commits, retry := b.Mirror.Commits(), (<-chan time.Time)(nil)
		var failed error
		for _, cluster := range b.Mirror.Clusters() {
			failed = errors.Join(failed, b.update(ctx, cluster))
		}
		if failed != nil {
			retry = time.After(retryUpdate)
		}
		b.mu.Lock()
		b.failed = failed
		close(b.updated)
		b.updated = make(chan struct{})
		b.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-commits:
		case <-retry:
		}
	}
}

// update adds to a cluster's index what is served since, or makes another index if a resource has another era.
func (b *Bus) update(ctx context.Context, cluster string) error {
	var to []store.View
	var at []store.Position
	for _, name := range RBACResources() {
		r := b.Mirror.Resource(store.Resource{Cluster: cluster, Name: name})
		if r == nil || r.Served.Era == 0 {
			return nil
		}
		to, at = append(to, store.View{Resource: r.ID, At: r.Served}), append(at, r.Served)
	}
	x := b.rights[cluster]
	var err error
	if x == nil || !slices.EqualFunc(x.at, at, func(a, b store.Position) bool { return a.Era == b.Era }) {
		x, err = b.build(to)
	} else {
		err = b.advance(ctx, x, to)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil { // it may have a part of the changes
		delete(b.rights, cluster)
		return err
	}
	x.at, b.rights[cluster] = at, x
	return nil
}

func (b *Bus) build(of []store.View) (*rights, error) {
	x := &rights{}
	for _, v := range of {
		err := b.Mirror.Store().List(v, "", store.Name{}, func(o *store.Object) bool {
			b.put(&x.policy, v.Resource, o.Name, nil, o)
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return x, nil
}

// advance adds the changes up to other positions of the same eras.
func (b *Bus) advance(ctx context.Context, x *rights, to []store.View) error {
	for i, v := range to {
		if v.At == x.at[i] {
			continue
		}
		err := b.Mirror.Store().Changes(ctx, v.Resource, "", x.at[i], v.At, func(c *store.Change) bool {
			b.put(&x.policy, v.Resource, c.Name, c.Before, c.After)
			return true
		})
		if err != nil {
			return err
		}
	}
	return b.restore(&x.policy, to)
}

// restore reads the namespaces again whose Roles and bindings are not too large any more.
func (b *Bus) restore(p *Policy, at []store.View) error {
	for namespace, s := range p.scopes {
		if !s.left || s.bytes > maxNamespace {
			continue
		}
		for _, v := range at {
			if strings.HasPrefix(v.Resource.Name, "cluster") {
				continue
			}
			err := b.Mirror.Store().List(v, namespace, store.Name{}, func(o *store.Object) bool {
				b.set(p, v.Resource, o.Name, o)
				return true
			})
			if err != nil {
				return err
			}
		}
		s.left = false
	}
	return nil
}

// weight is what an object counts for its namespace. What gives no rights counts nothing.
func weight(x *store.Object) int {
	if x == nil || x.Extent != store.Whole || len(x.Body) > maxObject {
		return 0
	}
	return len(x.Body)
}

func (b *Bus) put(p *Policy, id store.Resource, o store.Name, before, after *store.Object) {
	b.mu.Lock()
	s := p.scope(o.Namespace)
	s.bytes += weight(after) - weight(before)
	left := s.left
	if o.Namespace != "" && s.bytes > maxNamespace {
		s.left = true
		s.clear()
	}
	b.mu.Unlock()
	if !left && s.left {
		b.Skipped(id, store.Name{Namespace: o.Namespace}, fmt.Sprintf("Roles and RoleBindings of the namespace have more than %d bytes together", maxNamespace))
	}
	if !s.left {
		b.set(p, id, o, after)
	}
}

// set sets an object in a policy. RBAC only grants: an object that is left out takes no rights from other users.
func (b *Bus) set(p *Policy, id store.Resource, o store.Name, after *store.Object) {
	var x struct {
		Rules    []rbacv1.PolicyRule `json:"rules"`
		RoleRef  rbacv1.RoleRef      `json:"roleRef"`
		Subjects []rbacv1.Subject    `json:"subjects"`
	}
	why := ""
	switch {
	case after == nil:
	case after.Extent != store.Whole:
		why = "the bus has only a part of it, because it is too large"
	case len(after.Body) > maxObject:
		why = fmt.Sprintf("it has %d bytes, and at most %d count", len(after.Body), maxObject)
	default:
		if err := kjson.UnmarshalCaseSensitivePreserveInts(after.Body, &x); err != nil {
			why, x.Rules, x.Subjects = "it cannot be read: "+err.Error(), nil, nil
		}
	}
	if why != "" {
		b.Skipped(id, o, why)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if strings.Contains(id.Name, "bindings.") {
		p.SetBinding(o.Namespace, o.Name, x.RoleRef, x.Subjects)
	} else {
		p.SetRole(o.Namespace, o.Name, x.Rules)
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
