// Package chart tests the Helm chart with Helm itself, as a library, and on a real API server.
package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"sigs.k8s.io/yaml"
)

const (
	release   = "audit"
	namespace = "bridges"
)

func root() string { return filepath.Join("..", "..") }

func chartDir() string { return filepath.Join(root(), "charts", "kubebridge") }

// values reads a values file.
func values(path string) (map[string]any, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	v := map[string]any{}
	if err := yaml.UnmarshalStrict(raw, &v); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// rendered is what `helm template` prints: the objects' manifests, in a fixed order, and the notes.
type rendered struct {
	objects []string
	notes   string
}

func render(c *chartv2.Chart, v map[string]any) (*rendered, error) {
	return renderAs(c, v, release, namespace)
}

func renderAs(c *chartv2.Chart, v map[string]any, release, namespace string) (*rendered, error) {
	all, err := util.ToRenderValues(c, v, common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	out := &rendered{}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if strings.HasSuffix(name, "NOTES.txt") {
			out.notes = files[name]
			continue
		}
		documents := releaseutil.SplitManifests(files[name])
		for i := range len(documents) {
			out.objects = append(out.objects, documents[fmt.Sprintf("manifest-%d", i)])
		}
	}
	return out, nil
}

func chart(t *testing.T) *chartv2.Chart {
	t.Helper()
	c, err := loader.Load(chartDir())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func valuesOf(t *testing.T, path string) map[string]any {
	t.Helper()
	v, err := values(path)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func rendering(t *testing.T, path string) *rendered {
	t.Helper()
	r, err := render(chart(t), valuesOf(t, path))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return r
}
