// Package kube changes objects in a cluster as users do, and records in a ledger what the API server acknowledged and a
// bridge must publish.
package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Type is a resource and its kind.
type Type struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
}

// ResourceID returns the resource's name in the configuration and in collections.
func (t Type) ResourceID() string { return t.GroupResource().String() }

// Built-in types.
var (
	ConfigMaps  = Type{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ConfigMap", true}
	Secrets     = Type{schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, "Secret", true}
	Pods        = Type{schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "Pod", true}
	Events      = Type{schema.GroupVersionResource{Version: "v1", Resource: "events"}, "Event", true}
	Deployments = Type{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, "Deployment", true}
	Namespaces  = Type{schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "Namespace", false}
	CRDs        = Type{schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, "CustomResourceDefinition", false}
)

// Client changes objects in one namespace, and cluster-scoped ones. Its methods may be called from several goroutines.
type Client struct {
	Namespace string
	Ledger    *Ledger
	dynamic   dynamic.Interface
}

// Connect is New with the cluster of a kubeconfig file.
func Connect(kubeconfig, namespace string) (*Client, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %q: %w", kubeconfig, err)
	}
	return New(cfg, namespace)
}

// New returns a client for a namespace with an empty ledger, without the client-side rate limit.
func New(cfg *rest.Config, namespace string) (*Client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	d, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return &Client{Namespace: namespace, Ledger: NewLedger(), dynamic: d}, nil
}

// In returns a client with the same ledger for another namespace.
func (c *Client) In(namespace string) *Client {
	return &Client{Namespace: namespace, Ledger: c.Ledger, dynamic: c.dynamic}
}

func (c *Client) of(t Type) dynamic.ResourceInterface {
	if t.Namespaced {
		return c.dynamic.Resource(t.GroupVersionResource).Namespace(c.Namespace)
	}
	return c.dynamic.Resource(t.GroupVersionResource)
}

// Fields are the fields of an object except apiVersion, kind, name and namespace.
type Fields map[string]any

// Create creates an object. If its resource is not served yet (a new CRD), Create waits until ctx is cancelled.
func (c *Client) Create(ctx context.Context, t Type, name string, fields Fields) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	for k, v := range fields {
		if metadata, ok := v.(map[string]any); ok {
			v = maps.Clone(metadata) // the caller may use the fields for several objects at once
		}
		o.Object[k] = v
	}
	if t == Events { // required by their validation
		o.Object["involvedObject"] = map[string]any{"kind": "Namespace", "name": c.Namespace, "namespace": c.Namespace}
	}
	o.SetAPIVersion(t.GroupVersion().String())
	o.SetKind(t.Kind)
	o.SetName(name)
	got, err := retry(ctx, func() (*unstructured.Unstructured, error) {
		return c.of(t).Create(ctx, o, metav1.CreateOptions{})
	})
	if err != nil {
		return nil, fmt.Errorf("create %s %s: %w", t.ResourceID(), name, err)
	}
	c.Ledger.Wrote(t, got)
	return got, nil
}

// retry repeats a call that fails because a CRD's storage is being initialized.
func retry(ctx context.Context, call func() (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
	for {
		o, err := call()
		missing := apierrors.IsNotFound(err) && err.Error() == "the server could not find the requested resource"
		if !missing && !apierrors.IsTooManyRequests(err) {
			return o, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, errors.Join(err, context.Cause(ctx))
		}
	}
}

// Patch merges a JSON document into an object.
func (c *Client) Patch(ctx context.Context, t Type, name, merge string, subresources ...string) (*unstructured.Unstructured, error) {
	got, err := retry(ctx, func() (*unstructured.Unstructured, error) {
		return c.of(t).Patch(ctx, name, types.MergePatchType, []byte(merge), metav1.PatchOptions{}, subresources...)
	})
	if err != nil {
		return nil, fmt.Errorf("patch %s %s: %w", t.ResourceID(), name, err)
	}
	c.Ledger.Wrote(t, got)
	return got, nil
}

// Replace updates a whole object, with the metadata in fields and its present resourceVersion.
func (c *Client) Replace(ctx context.Context, t Type, name string, fields Fields) (*unstructured.Unstructured, error) {
	old, err := c.of(t).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("replace %s %s: %w", t.ResourceID(), name, err)
	}
	o := &unstructured.Unstructured{Object: maps.Clone(fields)}
	o.SetGroupVersionKind(t.GroupVersion().WithKind(t.Kind))
	o.SetName(name)
	o.SetResourceVersion(old.GetResourceVersion())
	got, err := c.of(t).Update(ctx, o, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("replace %s %s: %w", t.ResourceID(), name, err)
	}
	c.Ledger.Wrote(t, got)
	return got, nil
}

// Delete deletes an object without a grace period.
func (c *Client) Delete(ctx context.Context, t Type, name string) error {
	uid, err := c.uid(ctx, t, name)
	if err != nil {
		return fmt.Errorf("delete %s %s: %w", t.ResourceID(), name, err)
	}
	now := int64(0)
	err = c.of(t).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil {
		return fmt.Errorf("delete %s %s: %w", t.ResourceID(), name, err)
	}
	c.Ledger.Deleted(string(uid))
	return nil
}

// DeleteAll deletes the objects of a type in the namespace that the label selector selects, in one request and without a grace period. A busy
// server ends that request after a minute, by an error or by breaking off its answer; then another one deletes the rest.
func (c *Client) DeleteAll(ctx context.Context, t Type, labelSelector string) error {
	selected := metav1.ListOptions{LabelSelector: labelSelector}
	objects, _, err := c.List(ctx, t, selected)
	if err != nil {
		return err
	}
	now := int64(0)
	for {
		err = c.of(t).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, selected)
		if err == nil {
			break
		}
		brokenOff := http2.StreamError{}
		if ctx.Err() != nil || !apierrors.IsTimeout(err) && !errors.As(err, &brokenOff) {
			return fmt.Errorf("delete all %s: %w", t.ResourceID(), err)
		}
	}
	for i := range objects {
		c.Ledger.Deleted(string(objects[i].GetUID()))
	}
	return nil
}

func (c *Client) uid(ctx context.Context, t Type, name string) (types.UID, error) {
	o, err := c.of(t).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return o.GetUID(), nil
}

// List returns all objects of a type, in the namespace if it has one, and the list's resourceVersion.
func (c *Client) List(ctx context.Context, t Type, options metav1.ListOptions) ([]unstructured.Unstructured, string, error) {
	l, err := c.of(t).List(ctx, options)
	if err != nil {
		return nil, "", fmt.Errorf("list %s: %w", t.ResourceID(), err)
	}
	return l.Items, l.GetResourceVersion(), nil
}

// AwaitGone waits until the server answers a watch from rv with 410 Gone.
func (c *Client) AwaitGone(ctx context.Context, t Type, rv string) error {
	for {
		gone, err := c.gone(ctx, t, rv)
		if gone {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%w: waiting for 410 Gone on a watch of %s from %s (last: %v)", context.Cause(ctx), t.ResourceID(), rv, err)
		}
	}
}

// AwaitAbsent waits until an object does not exist.
func (c *Client) AwaitAbsent(ctx context.Context, t Type, name string) error {
	for {
		_, err := c.uid(ctx, t, name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%w: waiting for %s %s to be gone (last: %v)", context.Cause(ctx), t.ResourceID(), name, err)
		}
	}
}

func (c *Client) gone(ctx context.Context, t Type, rv string) (bool, error) {
	second := int64(1)
	w, err := c.of(t).Watch(ctx, metav1.ListOptions{ResourceVersion: rv, TimeoutSeconds: &second})
	if err != nil {
		return apierrors.IsGone(err) || apierrors.IsResourceExpired(err), err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if err := apierrors.FromObject(e.Object); apierrors.IsGone(err) || apierrors.IsResourceExpired(err) {
			return true, nil
		}
	}
	return false, nil
}

// Each calls do for 0 to n-1 from several goroutines and returns the first error.
func Each(n int, do func(i int) error) error {
	var g errgroup.Group
	g.SetLimit(8)
	for i := range n {
		g.Go(func() error { return do(i) })
	}
	return g.Wait()
}
