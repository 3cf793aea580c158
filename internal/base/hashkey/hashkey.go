// Package hashkey keeps the key for hashing redacted values in a Secret of Kubernetes.
//
// The bridge makes the key itself. A key from a template would be stored in the release of Helm, and would
// change with every run of a tool that cannot read the cluster.
package hashkey

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

const (
	// Entry of the Secret that holds the key.
	Entry = "key"
	// LeastBytes is the minimum length of a key.
	LeastBytes = 16
	// madeBytes is the length of a key that the bridge makes.
	madeBytes = 32
	// retryEvery is the pause after a temporary error of the API server.
	retryEvery = 2 * time.Second
)

var errShort = errors.New("they are too few for a key")

// Secret locates the Secret with the key.
type Secret struct {
	Client          *rest.Config // of the cluster that holds the Secret; it is not changed
	Namespace, Name string
	Log             *zap.Logger
}

// Key returns the key in the Secret. A Secret without one gets 32 random bytes first: of several processes that do
// this at once one succeeds, and all return its key. Key waits while the API server does not answer. It returns an
// error if there is no such Secret, if the bridge may not use it, if its key has fewer than 16 bytes, or if ctx ends.
func (s Secret) Key(ctx context.Context) ([]byte, error) {
	client, err := corev1client.NewForConfig(s.Client)
	if err != nil {
		return nil, err
	}
	secrets := client.Secrets(s.Namespace)
	for warned := false; ; warned = true {
		key, err := s.attempt(ctx, secrets)
		if err == nil || !passes(err) {
			return key, s.explain(err)
		}
		if !warned && !apierrors.IsConflict(err) {
			s.Log.Warn("waiting for the Secret with the hash key", zap.String("secret", s.String()), zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(retryEvery):
		}
	}
}

// Find returns the key in the Secret, nil if it has none yet. It changes nothing, and does not wait.
func (s Secret) Find(ctx context.Context) ([]byte, error) {
	client, err := corev1client.NewForConfig(s.Client)
	if err != nil {
		return nil, err
	}
	found, err := client.Secrets(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		return nil, s.explain(err)
	}
	key, err := keyOf(found)
	return key, s.explain(err)
}

func (s Secret) String() string { return s.Namespace + "/" + s.Name }

func (s Secret) attempt(ctx context.Context, secrets corev1client.SecretInterface) ([]byte, error) {
	found, err := secrets.Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	key, err := keyOf(found)
	if err != nil || key != nil {
		return key, err
	}
	key = make([]byte, madeBytes)
	rand.Read(key) // never fails
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": found.ResourceVersion, "uid": found.UID}, // refused if another process was faster
		"data":     map[string]any{Entry: key},
	})
	if err != nil {
		return nil, err
	}
	if _, err = secrets.Patch(ctx, s.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubebridge"}); err != nil {
		return nil, err
	}
	s.Log.Info("made a hash key", zap.String("secret", s.String()))
	return key, nil
}

// keyOf returns the key in a Secret, nil if there is none.
func keyOf(s *corev1.Secret) ([]byte, error) {
	key, ok := s.Data[Entry]
	if ok && len(key) < LeastBytes {
		return nil, fmt.Errorf("entry %q has %d bytes: %w: use at least %d random ones, or remove the entry for a new key", Entry, len(key), errShort, LeastBytes)
	}
	return key, nil
}

// passes reports whether an error is temporary.
func passes(err error) bool {
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonNotFound, metav1.StatusReasonForbidden, metav1.StatusReasonUnauthorized, metav1.StatusReasonInvalid, metav1.StatusReasonBadRequest:
		return false
	}
	return !errors.Is(err, errShort)
}

func (s Secret) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("secrets.hashKeySecret: there is no Secret %s: make an empty one, and the bridge puts a key into it", s)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("secrets.hashKeySecret: %w: the bridge needs get and patch on this Secret, see `bridge rbac`", err)
	default:
		return fmt.Errorf("secrets.hashKeySecret %s: %w", s, err)
	}
}
