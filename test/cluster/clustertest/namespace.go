package clustertest

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// DeleteNamespace deletes a namespace and what is in it, which in a whole cluster the namespace controller does. Objects
// held by finalizers stay behind without their namespace. A namespace that does not exist is no error.
func (c *Cluster) DeleteNamespace(ctx context.Context, name string) error {
	if err := c.deleteNamespace(ctx, name); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete namespace %s: %w", name, err)
	}
	return nil
}

func (c *Cluster) deleteNamespace(ctx context.Context, name string) error {
	cfg := c.RESTConfig()
	// Every deprecated resource would say that it is.
	cfg.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	objects, err := metadata.NewForConfig(cfg)
	if err != nil {
		return err
	}
	// First, so that nothing new comes in.
	if err := client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	lists, err := discovery.ServerPreferredNamespacedResources(client.Discovery())
	if err != nil {
		return err
	}
	deletable := discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"deletecollection"}}, lists)
	resources, err := discovery.GroupVersionResources(deletable)
	if err != nil {
		return err
	}
	for gvr := range resources {
		if err := deleteAll(ctx, objects, gvr, name); err != nil {
			return fmt.Errorf("%s: %w", gvr.GroupResource(), err)
		}
	}
	ns, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	ns.Spec.Finalizers = nil
	_, err = client.CoreV1().Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{})
	return err
}

// deleteAll deletes at once what a grace period would keep: there is no kubelet to end it.
func deleteAll(ctx context.Context, objects metadata.Interface, gvr schema.GroupVersionResource, namespace string) error {
	now := int64(0)
	err := objects.Resource(gvr).Namespace(namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return nil
	}
	return err
}
