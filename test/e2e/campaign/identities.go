package campaign

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kuberest "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

const (
	// admin is the user of the clusters' kubeconfig.
	admin = "admin"
	// nobody stands for the API server, which removes objects without a request.
	nobody = "nobody"
	// identityCount is the number of users who write. A third of them have client certificates; the admin impersonates the others.
	identityCount = 12
)

// identities are the users who write, in turns.
type identities struct {
	config  *kuberest.Config // of the admin
	ns      string
	names   []string
	clients []*kube.Client
	turns   atomic.Uint64

	mu      sync.Mutex
	refused map[string]*refusal // by user: see [identities.tryRefused]
}

// refusal is a request that the API server has refused, by a user who has made no other one.
type refusal struct {
	resource, verb string
	asked          time.Time
	certain        bool // the answer came
}

// identify creates the users of a seed. In a soak only the admin writes.
func (w *world) identify() error {
	w.who = &identities{config: w.cluster.RESTConfig(), ns: w.ns, refused: map[string]*refusal{}}
	if w.spec.soak {
		w.who.names, w.who.clients = []string{admin}, []*kube.Client{w.kube}
		return nil
	}
	for i := range identityCount {
		name := fmt.Sprintf("user-%d-of-%s", i, w.ns)
		config := w.who.impersonated(name, "system:masters")
		if i%3 == 0 {
			path, err := w.cluster.KubeconfigFor(name, "system:masters")
			if err != nil {
				return err
			}
			if config, err = clientcmd.BuildConfigFromFlags("", path); err != nil {
				return err
			}
		}
		client, err := kube.New(config, w.ns)
		if err != nil {
			return err
		}
		w.who.names, w.who.clients = append(w.who.names, name), append(w.who.clients, client)
	}
	return nil
}

func (i *identities) impersonated(user string, groups ...string) *kuberest.Config {
	config := kuberest.CopyConfig(i.config)
	config.Impersonate = kuberest.ImpersonationConfig{UserName: user, Groups: groups}
	return config
}

// next returns the name and the client of the user whose turn it is.
func (i *identities) next() (string, *kube.Client) {
	n := int(i.turns.Add(1) % uint64(len(i.names)))
	return i.names[n], i.clients[n]
}

// tryRefused makes a request as a user who may do nothing. Every such user makes one request only, so that the user identifies it.
func (i *identities) tryRefused(ctx context.Context, t target, name string) error {
	i.mu.Lock()
	n := len(i.refused)
	user := fmt.Sprintf("mallory-%d-of-%s", n, i.ns)
	r := &refusal{resource: t.ResourceID(), asked: time.Now()}
	i.refused[user] = r
	i.mu.Unlock()
	client, err := kube.New(i.impersonated(user), i.ns)
	if err != nil {
		return err
	}
	switch n % 3 {
	case 0:
		r.verb = "patch"
		_, err = client.Patch(ctx, t.Type, name, `{}`)
	case 1:
		r.verb = "create"
		_, err = client.Create(ctx, t.Type, name, body(t, "refused"))
	default:
		r.verb = "get" // which comes before the deletion
		err = client.Delete(ctx, t.Type, name)
	}
	if err == nil {
		return fmt.Errorf("%s may %s %s, want a refusal", user, r.verb, r.resource)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	r.certain = apierrors.IsForbidden(err)
	return nil
}
