package chart

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	psapi "k8s.io/pod-security-admission/api"
	pspolicy "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestLint(t *testing.T) {
	t.Parallel()
	for _, path := range append([]string{""}, goodValues(t)...) {
		v := map[string]any{}
		if path != "" {
			v = valuesOf(t, path)
		}
		lint := action.NewLint()
		lint.Strict, lint.Namespace = true, namespace
		result := lint.Run([]string{chartDir()}, v)
		for _, err := range result.Errors {
			t.Errorf("%s: %v", cmp.Or(path, "the chart's own values"), err)
		}
		if result.TotalChartsLinted != 1 {
			t.Errorf("%s: %d charts were linted", path, result.TotalChartsLinted)
		}
	}
}

// Contradictory values are refused with an error that names the remedy, before anything is installed in a cluster.
func TestContradictions(t *testing.T) {
	t.Parallel()
	for _, path := range files(t, "*.bad.yaml") {
		t.Run(name(path), func(t *testing.T) {
			want, err := os.ReadFile(strings.TrimSuffix(path, ".yaml") + ".want")
			if err != nil {
				t.Fatal(err)
			}
			_, err = render(chart(t), valuesOf(t, path))
			if text := strings.TrimSpace(string(want)); err == nil || text == "" || !strings.Contains(err.Error(), text) {
				t.Errorf("got %v\nwant %s", err, text)
			}
			if err != nil && strings.Contains(err.Error(), "templates/test") {
				t.Errorf("the error begins with a file that users take for a test of the chart: %v", err)
			}
		})
	}
}

// An unknown key would be a setting that the API server silently ignores.
func TestObjects(t *testing.T) {
	for _, path := range goodValues(t) {
		t.Run(name(path), func(t *testing.T) {
			r := rendering(t, path)
			pods := map[bool]int{}
			for _, manifest := range r.objects {
				object := decode(t, manifest)
				meta, _ := object.(metav1.Object)
				if meta.GetName() == "" || meta.GetLabels()["app.kubernetes.io/instance"] != release {
					t.Errorf("an object is not named, or not labelled as the release's:\n%s", manifest)
				}
				if pod, ok := object.(*corev1.Pod); ok { // of helm test
					restricted(t, &corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec})
				}
				if template := podTemplate(object); template != nil {
					pods[isServe(template)]++
					restricted(t, template)
					if got := template.Labels["app.kubernetes.io/instance"]; got != release {
						t.Errorf("pods are labelled %v", template.Labels)
					}
				}
			}
			if serves := strings.HasPrefix(name(path), "serve"); pods[false] != 1 || (pods[true] == 1) != serves || pods[true] > 1 {
				t.Errorf("%d objects make pods of the bridge, and %d pods of serve", pods[false], pods[true])
			}
			if !strings.Contains(r.notes, `of cluster "prod-eu-1"`) || strings.Contains(r.notes, "<no value>") {
				t.Errorf("the notes:\n%s", r.notes)
			}
		})
	}
}

// The bridge gets permissions for the resources of its configuration and nothing else. Reviewers can read these files.
func TestGolden(t *testing.T) {
	for _, path := range files(t, "*.good.yaml") {
		t.Run(name(path), func(t *testing.T) {
			var access, workload bytes.Buffer
			for _, manifest := range rendering(t, path).objects {
				switch object := decode(t, manifest).(type) {
				case *rbacv1.Role:
					rules(t, &access, object.Namespace, object.Rules)
				case *rbacv1.ClusterRole:
					rules(t, &access, "the cluster", object.Rules)
				case *appsv1.Deployment, *appsv1.StatefulSet:
					workload.WriteString(manifest + "\n")
				}
			}
			golden(t, strings.Replace(path, ".good.yaml", ".access.golden", 1), access.Bytes())
			if n := name(path); n == "kafka.good" || n == "file-store.good" || n == "full.good" || strings.HasPrefix(n, "buffer") || strings.HasPrefix(n, "audit") || strings.HasPrefix(n, "serve") {
				golden(t, strings.Replace(path, ".good.yaml", ".workload.golden", 1), workload.Bytes())
			}
		})
	}
}

// Clients that can reach the status in a cluster must keep their access: the Service's names are accepted by the server, and
// kubelets and Prometheus use HTTPS if the server does.
func TestStatusAccess(t *testing.T) {
	service := []any{"audit-kubebridge", "audit-kubebridge.bridges", "audit-kubebridge.bridges.svc"}
	for path, want := range map[string]struct {
		status map[string]any
		scheme corev1.URIScheme
		scrape string
	}{
		"testdata/kafka.good.yaml": {map[string]any{"listen": ":8080", "hosts": append(slices.Clone(service), any("audit-kubebridge.bridges.svc.cluster.local"))}, "", ""},
		"testdata/status-login.good.yaml": {map[string]any{
			"listen": ":8080", "hosts": append(slices.Clone(service), "audit-kubebridge.bridges.svc.k8s.example", "bridge.example.com"),
			"tls": map[string]any{"cert": "/etc/kubebridge/status-tls/tls.crt", "key": "/etc/kubebridge/status-tls/tls.key"}, "login": map[string]any{"kubernetes": true},
		}, corev1.URISchemeHTTPS, "scheme: https"},
	} {
		objects := rendering(t, path).objects
		text, _ := configAndAccount(t, objects)
		var c struct{ Status map[string]any }
		if err := yaml.Unmarshal([]byte(text), &c); err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(want.status, c.Status); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
		for _, manifest := range objects {
			if strings.Contains(manifest, "\nkind: PodMonitor") && (!strings.Contains(manifest, want.scrape) || !strings.Contains(manifest, "serverName: bridge.example.com")) {
				t.Errorf("%s: is scraped by\n%s", path, manifest)
			}
			if template := podTemplate(decode(t, manifest)); template != nil {
				pod := template.Spec.Containers[0]
				if got := []corev1.URIScheme{pod.LivenessProbe.HTTPGet.Scheme, pod.ReadinessProbe.HTTPGet.Scheme}; got[0] != want.scheme || got[1] != want.scheme {
					t.Errorf("%s: probes speak %q", path, got)
				}
				mounted := slices.ContainsFunc(pod.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/etc/kubebridge/status-tls" })
				if mounted != (want.scheme != "") {
					t.Errorf("%s: the certificate is mounted: %t", path, mounted)
				}
			}
		}
	}
}

// Every role must be bound to the release's account: an unbound role grants nothing, and a binding to another subject grants
// too much.
func TestBindings(t *testing.T) {
	for _, path := range goodValues(t) {
		roles, bound := map[string]bool{}, map[string]bool{}
		accounts := map[bool]string{} // of the bridge, and of serve
		check := func(ns string, meta metav1.ObjectMeta, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
			bound[ns+"/"+ref.Name] = true
			want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: accounts[strings.HasSuffix(meta.Name, "-serve")], Namespace: namespace}}
			if diff := gocmp.Diff(want, subjects); diff != "" {
				t.Errorf("%s: %s: %s", path, meta.Name, diff)
			}
		}
		var objects []any
		for _, manifest := range rendering(t, path).objects {
			object := decode(t, manifest)
			if template := podTemplate(object); template != nil {
				accounts[isServe(template)] = template.Spec.ServiceAccountName
			}
			objects = append(objects, object)
		}
		for _, object := range objects {
			switch o := object.(type) {
			case *rbacv1.Role:
				roles[o.Namespace+"/"+o.Name] = true
			case *rbacv1.ClusterRole:
				roles["/"+o.Name] = true
			case *rbacv1.RoleBinding:
				check(o.Namespace, o.ObjectMeta, o.RoleRef, o.Subjects)
			case *rbacv1.ClusterRoleBinding:
				check("", o.ObjectMeta, o.RoleRef, o.Subjects)
			}
		}
		if diff := gocmp.Diff(roles, bound); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
}

// Alerts and the dashboard are files of the chart whose braces are not Helm's. A missing file is reported.
func TestFiles(t *testing.T) {
	v := valuesOf(t, "testdata/kafka.good.yaml")
	v["prometheusRule"] = map[string]any{"enabled": true, "labels": map[string]any{"role": "alerts"}}
	v["dashboard"] = map[string]any{"enabled": true}
	const rules = "groups:\n- name: kubebridge\n  rules:\n  - alert: Down\n    expr: up == 0\n    annotations: {summary: '{{ $labels.pod }} is down'}\n"
	for _, c := range []struct{ name, text, missing string }{
		{"files/alerts.yaml", rules, "this chart has no files/alerts.yaml"},
		{"files/dashboard.json", `{"title":"{{job}}"}`, "this chart has no files/dashboard.json"},
	} {
		with := chart(t)
		with.Files = without(with.Files, "files/alerts.yaml", "files/dashboard.json")
		for _, f := range [][2]string{{"files/alerts.yaml", rules}, {"files/dashboard.json", `{"title":"{{job}}"}`}} {
			if f[0] != c.name {
				with.Files = append(with.Files, &common.File{Name: f[0], Data: []byte(f[1])})
			}
		}
		if _, err := render(with, v); err == nil || !strings.Contains(err.Error(), c.missing) {
			t.Errorf("without %s: %v", c.name, err)
		}
		with.Files = append(with.Files, &common.File{Name: c.name, Data: []byte(c.text)})
		r, err := render(with, v)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, manifest := range r.objects {
			switch o := decode(t, manifest).(type) {
			case *monitoringv1.PrometheusRule:
				n++
				if len(o.Spec.Groups) != 1 || o.Spec.Groups[0].Rules[0].Annotations["summary"] != "{{ $labels.pod }} is down" || o.Labels["role"] != "alerts" {
					t.Errorf("the rules:\n%s", manifest)
				}
			case *corev1.ConfigMap:
				if strings.HasSuffix(o.Name, "-dashboard") {
					n++
					if o.Data["audit-kubebridge.json"] != `{"title":"{{job}}"}` || o.Labels["grafana_dashboard"] != "1" {
						t.Errorf("the dashboard:\n%s", manifest)
					}
				}
			}
		}
		if n != 2 {
			t.Errorf("%d of 2 files were rendered", n)
		}
	}
}

// A change that a running bridge can reload needs no new pod; every other change does.
func TestChecksum(t *testing.T) {
	of := func(change func(config map[string]any)) string {
		v := valuesOf(t, "testdata/full.good.yaml")
		change(v["config"].(map[string]any))
		r, err := render(chart(t), v)
		if err != nil {
			t.Fatal(err)
		}
		for _, manifest := range r.objects {
			if template := podTemplate(decode(t, manifest)); template != nil {
				return template.Annotations["checksum/config"]
			}
		}
		return ""
	}
	before := of(func(map[string]any) {})
	for _, c := range []struct {
		name    string
		restart bool
		change  func(map[string]any)
	}{
		{"resources", false, func(c map[string]any) { c["resources"] = []any{"services"} }},
		{"a resource's route", true, func(c map[string]any) {
			c["resources"] = []any{map[string]any{"resource": "services", "headers": map[string]any{"team": "blue"}}}
		}},
		{"exclude", false, func(c map[string]any) { delete(c, "exclude") }},
		{"a sink's resources", false, func(c map[string]any) { c["sinks"].([]any)[0].(map[string]any)["resources"] = []any{"nodes"} }},
		{"the log's level", false, func(c map[string]any) { c["log"].(map[string]any)["level"] = "warn" }},
		{"the log's format", true, func(c map[string]any) { c["log"].(map[string]any)["format"] = "console" }},
		{"the cluster", true, func(c map[string]any) { c["cluster"] = "other" }},
		{"a sink", true, func(c map[string]any) { c["sinks"].([]any)[0].(map[string]any)["linger"] = "1s" }},
	} {
		if after := of(c.change); before == "" || (after != before) != c.restart {
			t.Errorf("%s: %s, before %s", c.name, after, before)
		}
	}
}

func TestMemoryLimit(t *testing.T) {
	for limit, want := range map[string]string{
		"512Mi": "483183820", "1.5Gi": "1449551462", "1G": "900000000", "1000000000": "900000000", "": "", "1e9": "",
	} {
		v := valuesOf(t, "testdata/kafka.good.yaml")
		v["resources"] = map[string]any{"limits": map[string]any{"memory": limit}}
		if limit == "" {
			v["resources"] = map[string]any{"limits": map[string]any{"memory": nil}}
		}
		r, err := render(chart(t), v)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, manifest := range r.objects {
			if template := podTemplate(decode(t, manifest)); template != nil {
				for _, e := range template.Spec.Containers[0].Env {
					if e.Name == "GOMEMLIMIT" {
						got = e.Value
					}
				}
			}
		}
		if got != want {
			t.Errorf("a limit of %q gives GOMEMLIMIT %q, want %q", limit, got, want)
		}
	}
}

func restricted(t *testing.T, template *corev1.PodTemplateSpec) {
	t.Helper()
	evaluator, err := pspolicy.NewEvaluator(pspolicy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := psapi.LevelVersion{Level: psapi.LevelRestricted, Version: psapi.LatestVersion()}
	for _, result := range evaluator.EvaluatePod(level, &template.ObjectMeta, &template.Spec) {
		if !result.Allowed {
			t.Errorf("restricted pods: %s: %s", result.ForbiddenReason, result.ForbiddenDetail)
		}
	}
	for _, c := range slices.Concat(template.Spec.InitContainers, template.Spec.Containers) {
		if c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("container %s can write to its root", c.Name)
		}
	}
}

// isServe reports whether pods are those of `bridge serve`.
func isServe(template *corev1.PodTemplateSpec) bool {
	return template.Spec.Containers[0].Name == "serve"
}

func podTemplate(object any) *corev1.PodTemplateSpec {
	switch o := object.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Template
	case *appsv1.StatefulSet:
		return &o.Spec.Template
	}
	return nil
}

// decode reads a manifest into its type, strictly.
func decode(t *testing.T, manifest string) any {
	t.Helper()
	var of metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(manifest), &of); err != nil {
		t.Fatalf("%v\n%s", err, manifest)
	}
	into := map[string]any{
		"v1/ConfigMap": &corev1.ConfigMap{}, "v1/Secret": &corev1.Secret{}, "v1/Service": &corev1.Service{},
		"v1/ServiceAccount": &corev1.ServiceAccount{}, "v1/Pod": &corev1.Pod{}, "apps/v1/Deployment": &appsv1.Deployment{},
		"apps/v1/StatefulSet": &appsv1.StatefulSet{}, "policy/v1/PodDisruptionBudget": &policyv1.PodDisruptionBudget{},
		"networking.k8s.io/v1/NetworkPolicy":                         &networkingv1.NetworkPolicy{},
		"networking.k8s.io/v1/Ingress":                               &networkingv1.Ingress{},
		"gateway.networking.k8s.io/v1/HTTPRoute":                     &unstructured.Unstructured{},
		"rbac.authorization.k8s.io/v1/Role":                          &rbacv1.Role{},
		"rbac.authorization.k8s.io/v1/RoleBinding":                   &rbacv1.RoleBinding{},
		"rbac.authorization.k8s.io/v1/ClusterRole":                   &rbacv1.ClusterRole{},
		"rbac.authorization.k8s.io/v1/ClusterRoleBinding":            &rbacv1.ClusterRoleBinding{},
		"flowcontrol.apiserver.k8s.io/v1/FlowSchema":                 &flowcontrolv1.FlowSchema{},
		"flowcontrol.apiserver.k8s.io/v1/PriorityLevelConfiguration": &flowcontrolv1.PriorityLevelConfiguration{},
		"monitoring.coreos.com/v1/PodMonitor":                        &monitoringv1.PodMonitor{},
		"monitoring.coreos.com/v1/ServiceMonitor":                    &monitoringv1.ServiceMonitor{},
		"monitoring.coreos.com/v1/PrometheusRule":                    &monitoringv1.PrometheusRule{},
	}[of.APIVersion+"/"+of.Kind]
	if into == nil {
		t.Fatalf("no type is known for\n%s", manifest)
	}
	if err := yaml.UnmarshalStrict([]byte(manifest), into); err != nil {
		t.Errorf("%v\n%s", err, manifest)
	}
	return into
}

// rules writes one line a rule.
func rules(t *testing.T, b *bytes.Buffer, where string, list []rbacv1.PolicyRule) {
	t.Helper()
	b.WriteString("in " + where + "\n")
	for _, r := range list {
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(append([]byte("  "), line...), '\n'))
	}
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (go test -update rewrites it):\n%s", path, diff)
	}
}

func without(list []*common.File, names ...string) (out []*common.File) {
	for _, f := range list {
		if !strings.Contains(strings.Join(names, " "), f.Name) {
			out = append(out, f)
		}
	}
	return out
}

func files(t *testing.T, pattern string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(all) == 0 {
		t.Fatalf("no %s: %v", pattern, err)
	}
	return all
}

// goodValues are values with which the chart is installed: those of tests, and those that the chart shows.
func goodValues(t *testing.T) []string {
	t.Helper()
	all := files(t, "*.good.yaml")
	for _, pattern := range []string{"ci/*-values.yaml", "examples/*/values.yaml"} {
		more, err := filepath.Glob(filepath.Join(chartDir(), pattern))
		if err != nil || len(more) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		all = append(all, more...)
	}
	return all
}

func name(path string) string {
	path = strings.TrimSuffix(path, ".yaml")
	if filepath.Base(path) == "values" {
		path = filepath.Dir(path)
	}
	return filepath.Base(path)
}
