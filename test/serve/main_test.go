// Package serve tests `bridge serve` with clients that are not part of this project: controller-runtime, client-go's informers, Prometheus,
// kopf, kubectl and k9s. Each client reads once from a real kube-apiserver and once from `bridge serve`, and must see the same.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
)

// patience is how long a test waits for something that must happen.
const patience = 90 * time.Second

var (
	cluster *clustertest.Cluster
	bridge  string // the program
	kubectl string // the program, once buildKubectl has built it
)

func TestMain(m *testing.M) {
	klog.SetOutput(io.Discard) // the clients log each request that a killed server does not answer
	klog.LogToStderr(false)
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, m)
	stop()
	if err == nil && code == 0 {
		err = goleak.Find(goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
			goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop")) // client-go's metadata watches leave them behind, also at the API server
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(ctx context.Context, m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "kubebridge-serve-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	bridge, kubectl = filepath.Join(dir, "bridge"), filepath.Join(dir, "kubectl")
	if err := build(ctx, filepath.Join("..", ".."), "./cmd/bridge", bridge); err != nil {
		return 1, err
	}
	if cluster, err = clustertest.Launch(ctx, clustertest.Options{}); err != nil {
		return 1, err
	}
	if err := install(ctx); err != nil {
		return 1, errors.Join(err, cluster.Close())
	}
	code = m.Run()
	return code, cluster.Close()
}

// build builds a program of the module in a directory.
func build(ctx context.Context, dir, source, program string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, source)
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", source, err, text)
	}
	return nil
}

var buildKubectl = sync.OnceValue(func() error { return build(context.Background(), ".", "./kubectl", kubectl) })

// widgets is a custom resource.
var widgets = schema.GroupVersionResource{Group: "shop.example.com", Version: "v1", Resource: "widgets"}

// install installs the CustomResourceDefinition of widgets, and waits until the API server serves them.
func install(ctx context.Context) error {
	client, err := dynamic.NewForConfig(cluster.RESTConfig())
	if err != nil {
		return err
	}
	text := func(description string) map[string]any {
		return map[string]any{"type": "string", "description": description}
	}
	object := func(properties map[string]any) map[string]any {
		return map[string]any{"type": "object", "properties": properties}
	}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": widgets.GroupResource().String()},
		"spec": map[string]any{
			"group": widgets.Group, "scope": "Namespaced",
			"names": map[string]any{"plural": widgets.Resource, "singular": "widget", "kind": "Widget", "listKind": "WidgetList", "shortNames": []any{"wd"}, "categories": []any{"all"}},
			"versions": []any{map[string]any{
				"name": widgets.Version, "served": true, "storage": true,
				"subresources": map[string]any{"status": map[string]any{}},
				"additionalPrinterColumns": []any{
					map[string]any{"name": "Color", "type": "string", "jsonPath": ".spec.color"},
					map[string]any{"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
					map[string]any{"name": "Shelf", "type": "string", "jsonPath": ".status.shelf", "priority": int64(1)},
				},
				"selectableFields": []any{map[string]any{"jsonPath": ".spec.color"}},
				"schema": map[string]any{"openAPIV3Schema": object(map[string]any{
					"spec":   object(map[string]any{"color": text("Its color."), "size": map[string]any{"type": "integer"}}),
					"status": object(map[string]any{"shelf": text("Where it is."), "conditions": map[string]any{"type": "array", "items": object(map[string]any{"type": text(""), "status": text("")})}}),
				})},
			}},
		},
	}}
	_, err = client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}).Create(ctx, definition, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("install widgets: %w", err)
	}
	for until := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		_, err := client.Resource(widgets).List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("the API server does not serve widgets: %w", err)
		}
	}
}
