// Package changedby_test tests who is named for a change against the managedFields of a real kube-apiserver.
package changedby_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/pkg/shape/manager"
	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/edittest"
)

// TestNobodyIsBlamed sends random requests of several managers, and asks who sent each from what the server answered.
func TestNobodyIsBlamed(t *testing.T) {
	const requests = 400 // of each kind
	cluster := clustertest.Start(t, clustertest.Options{})
	cfg := cluster.RESTConfig()
	cfg.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range edittest.Kinds("example.com")[:2] { // those with a schema of the server's own
		t.Run(kind.Kind, func(t *testing.T) {
			gvr := schema.FromAPIVersionAndKind(kind.APIVersion, "").GroupVersion().WithResource(strings.ToLower(kind.Kind) + "s")
			s := sender{client.Resource(gvr).Namespace("default"), kind, rand.New(rand.NewPCG(1, 2))}
			named := 0
			var before *unstructured.Unstructured
			for range requests {
				name := []string{"alice", "bob", "carol"}[s.r.IntN(3)]
				after, err := s.send(t.Context(), name, before)
				switch {
				case apierrors.IsConflict(err), apierrors.IsInvalid(err), apierrors.IsNotFound(err):
					continue
				case err != nil:
					t.Fatal(err)
				}
				if before != nil && after != nil && after.GetResourceVersion() != before.GetResourceVersion() && after.GetUID() == before.GetUID() {
					named += judge(t, name, before, after)
				}
				before = after
			}
			t.Logf("%d times the sender was named", named)
			if named < requests/4 {
				t.Errorf("the sender was named %d times in %d requests", named, requests)
			}
		})
	}
}

type sender struct {
	dynamic.ResourceInterface
	kind edittest.Kind
	r    *rand.Rand
}

// send sends a random request and returns the object after it, nil if it is deleted.
func (s sender) send(ctx context.Context, by string, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	subs := append([]string{""}, s.kind.Subresources...)
	sub := subs[s.r.IntN(len(subs))]
	var path []string
	if sub != "" {
		path = []string{sub}
	}
	if live == nil {
		return s.Create(ctx, &unstructured.Unstructured{Object: s.kind.New(s.r)}, metav1.CreateOptions{FieldManager: by})
	}
	edited := live.DeepCopy()
	s.kind.Edit(s.r, edited.Object, sub)
	if sub == "scale" {
		return s.written(ctx, func() error {
			n, _, _ := unstructured.NestedFieldNoCopy(edited.Object, "spec", "replicas")
			text, _ := json.Marshal(map[string]any{"spec": map[string]any{"replicas": n}})
			_, err := s.Patch(ctx, "o", types.MergePatchType, text, metav1.PatchOptions{FieldManager: by}, path...)
			return err
		})
	}
	switch s.r.IntN(12) {
	case 0:
		if _, err := s.Patch(ctx, "o", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{FieldManager: by}); err != nil {
			return nil, err
		}
		return nil, s.Delete(ctx, "o", metav1.DeleteOptions{})
	case 1, 2, 3:
		return s.Update(ctx, edited, metav1.UpdateOptions{FieldManager: by}, path...)
	case 4, 5:
		text, _ := json.Marshal([]map[string]any{{"op": "add", "path": "/metadata/labels", "value": map[string]any{"a": by}}})
		return s.Patch(ctx, "o", types.JSONPatchType, text, metav1.PatchOptions{FieldManager: by})
	case 6:
		text := []byte(`{"metadata":{"labels":{"b":"` + by + `"}}}`)
		return s.Patch(ctx, "o", types.StrategicMergePatchType, text, metav1.PatchOptions{FieldManager: by})
	case 7:
		text := []byte(`{"metadata":{"annotations":{"a":null,"x.y/z":"` + by + `"}}}`)
		return s.Patch(ctx, "o", types.MergePatchType, text, metav1.PatchOptions{FieldManager: by})
	}
	o := &unstructured.Unstructured{Object: s.kind.Config(s.r, sub)}
	return s.Apply(ctx, "o", o, metav1.ApplyOptions{FieldManager: by, Force: s.r.IntN(4) > 0}, path...)
}

// written returns the object after a write whose answer is not the object.
func (s sender) written(ctx context.Context, write func() error) (*unstructured.Unstructured, error) {
	if err := write(); err != nil {
		return nil, err
	}
	return s.Get(ctx, "o", metav1.GetOptions{})
}

// judge returns how often the sender was named; with managedFields it must be if its time moved.
func judge(t *testing.T, by string, before, after *unstructured.Unstructured) (named int) {
	t.Helper()
	bare := before.DeepCopy()
	bare.SetManagedFields(nil)
	for _, b := range []*unstructured.Unstructured{before, bare} {
		was, err := b.MarshalJSON()
		is, err2 := after.MarshalJSON()
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		var finder manager.Finder
		got, err := finder.By(was, is)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range got {
			if c.Manager != by {
				t.Errorf("%+v wrote nothing, %s did\nbefore %s\nafter  %s", c, by, was, is)
			}
			named++
		}
		if len(b.GetManagedFields()) > 0 && len(got) == 0 && moved(by, before, after) {
			t.Errorf("%s is not named\nbefore %s\nafter  %s", by, was, is)
		}
	}
	return named
}

// moved reports whether an entry of the manager is new or has a newer time.
func moved(by string, before, after *unstructured.Unstructured) bool {
	times := map[metav1.ManagedFieldsEntry]time.Time{}
	key := func(e metav1.ManagedFieldsEntry) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: e.Manager, Operation: e.Operation, Subresource: e.Subresource}
	}
	for _, e := range before.GetManagedFields() {
		if e.Time != nil {
			times[key(e)] = e.Time.Time
		}
	}
	for _, e := range after.GetManagedFields() {
		if e.Manager == by && e.Time != nil && e.Time.After(times[key(e)]) {
			return true
		}
	}
	return false
}
