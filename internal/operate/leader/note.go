package leader

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kubebridge/kubebridge/internal/buffer"
)

// MaxNote is the largest content of a [Note] in bytes: the API server takes ConfigMaps of up to 1 MiB.
const MaxNote = 1<<20 - 4<<10

var (
	// ErrChanged is returned by [Note.Write] when somebody else has written: read the note first.
	ErrChanged = fmt.Errorf("the ConfigMap was written by another process: %w", buffer.ErrChanged)
	// ErrNotLeader is returned by [Note.Write] when another process holds the Lease.
	ErrNotLeader = fmt.Errorf("another process holds the Lease: %w", buffer.ErrNotLeader)
)

// entryOf is the entry of the ConfigMap that has the content.
const entryOf = "recordings"

// Note is a ConfigMap beside the Lease that the leader writes and standbys read. It is for one goroutine.
type Note struct {
	elector *Elector
	client  coreclient.ConfigMapInterface
	name    string
	found   *corev1.ConfigMap // as it was read or written last; nil: it does not exist
}

// Note returns the ConfigMap with a name, in the namespace of the Lease. It does not connect.
func (e *Elector) Note(name string) *Note { return &Note{elector: e, client: e.notes, name: name} }

// String returns namespace/name.
func (n *Note) String() string { return n.elector.o.Namespace + "/" + n.name }

// Read returns the present content; nil: there is none.
func (n *Note) Read(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, n.elector.lock.timeout)
	defer cancel()
	found, err := n.client.Get(ctx, n.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		n.found = nil
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", n, err)
	}
	n.found = found
	return found.BinaryData[entryOf], nil
}

// Write replaces the content that was read or written last. A former leader cannot replace what its successor has written: the Lease is
// read after the content that is replaced, and the content must not have changed since. Errors are [ErrChanged], [ErrNotLeader], and those
// of the API server.
func (n *Note) Write(ctx context.Context, content []byte) error {
	ctx, cancel := context.WithTimeout(ctx, n.elector.lock.timeout)
	defer cancel()
	lease, err := n.elector.leases.Get(ctx, n.elector.o.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the Lease before ConfigMap %s is written: %w", n, err)
	}
	if h := lease.Spec.HolderIdentity; h == nil || *h != n.elector.identity {
		return ErrNotLeader
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
	if n.found != nil {
		object = n.found.DeepCopy()
	}
	object.BinaryData = map[string][]byte{entryOf: content}
	if n.found == nil {
		object, err = n.client.Create(ctx, object, metav1.CreateOptions{})
	} else {
		object, err = n.client.Update(ctx, object, metav1.UpdateOptions{}) // only if its resourceVersion is the same
	}
	switch {
	case err == nil:
		n.found = object
		return nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err) && n.found != nil:
		return ErrChanged
	}
	return fmt.Errorf("write ConfigMap %s: %w", n, err)
}
