package chart

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/action"
	chart3 "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/releaseutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

func loadWithHelm3(t *testing.T) *chart3.Chart {
	t.Helper()
	c, err := loader.Load(chartDir())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Helm 3 renders the chart to the same manifests as Helm 4.
func TestHelm3RendersTheSame(t *testing.T) {
	t.Parallel()
	c := loadWithHelm3(t)
	for _, path := range goodValues(t) {
		values, err := chartutil.ToRenderValues(c, valuesOf(t, path), chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}, nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		files, err := engine.Render(c, values)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		var objects []string
		for _, file := range slices.Sorted(func(yield func(string) bool) {
			for name := range files {
				if !strings.HasSuffix(name, "NOTES.txt") && !yield(name) {
					return
				}
			}
		}) {
			documents := releaseutil.SplitManifests(files[file])
			for i := range len(documents) {
				objects = append(objects, strings.TrimSpace(documents[fmt.Sprintf("manifest-%d", i)]))
			}
		}
		var want []string
		for _, object := range rendering(t, path).objects {
			want = append(want, strings.TrimSpace(object))
		}
		if diff := gocmp.Diff(want, objects); diff != "" {
			t.Errorf("%s: -Helm 4 +Helm 3:\n%s", path, diff)
		}
		lint := action.NewLint()
		lint.Strict, lint.Namespace = true, namespace
		for _, message := range lint.Run([]string{chartDir()}, valuesOf(t, path)).Messages {
			if message.Severity >= support.WarningSev {
				t.Errorf("%s: %v", path, message)
			}
		}
	}
}

// Helm 3 installs, upgrades and uninstalls on a real API server; the key's Secret stays.
func TestHelm3Installs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	flags := genericclioptions.NewConfigFlags(false)
	kubeconfig, cache := cluster.Kubeconfig(), filepath.Join(w.dir, "cache")
	flags.KubeConfig, flags.Namespace, flags.CacheDir = &kubeconfig, &w.ns, &cache
	helm := &action.Configuration{}
	w.must(helm.Init(flags, w.ns, "secret", t.Logf))
	install := action.NewInstall(helm)
	install.ReleaseName, install.Namespace, install.Timeout = release, w.ns, patience
	_, err := install.Run(loadWithHelm3(t), w.values("[configmaps]", ""))
	w.must(err)
	upgrade := action.NewUpgrade(helm)
	upgrade.Namespace, upgrade.Timeout = w.ns, patience
	_, err = upgrade.Run(release, loadWithHelm3(t), w.values("[pods]", "replicaCount: 3"))
	w.must(err)
	deployment, err := w.client.AppsV1().Deployments(w.ns).Get(t.Context(), release+"-kubebridge", metav1.GetOptions{})
	w.must(err)
	if *deployment.Spec.Replicas != 3 {
		t.Errorf("the upgrade leaves %d replicas", *deployment.Spec.Replicas)
	}
	_, err = action.NewUninstall(helm).Run(release)
	w.must(err)
	deployments, err := w.client.AppsV1().Deployments(w.ns).List(t.Context(), metav1.ListOptions{})
	w.must(err)
	if len(deployments.Items) > 0 {
		t.Error("the Deployment stays")
	}
	w.hashKey() // fails if it is gone
}
