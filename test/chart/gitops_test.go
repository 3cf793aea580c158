package chart

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/kubectl/pkg/cmd/apply"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"sigs.k8s.io/yaml"
)

// inventory is the label by which a tool finds what it has applied, to prune what is not rendered any more.
const inventory = "kustomize.toolkit.fluxcd.io/name"

const hashKey = "MDEyMzQ1Njc4OWFiY2RlZg=="

// The rendering must depend only on the values: not on the time, random numbers, or the order of a map.
func TestRenderingIsRepeatable(t *testing.T) {
	t.Parallel()
	for _, path := range goodValues(t) {
		first, again := rendering(t, path), rendering(t, path)
		if diff := gocmp.Diff(first.objects, again.objects); diff != "" || first.notes != again.notes {
			t.Errorf("%s differs when it is rendered again:\n%s", path, diff)
		}
	}
}

// A tool that renders and applies repeatedly never finds a difference, and does not remove the key that the bridge has put into
// its Secret. The comparison is that of Flux and of Argo CD's server-side diff: a dry run of the apply.
func TestSyncsWithoutDifference(t *testing.T) {
	g := newGitops(t)
	for _, path := range goodValues(t) {
		t.Run(name(path), func(t *testing.T) {
			g := g.in(t)
			objects := g.rendered(valuesOf(t, path))
			g.namespaces(objects)
			t.Cleanup(func() { g.in(t).prune(nil) })
			for _, o := range objects {
				g.apply(o, false)
			}
			key := g.fillHashKey(objects)
			for sync := 2; sync <= 3; sync++ {
				for _, o := range g.rendered(valuesOf(t, path)) {
					live := g.live(o)
					if diff := gocmp.Diff(bare(live), bare(g.apply(o, true))); diff != "" {
						t.Errorf("sync %d would change %s %s:\n%s", sync, o.GetKind(), o.GetName(), diff)
					}
					if after := g.apply(o, false); after.GetResourceVersion() != live.GetResourceVersion() {
						t.Errorf("sync %d wrote %s %s", sync, o.GetKind(), o.GetName())
					}
				}
				if gone := g.prune(objects); len(gone) > 0 {
					t.Errorf("sync %d pruned %v", sync, gone)
				}
			}
			g.hasHashKey(key)
		})
	}
}

// Objects that a changed configuration no longer needs are pruned, except the Secret of the key. Changing the configuration
// back restores all of them.
func TestSyncPrunes(t *testing.T) {
	g := newGitops(t)
	v := valuesOf(t, "testdata/file-store.good.yaml")
	objects := g.rendered(v)
	g.namespaces(objects)
	t.Cleanup(func() { g.prune(nil) })
	for _, o := range objects {
		g.apply(o, false)
	}
	g.fillHashKey(objects)
	fewer := valuesOf(t, "testdata/file-store.good.yaml")
	fewer["networkPolicy"] = map[string]any{"enabled": false}
	fewer["hashKey"] = map[string]any{"create": false}
	objects = g.rendered(fewer)
	for _, o := range objects {
		g.apply(o, false)
	}
	want := []string{"NetworkPolicy audit-kubebridge", "Role audit-kubebridge-hash-key", "RoleBinding audit-kubebridge-hash-key"}
	if diff := gocmp.Diff(want, g.prune(objects)); diff != "" {
		t.Errorf("pruned: %s", diff)
	}
	for _, o := range g.rendered(v) {
		g.apply(o, false)
	}
	if again := g.prune(g.rendered(v)); len(again) > 0 {
		t.Errorf("on the way back %v was pruned", again)
	}
}

// The same test with kubectl: client-side apply, the default of Argo CD, and server-side apply.
func TestKubectlApplies(t *testing.T) {
	g := newGitops(t)
	for _, path := range []string{"testdata/kafka.good.yaml", "testdata/file-store.good.yaml", "testdata/full.good.yaml", "testdata/status-login.good.yaml"} {
		for _, serverSide := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/server-side=%t", name(path), serverSide), func(t *testing.T) {
				g := g.in(t)
				objects := g.rendered(valuesOf(t, path))
				g.namespaces(objects)
				t.Cleanup(func() { g.in(t).prune(nil) })
				g.kubectl(objects, serverSide)
				key := g.fillHashKey(objects)
				for range 2 {
					before := g.versions(objects)
					out := g.kubectl(g.rendered(valuesOf(t, path)), serverSide)
					if diff := gocmp.Diff(before, g.versions(objects)); diff != "" {
						t.Errorf("applying again wrote:\n%s", diff)
					}
					for line := range strings.Lines(out) {
						// kubectl always sends the selector of a PodDisruptionBudget, whose patch strategy is "replace".
						if !serverSide && !strings.HasSuffix(line, " unchanged\n") && !strings.HasPrefix(line, "poddisruptionbudget.policy/") {
							t.Errorf("kubectl apply again: %s", line)
						}
					}
				}
				g.hasHashKey(key)
			})
		}
	}
}

// gitops is what a GitOps tool has: manifests and an API server.
type gitops struct {
	*testing.T
	cache  string
	client dynamic.Interface
	core   *kubernetes.Clientset
	mapper *restmapper.DeferredDiscoveryRESTMapper
	// applied are the resources of which there may be objects to prune.
	applied map[schema.GroupVersionResource]bool
}

func newGitops(t *testing.T) *gitops {
	t.Helper()
	g := &gitops{T: t, cache: t.TempDir(), applied: map[schema.GroupVersionResource]bool{}}
	config := cluster.RESTConfig()
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{} // of Endpoints, which prune lists like everything
	var err error
	g.client, err = dynamic.NewForConfig(config)
	g.must(err)
	g.core, err = kubernetes.NewForConfig(config)
	g.must(err)
	g.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(g.core.Discovery()))
	for plural, kind := range map[string]string{"podmonitors": "PodMonitor", "servicemonitors": "ServiceMonitor", "prometheusrules": "PrometheusRule"} {
		g.customResource(schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: kind}, plural)
	}
	return g
}

func (g *gitops) in(t *testing.T) *gitops {
	out := *g
	out.T = t
	return &out
}

func (g *gitops) must(err error) {
	g.Helper()
	if err != nil {
		g.Fatal(err)
	}
}

// customResource makes the API server accept a kind of another project. Its schema is not needed: TestObjects decodes the
// Prometheus operator's kinds into the operator's types.
func (g *gitops) customResource(kind schema.GroupVersionKind, plural string) {
	g.Helper()
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + kind.Group},
		"spec": map[string]any{
			"group": kind.Group, "scope": "Namespaced", "names": map[string]any{"plural": plural, "kind": kind.Kind},
			"versions": []any{map[string]any{
				"name": kind.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	g.apply(crd, false)
	g.must(wait.PollUntilContextTimeout(g.Context(), patience/600, patience, true, func(ctx context.Context) (bool, error) {
		_, err := g.client.Resource(kind.GroupVersion().WithResource(plural)).Namespace("default").List(ctx, metav1.ListOptions{})
		return err == nil, nil
	}))
	g.mapper.Reset()
}

// rendered returns the objects that a tool applies, with its label: Helm's hooks are not among them.
func (g *gitops) rendered(v map[string]any) (objects []*unstructured.Unstructured) {
	g.Helper()
	r, err := render(chart(g.T), v)
	g.must(err)
	for _, manifest := range r.objects {
		o := &unstructured.Unstructured{}
		g.must(yaml.Unmarshal([]byte(manifest), &o.Object))
		if o.GetAnnotations()["helm.sh/hook"] != "" {
			continue
		}
		labels := o.GetLabels()
		labels[inventory] = "kubebridge"
		o.SetLabels(labels)
		objects = append(objects, o)
	}
	return objects
}

// namespaces makes those that the objects are in.
func (g *gitops) namespaces(objects []*unstructured.Unstructured) {
	g.Helper()
	for _, o := range objects {
		if o.GetNamespace() == "" {
			continue
		}
		_, err := g.core.CoreV1().Namespaces().Create(g.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.GetNamespace()}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			g.Fatal(err)
		}
	}
}

func (g *gitops) resource(o *unstructured.Unstructured) dynamic.ResourceInterface {
	g.Helper()
	kind := o.GroupVersionKind()
	mapping, err := g.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	g.must(err)
	if o.GetLabels()[inventory] != "" {
		g.applied[mapping.Resource] = true
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return g.client.Resource(mapping.Resource)
	}
	return g.client.Resource(mapping.Resource).Namespace(o.GetNamespace())
}

func (g *gitops) apply(o *unstructured.Unstructured, dryRun bool) *unstructured.Unstructured {
	g.Helper()
	options := metav1.ApplyOptions{FieldManager: "gitops", Force: true}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	applied, err := g.resource(o).Apply(g.Context(), o.GetName(), o, options)
	if err != nil {
		g.Fatalf("apply %s %s: %v", o.GetKind(), o.GetName(), err)
	}
	return applied
}

func (g *gitops) live(o *unstructured.Unstructured) *unstructured.Unstructured {
	g.Helper()
	live, err := g.resource(o).Get(g.Context(), o.GetName(), metav1.GetOptions{})
	g.must(err)
	return live
}

func (g *gitops) versions(objects []*unstructured.Unstructured) map[string]string {
	g.Helper()
	all := map[string]string{}
	for _, o := range objects {
		all[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = g.live(o).GetResourceVersion()
	}
	return all
}

// bare returns an object without the fields that the API server increments.
func bare(o *unstructured.Unstructured) map[string]any {
	o = o.DeepCopy()
	o.SetManagedFields(nil)
	o.SetResourceVersion("")
	return o.Object
}

// fillHashKey does what the bridge does at its first start, and returns the Secret.
func (g *gitops) fillHashKey(objects []*unstructured.Unstructured) *unstructured.Unstructured {
	g.Helper()
	for _, o := range objects {
		if o.GetKind() == "Secret" && strings.HasSuffix(o.GetName(), "-hash-key") {
			_, err := g.resource(o).Patch(g.Context(), o.GetName(), types.MergePatchType, []byte(`{"data":{"key":"`+hashKey+`"}}`), metav1.PatchOptions{FieldManager: "kubebridge"})
			g.must(err)
			return o
		}
	}
	return nil
}

// hasHashKey checks that the Secret has the key still; there may be no Secret.
func (g *gitops) hasHashKey(secret *unstructured.Unstructured) {
	g.Helper()
	if secret == nil {
		return
	}
	key, _, err := unstructured.NestedString(g.live(secret).Object, "data", "key")
	g.must(err)
	if key != hashKey {
		g.Errorf("the key of the hashes is %q", key)
	}
}

// prune deletes the applied objects that are not in objects, as Flux does, and returns them. Without objects it deletes
// everything, even what pruning should keep, because the test has ended.
func (g *gitops) prune(objects []*unstructured.Unstructured) (gone []string) {
	g.Helper()
	wanted := map[types.UID]bool{}
	for _, o := range objects {
		wanted[g.live(o).GetUID()] = true
	}
	ctx := context.WithoutCancel(g.Context()) // also when the test has ended
	for resource := range g.applied {
		found, err := g.client.Resource(resource).List(ctx, metav1.ListOptions{LabelSelector: inventory})
		g.must(err)
		for _, o := range found.Items {
			if wanted[o.GetUID()] || objects != nil && o.GetAnnotations()["kustomize.toolkit.fluxcd.io/prune"] == "disabled" {
				continue
			}
			g.must(g.resource(&o).Delete(ctx, o.GetName(), metav1.DeleteOptions{}))
			gone = append(gone, o.GetKind()+" "+o.GetName())
		}
	}
	slices.Sort(gone)
	return gone
}

// kubectl runs kubectl apply, and returns what it prints.
func (g *gitops) kubectl(objects []*unstructured.Unstructured, serverSide bool) string {
	g.Helper()
	dir := g.TempDir()
	for i, o := range objects {
		text, err := yaml.Marshal(o.Object)
		g.must(err)
		g.must(os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.yaml", i)), text, 0o600))
	}
	config := genericclioptions.NewConfigFlags(false)
	kubeconfig := cluster.Kubeconfig()
	config.KubeConfig, config.CacheDir = &kubeconfig, &g.cache
	config.WrapConfigFn = func(c *rest.Config) *rest.Config {
		c.QPS = -1
		return c
	}
	var out bytes.Buffer
	flags := apply.NewApplyFlags(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &out})
	cmd := &cobra.Command{}
	flags.AddFlags(cmd)
	for name, value := range map[string]string{"filename": dir, "server-side": fmt.Sprint(serverSide), "force-conflicts": fmt.Sprint(serverSide)} {
		g.must(cmd.Flags().Set(name, value))
	}
	o, err := flags.ToOptions(cmdutil.NewFactory(cmdutil.NewMatchVersionFlags(config)), cmd, "kubectl", nil)
	g.must(err)
	g.must(o.Validate())
	if err := o.Run(); err != nil {
		g.Fatalf("kubectl apply: %v\n%s", err, &out)
	}
	return out.String()
}
