package main

import (
	"context"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

const namespace = "demo"

// widgets is the custom type of the demo.
var widgets = kube.Widgets("demo.kubebridge.io")

// step is one change. It creates where fields are given, patches where merge is, and deletes otherwise.
type step struct {
	typ    kube.Type
	name   string
	fields kube.Fields
	merge  string
	sub    []string // subresource of the patch
}

// steps are those of one round. It leaves two pods, a deployment and a widget behind for the next one to change.
func steps(round int) []step {
	web := fmt.Sprintf("web-%d", round%3)
	job := fmt.Sprintf("import-%d", round)
	gear := fmt.Sprintf("gear-%d", round%2)
	return []step{
		{typ: kube.Pods, name: web, fields: kube.Fields{"spec": pod(fmt.Sprintf("example.org/web:1.%d", round))}},
		{typ: kube.Pods, name: web, merge: `{"status":{"phase":"Running"}}`, sub: []string{"status"}},
		{typ: kube.ConfigMaps, name: "settings", merge: fmt.Sprintf(`{"data":{"greeting":"hello %d","theme":%q}}`, round, []string{"dark", "light"}[round%2])},
		{typ: widgets, name: gear, fields: kube.Fields{"spec": map[string]any{"teeth": 12, "round": round}}},
		{typ: kube.Deployments, name: "shop", merge: fmt.Sprintf(`{"spec":{"replicas":%d}}`, 1+round%4)},
		{typ: kube.ConfigMaps, name: job, fields: kube.Fields{"data": map[string]any{"state": "started"}}},
		{typ: widgets, name: gear, merge: fmt.Sprintf(`{"spec":{"teeth":%d}}`, 12+round%8)},
		{typ: kube.ConfigMaps, name: job, merge: `{"data":{"state":"finished"}}`},
		{typ: kube.Pods, name: fmt.Sprintf("web-%d", (round+1)%3)},
		{typ: kube.ConfigMaps, name: job},
		{typ: widgets, name: fmt.Sprintf("gear-%d", (round+1)%2)},
	}
}

func pod(image string) map[string]any {
	return map[string]any{"containers": []any{map[string]any{"name": "main", "image": image}}}
}

// demo makes the changes.
type demo struct {
	client *kube.Client
	out    io.Writer
}

// prepare makes what every round takes for granted.
func (d demo) prepare(ctx context.Context) error {
	if err := d.client.Install(ctx, widgets); err != nil {
		return err
	}
	labels := map[string]any{"app": "shop"}
	for _, s := range []step{
		{typ: kube.Namespaces, name: namespace, fields: kube.Fields{}},
		{typ: kube.ConfigMaps, name: "settings", fields: kube.Fields{"data": map[string]any{"greeting": "hello"}}},
		{typ: kube.Deployments, name: "shop", fields: kube.Fields{"spec": map[string]any{
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": pod("example.org/shop:1")},
		}}},
	} {
		if err := d.do(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// do makes one change. What is there already, or gone already, is left as it is.
func (d demo) do(ctx context.Context, s step) error {
	var err error
	verb := "delete"
	switch {
	case s.fields != nil:
		verb = "create"
		_, err = d.client.Create(ctx, s.typ, s.name, s.fields)
	case s.merge != "":
		verb = "update"
		_, err = d.client.Patch(ctx, s.typ, s.name, s.merge, s.sub...)
	default:
		err = d.client.Delete(ctx, s.typ, s.name)
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		fmt.Fprintf(d.out, "%s %s %s\n", verb, s.typ.ResourceID(), s.name)
	}
	return err
}
