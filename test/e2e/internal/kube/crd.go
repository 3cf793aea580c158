package kube

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Widgets returns a custom type of the group, with kind Widget and version v1.
func Widgets(group string) Type {
	return Type{schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}, "Widget", true}
}

// Install installs the CRD of a type of [Widgets] if it is not installed, and waits until the type is served.
func (c *Client) Install(ctx context.Context, t Type) error {
	singular := strings.ToLower(t.Kind)
	_, err := c.Create(ctx, CRDs, t.GroupResource().String(), Fields{"spec": map[string]any{
		"group": t.Group,
		"scope": "Namespaced",
		"names": map[string]any{"plural": t.Resource, "singular": singular, "kind": t.Kind, "listKind": t.Kind + "List"},
		"versions": []any{map[string]any{
			"name": t.Version, "served": true, "storage": true,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{
				"type": "object", "x-kubernetes-preserve-unknown-fields": true,
			}},
		}},
	}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return c.awaitServed(ctx, t)
}

func (c *Client) awaitServed(ctx context.Context, t Type) error {
	for {
		_, err := c.of(t).List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("wait for %s to be served: %w (last: %v)", t.ResourceID(), context.Cause(ctx), err)
		}
	}
}

// AwaitUnserved waits until the server does not serve a custom type in its version.
func (c *Client) AwaitUnserved(ctx context.Context, t Type) error {
	for {
		_, err := c.of(t).List(ctx, metav1.ListOptions{Limit: 1})
		if apierrors.IsNotFound(err) {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("wait until %s is not served: %w (last: %v)", t.GroupVersionResource, context.Cause(ctx), err)
		}
	}
}

// Expire makes the API server forget the history of a custom type: it edits the CRD's spec, after which the server rebuilds the
// type's storage. It returns when a watch from rv is answered with 410 Gone. The objects do not change.
func (c *Client) Expire(ctx context.Context, t Type, rv string) error {
	column := time.Now().Format("150405.000000")
	merge := fmt.Sprintf(`{"spec":{"versions":[{"name":%q,"served":true,"storage":true,
		"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}},
		"additionalPrinterColumns":[{"name":%q,"type":"string","jsonPath":".spec.step"}]}]}}`, t.Version, column)
	if _, err := c.Patch(ctx, CRDs, t.GroupResource().String(), merge); err != nil {
		return err
	}
	if err := c.AwaitGone(ctx, t, rv); err != nil {
		return err
	}
	return c.awaitServed(ctx, t)
}

// Uninstall removes the CRD and all objects of the type. The ledger does not record these deletions.
func (c *Client) Uninstall(ctx context.Context, t Type) error {
	return c.Delete(ctx, CRDs, t.GroupResource().String())
}

// Body returns the object without the fields that the bridge leaves out.
func Body(u unstructured.Unstructured) map[string]any {
	u.SetManagedFields(nil)
	return u.Object
}
