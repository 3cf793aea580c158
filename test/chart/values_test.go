package chart

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	v2 "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// null removes a value, as does an empty list. If the value is required, the error says so.
func TestValuesAreRemoved(t *testing.T) {
	t.Parallel()
	all := valuesOf(t, filepath.Join(chartDir(), "values.yaml"))
	var paths [][]string
	var walk func(in map[string]any, path []string)
	walk = func(in map[string]any, path []string) {
		for _, key := range slices.Sorted(maps.Keys(in)) {
			here := append(slices.Clone(path), key)
			paths = append(paths, here)
			if below, ok := in[key].(map[string]any); ok {
				walk(below, here)
			}
		}
	}
	walk(all, nil)
	if len(paths) < 100 {
		t.Fatalf("%d values", len(paths))
	}
	refused := regexp.MustCompile(`execution error at \(.*\): (serviceAccount.create is false|config.cluster and config.sinks: nothing is set|.* where no volume is mounted)`)
	isNull := regexp.MustCompile(`(?m)^[^"]*: null$`)
	c := chart(t)
	for _, base := range []string{"testdata/full.good.yaml", "testdata/file-store.good.yaml"} {
		for _, path := range paths {
			for _, with := range []any{nil, []any{}} {
				v := valuesOf(t, base)
				if have := at(all, path); with != nil && fmt.Sprintf("%T", with) != fmt.Sprintf("%T", have) {
					continue
				}
				set(v, path, with)
				r, err := render(c, v)
				if err != nil {
					if !slices.Contains([]string{"serviceAccount", "config", "extraVolumeMounts"}, path[0]) || !refused.MatchString(err.Error()) {
						t.Errorf("%s with %s: %#v: %v", base, strings.Join(path, "."), with, err)
					}
					continue
				}
				for _, manifest := range r.objects {
					decode(t, manifest)
					if isNull.MatchString(manifest) {
						t.Errorf("%s with %s: %#v:\n%s", base, strings.Join(path, "."), with, manifest)
					}
				}
			}
		}
	}
}

func at(in map[string]any, path []string) any {
	for _, key := range path[:len(path)-1] {
		in, _ = in[key].(map[string]any)
	}
	return in[path[len(path)-1]]
}

func set(in map[string]any, path []string, value any) {
	for _, key := range path[:len(path)-1] {
		below, ok := in[key].(map[string]any)
		if !ok {
			below = map[string]any{}
			in[key] = below
		}
		in = below
	}
	in[path[len(path)-1]] = value
}

// The chart as a dependency of another chart: a condition, values from the parent's file and from its user, and global values.
// In a parent's file Helm drops null, so the value is not removed; enabled: false always works.
func TestSubchart(t *testing.T) {
	const own = `
kubebridge:
  enabled: true
  livenessProbe: PROBE
  readinessProbe: {timeoutSeconds: 7}
  config: {cluster: prod-eu-1, resources: [pods], log: null, sinks: [{name: audit, kafka: {brokers: ["kafka:9092"]}}]}
global: {imageRegistry: mirror.example.com, imagePullSecrets: [pull], storageClass: fast}
`
	for name, c := range map[string]struct{ parents, users string }{
		"the parent's values": {strings.Replace(own, "PROBE", "{enabled: false}", 1), "{}"},
		"the user's values":   {"kubebridge: {enabled: false}", strings.Replace(own, "PROBE", "null", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			objects := inParent(t, c.parents, c.users)
			if len(objects) < 8 {
				t.Errorf("%d objects", len(objects))
			}
			template := pods(t, objects)
			bridge := template.Spec.Containers[0]
			if bridge.LivenessProbe != nil || bridge.ReadinessProbe == nil || bridge.ReadinessProbe.TimeoutSeconds != 7 || bridge.ReadinessProbe.PeriodSeconds != 10 {
				t.Errorf("probes: %v, %v", bridge.LivenessProbe, bridge.ReadinessProbe)
			}
			if bridge.Image != "mirror.example.com/kubebridge:0.1.0" || !slices.Equal(template.Spec.ImagePullSecrets, []corev1.LocalObjectReference{{Name: "pull"}}) {
				t.Errorf("image %s, pull secrets %v", bridge.Image, template.Spec.ImagePullSecrets)
			}
		})
	}
	if objects := inParent(t, strings.Replace(own, "PROBE", "null", 1), "kubebridge: {enabled: false}"); len(objects) > 0 {
		t.Errorf("disabled, and renders %d objects", len(objects))
	}
}

// inParent renders a chart that depends on this one, with the values of its file and of its user.
func inParent(t *testing.T, parents, users string) []string {
	t.Helper()
	values := func(text string) (v map[string]any) {
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	child := chart(t)
	parent := &v2.Chart{Values: values(parents), Metadata: &v2.Metadata{
		APIVersion: v2.APIVersionV2, Name: "platform", Version: "1.0.0", AppVersion: "9",
		Dependencies: []*v2.Dependency{{Name: child.Name(), Version: child.Metadata.Version, Condition: "kubebridge.enabled"}},
	}}
	parent.AddDependency(child)
	user := values(users)
	if err := chartutil.ProcessDependencies(parent, user); err != nil {
		t.Fatal(err)
	}
	r, err := render(parent, user)
	if err != nil {
		t.Fatal(err)
	}
	return r.objects
}

// pods returns the template of the bridge's pods.
func pods(t *testing.T, objects []string) *corev1.PodTemplateSpec {
	t.Helper()
	for _, manifest := range objects {
		if template := podTemplate(decode(t, manifest)); template != nil {
			return template
		}
	}
	t.Fatal("nothing makes pods")
	return nil
}

// objectsWith renders the least of values, and more.
func objectsWith(t *testing.T, base, more string) map[string]any {
	t.Helper()
	v := valuesOf(t, base)
	var add map[string]any
	if err := yaml.UnmarshalStrict([]byte(more), &add); err != nil {
		t.Fatal(err)
	}
	maps.Copy(v, add)
	r, err := render(chart(t), v)
	if err != nil {
		t.Fatal(err)
	}
	unready := map[string]bool{} // of Services: whether they have pods that are not ready
	out := map[string]any{"unready": unready}
	for _, manifest := range r.objects {
		object := decode(t, manifest)
		out[strings.TrimPrefix(fmt.Sprintf("%T", object), "*v1.")] = object
		if s, ok := object.(*corev1.Service); ok {
			unready[s.Name] = s.Spec.PublishNotReadyAddresses
		}
		if template := podTemplate(object); template != nil {
			out["pods"] = template
		}
	}
	return out
}

// Common options of other charts must work in this one.
func TestHabits(t *testing.T) {
	const kafka, disk = "testdata/kafka.good.yaml", "testdata/file-store.good.yaml"
	image := func(o map[string]any) any { return o["pods"].(*corev1.PodTemplateSpec).Spec.Containers[0].Image }
	data := func(o map[string]any) any {
		for _, v := range o["pods"].(*corev1.PodTemplateSpec).Spec.Volumes {
			if v.Name == "data" {
				return v.EmptyDir != nil
			}
		}
		return len(o["StatefulSet"].(*appsv1.StatefulSet).Spec.VolumeClaimTemplates)
	}
	budget := func(o map[string]any) any { return o["PodDisruptionBudget"].(*policyv1.PodDisruptionBudget).Spec }
	policy := func(o map[string]any) any { return text(t, o["NetworkPolicy"].(*networkingv1.NetworkPolicy).Spec) }
	settings := func(o map[string]any) any {
		var c struct{ Buffer map[string]any }
		if err := yaml.Unmarshal([]byte(o["ConfigMap"].(*corev1.ConfigMap).Data["config.yaml"]), &c); err != nil {
			t.Fatal(err)
		}
		return text(t, c.Buffer)
	}
	unready := func(o map[string]any) any { return text(t, o["unready"]) }
	auditing := func(o map[string]any) any {
		var c struct{ Audit map[string]any }
		if err := yaml.Unmarshal([]byte(o["ConfigMap"].(*corev1.ConfigMap).Data["config.yaml"]), &c); err != nil {
			t.Fatal(err)
		}
		return text(t, c.Audit)
	}
	for _, c := range []struct {
		name, base, more string
		got              func(map[string]any) any
		want             any
	}{
		{"a registry", kafka, "image: {registry: r.example.com}", image, "r.example.com/kubebridge:0.1.0"},
		{"the global registry wins", kafka, "image: {registry: r.example.com, tag: v1}\nglobal: {imageRegistry: g.example.com}", image, "g.example.com/kubebridge:v1"},
		{"replicaCount", kafka, "replicaCount: 0", func(o map[string]any) any { return *o["Deployment"].(*appsv1.Deployment).Spec.Replicas }, int32(0)},
		{"a volume", disk, "", data, 1},
		{"no volume", disk, "persistence: {enabled: false}", data, true},
		{"a volume by hand", disk, `persistence: {storageClass: "-"}`, func(o map[string]any) any {
			return *o["StatefulSet"].(*appsv1.StatefulSet).Spec.VolumeClaimTemplates[0].Spec.StorageClassName
		}, ""},
		{"the buffer uses nine tenths of its volume", kafka, "buffer: {enabled: true, size: 100Mi}", settings, `{"maxBytes":"94371840","path":"/var/lib/kubebridge-buffer"}`},
		{"a buffer's size of one's own", kafka, "config: {cluster: c, resources: [pods], buffer: {maxBytes: 1Gi}, sinks: [{name: audit, kafka: {brokers: [k]}}]}\nbuffer: {enabled: true}", settings, `{"maxBytes":"1Gi","path":"/var/lib/kubebridge-buffer"}`},
		{"no buffer", kafka, "", settings, "null"},
		{"a buffer on the node's disk is requested", kafka, "buffer: {enabled: true, size: 4Gi}\nresources: {requests: {cpu: 1}}", func(o map[string]any) any {
			r := o["pods"].(*corev1.PodTemplateSpec).Spec.Containers[0].Resources.Requests
			return r.StorageEphemeral().String() + " " + r.Cpu().String()
		}, "4Gi 1"},
		{"a buffer's claim beside the checkpoint's", disk, "buffer: {enabled: true, persistence: {enabled: true}}", func(o map[string]any) any {
			var names []string
			for _, claim := range o["StatefulSet"].(*appsv1.StatefulSet).Spec.VolumeClaimTemplates {
				names = append(names, claim.Name)
			}
			return strings.Join(names, " ")
		}, "data buffer"},
		{"a buffer's claim that is there", kafka, "buffer: {enabled: true, persistence: {enabled: true, existingClaim: mine}}", func(o map[string]any) any {
			s := o["StatefulSet"].(*appsv1.StatefulSet).Spec
			return fmt.Sprint(*s.Replicas, len(s.VolumeClaimTemplates), s.Template.Spec.Containers[0].Resources.Requests.StorageEphemeral().IsZero())
		}, "1 0 true"},
		{
			"audit records use nine tenths of their volume", kafka, "audit: {enabled: true, size: 100Mi, webhook: {tlsSecret: t, tokenSecret: t}}", auditing,
			`{"maxBytes":"94371840","path":"/var/lib/kubebridge-audit","webhook":{"certFile":"/etc/kubebridge/audit-tls/tls.crt","keyFile":"/etc/kubebridge/audit-tls/tls.key","listen":":8444","tokenFile":"/etc/kubebridge/audit-token/token"}}`,
		},
		{
			"audit settings of one's own", kafka, "config: {cluster: c, resources: [pods], audit: {maxBytes: 1Gi, webhook: {listen: ':9000'}}, sinks: [{name: audit, kafka: {brokers: [k]}}]}\naudit: {enabled: true, webhook: {tlsSecret: t, clientCASecret: ca}}", auditing,
			`{"maxBytes":"1Gi","path":"/var/lib/kubebridge-audit","webhook":{"certFile":"/etc/kubebridge/audit-tls/tls.crt","clientCAFile":"/etc/kubebridge/audit-client-ca/ca.crt","keyFile":"/etc/kubebridge/audit-tls/tls.key","listen":":9000"}}`,
		},
		{"API servers reach the webhook", kafka, "config: {cluster: c, resources: [pods], audit: {webhook: {listen: ':9000'}}, sinks: [{name: audit, kafka: {brokers: [k]}}]}\naudit: {enabled: true, webhook: {tlsSecret: t, tokenSecret: t}}", func(o map[string]any) any {
			var ports []string
			for _, p := range o["Service"].(*corev1.Service).Spec.Ports {
				ports = append(ports, fmt.Sprint(p.Name, " ", p.Port))
			}
			return strings.Join(ports, ", ")
		}, "status 8080, audit 9000"},
		{"the only pod gets audit records while a sink's bus is away", kafka, "audit: {enabled: true, webhook: {tlsSecret: t, tokenSecret: t}}", unready, `{"audit-kubebridge":true}`},
		{"with replicas, only pods that are ready get them from API servers", kafka, "audit: {enabled: true, replicas: true, webhook: {tlsSecret: t, tokenSecret: t}}", unready, `{"audit-kubebridge":false,"audit-kubebridge-replicas":true}`},
		{"no audit records", kafka, "", unready, `{"audit-kubebridge":false}`},
		{"an audit claim that is there", kafka, "audit: {enabled: true, webhook: {tlsSecret: t, tokenSecret: t}, persistence: {existingClaim: mine}}", func(o map[string]any) any {
			s := o["StatefulSet"].(*appsv1.StatefulSet).Spec
			return fmt.Sprint(*s.Replicas, len(s.VolumeClaimTemplates))
		}, "1 0"},
		{
			"peers of the audit port", kafka, "audit: {enabled: true, webhook: {tlsSecret: t, tokenSecret: t}}\nnetworkPolicy: {enabled: true, ingress: {audit: {from: [{ipBlock: {cidr: 10.0.0.1/32}}]}}}", policy,
			`{"ingress":[{"ports":[{"port":"status","protocol":"TCP"}]},{"from":[{"ipBlock":{"cidr":"10.0.0.1/32"}}],"ports":[{"port":"audit","protocol":"TCP"}]}],"podSelector":{"matchLabels":{"app.kubernetes.io/instance":"audit","app.kubernetes.io/name":"kubebridge"}},"policyTypes":["Ingress"]}`,
		},
		{"a broken upgrade can be corrected", disk, "", func(o map[string]any) any {
			return o["StatefulSet"].(*appsv1.StatefulSet).Spec.PodManagementPolicy
		}, appsv1.ParallelPodManagement},
		{"minAvailable of 0", kafka, "podDisruptionBudget: {minAvailable: 0}", func(o map[string]any) any {
			b := budget(o).(policyv1.PodDisruptionBudgetSpec)
			return b.MaxUnavailable == nil && b.MinAvailable.IntVal == 0
		}, true},
		{"a probe of one's own", kafka, "startupProbe: {tcpSocket: {port: status}}", func(o map[string]any) any {
			p := o["pods"].(*corev1.PodTemplateSpec).Spec.Containers[0].StartupProbe
			return p.TCPSocket != nil && p.HTTPGet == nil
		}, true},
		{
			"egress to DNS and the API server", kafka, "networkPolicy: {enabled: true, egress: {enabled: true, dns: {to: [{podSelector: {}}]}, apiServer: {ports: [6443]}}}", policy,
			`{"egress":[{"ports":[{"port":53,"protocol":"UDP"},{"port":53,"protocol":"TCP"}],"to":[{"podSelector":{}}]},{"ports":[{"port":6443,"protocol":"TCP"}]}],"ingress":[{"ports":[{"port":"status","protocol":"TCP"}]}],"podSelector":{"matchLabels":{"app.kubernetes.io/instance":"audit","app.kubernetes.io/name":"kubebridge"}},"policyTypes":["Ingress","Egress"]}`,
		},
		{
			"peers of each port", disk, "networkPolicy: {enabled: true, ingress: {status: {from: [{namespaceSelector: {}}]}, nats: {from: [{ipBlock: {cidr: 10.0.0.0/8}}]}}}", policy,
			`{"ingress":[{"from":[{"namespaceSelector":{}},{"podSelector":{"matchLabels":{"app.kubernetes.io/instance":"audit","app.kubernetes.io/name":"kubebridge-test"}}}],"ports":[{"port":"status","protocol":"TCP"}]},{"from":[{"ipBlock":{"cidr":"10.0.0.0/8"}}],"ports":[{"port":"nats-1","protocol":"TCP"}]}],"podSelector":{"matchLabels":{"app.kubernetes.io/instance":"audit","app.kubernetes.io/name":"kubebridge"}},"policyTypes":["Ingress"]}`,
		},
		{"labels that replace no selector", kafka, "commonLabels: {app.kubernetes.io/name: other, team: a}\npodLabels: {team: b}", func(o map[string]any) any {
			l := o["pods"].(*corev1.PodTemplateSpec).Labels
			return l["app.kubernetes.io/name"] + " " + l["team"]
		}, "kubebridge b"},
		{"OpenShift chooses users and groups", kafka, "podSecurityContext: {runAsUser: null, fsGroup: null}", func(o map[string]any) any {
			c := o["pods"].(*corev1.PodTemplateSpec).Spec.SecurityContext
			return c.RunAsUser == nil && c.FSGroup == nil && *c.RunAsNonRoot
		}, true},
		{"another namespace", kafka, "namespaceOverride: elsewhere", func(o map[string]any) any { return o["Deployment"].(*appsv1.Deployment).Namespace }, "elsewhere"},
		{"flow control", kafka, "flowControl: {enabled: true, nominalConcurrencyShares: 5}", func(o map[string]any) any {
			schema, level := o["FlowSchema"].(*flowcontrolv1.FlowSchema), o["PriorityLevelConfiguration"].(*flowcontrolv1.PriorityLevelConfiguration)
			subject := schema.Spec.Rules[0].Subjects[0].ServiceAccount
			return fmt.Sprintf("%t %d %s %s", schema.Spec.PriorityLevelConfiguration.Name == level.Name, *level.Spec.Limited.NominalConcurrencyShares, subject.Namespace, subject.Name)
		}, "true 5 bridges audit-kubebridge"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := gocmp.Diff(c.want, c.got(objectsWith(t, c.base, c.more))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	raw, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	json, err := yaml.YAMLToJSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	return string(json)
}

// Users of other charts reach the status by an Ingress or a Gateway, and move what Prometheus and Grafana read to another namespace.
func TestStatusIsExposed(t *testing.T) {
	o := objectsWith(t, "testdata/ingress.good.yaml", "dashboard: {enabled: false}\nhttpRoute: {enabled: true, parentRefs: [{name: web}], hostnames: [status.example.com]}")
	var monitor, rule metav1.Object
	for _, manifest := range rendering(t, "testdata/ingress.good.yaml").objects {
		switch object := decode(t, manifest).(type) {
		case *corev1.ConfigMap:
			if object.Data["config.yaml"] == "" {
				o["dashboard"] = object
			}
		case *monitoringv1.ServiceMonitor:
			monitor = object
			if got := text(t, object.Spec.NamespaceSelector); got != `{"matchNames":["bridges"]}` {
				t.Errorf("the monitor selects pods of %s", got)
			}
		case *monitoringv1.PrometheusRule:
			rule = object
			if last := object.Spec.Groups[len(object.Spec.Groups)-1]; len(last.Rules) != 1 || last.Rules[0].Alert != "Mine" {
				t.Errorf("the last rules are %v", last)
			}
		}
	}
	config := o["ConfigMap"].(*corev1.ConfigMap).Data["config.yaml"]
	for _, host := range []string{"bridge.example.com", "status.example.com"} {
		if !strings.Contains(config, "- "+host+"\n") {
			t.Errorf("the status refuses requests to %s:\n%s", host, config)
		}
	}
	pod, deployment, service := o["pods"].(*corev1.PodTemplateSpec).Spec, o["Deployment"].(*appsv1.Deployment), o["Service"].(*corev1.Service)
	for _, c := range []struct{ got, want any }{
		{o["Ingress"].(*networkingv1.Ingress).Spec.Rules[0].HTTP.Paths[0].Backend.Service.Port.Name, "status"},
		{text(t, o["*unstructured.Unstructured"].(*unstructured.Unstructured).Object["spec"]), `{"hostnames":["status.example.com"],"parentRefs":[{"name":"web"}],"rules":[{"backendRefs":[{"name":"audit-kubebridge","port":80}]}]}`},
		{service.Spec.Ports[0].Port, int32(80)},
		{service.Spec.Ports[0].NodePort, int32(30080)},
		{service.Spec.LoadBalancerIP + " " + *service.Spec.LoadBalancerClass + " " + service.Spec.LoadBalancerSourceRanges[0], "10.0.0.7 internal 10.0.0.0/8"},
		{deployment.Spec.Strategy.RollingUpdate.MaxSurge.IntVal, int32(2)},
		{pod.SchedulerName, "volcano"},
		{*pod.HostUsers, false},
		{*pod.AutomountServiceAccountToken, false},
		{len(pod.Containers[0].ResizePolicy), 1},
		{monitor.GetNamespace() + text(t, monitor.GetAnnotations()), `monitoring{"e":"f"}`},
		{rule.GetNamespace() + text(t, rule.GetAnnotations()), `monitoring{"g":"h"}`},
		{o["dashboard"].(*corev1.ConfigMap).Namespace + text(t, o["dashboard"].(*corev1.ConfigMap).Annotations), `monitoring{"grafana_folder":"Kubernetes"}`},
	} {
		if c.got != c.want {
			t.Errorf("got %v, want %v", c.got, c.want)
		}
	}
}

// Values that users of other charts bring along render: global values, pull secrets in two forms, additional volumes, environment and objects.
func TestValuesOfOtherCharts(t *testing.T) {
	r := rendering(t, "testdata/other-charts.values.yaml")
	for _, manifest := range r.objects {
		decode(t, manifest)
	}
	if len(r.objects) < 15 {
		t.Errorf("%d objects", len(r.objects))
	}
}

// The bridge reads the user's object, the chart creates no other, and the permissions still follow config.
func TestExistingConfig(t *testing.T) {
	for _, c := range []struct{ values, want string }{
		{"existingConfigMap: mine", "mine"},
		{"existingConfigSecret: mine", "mine"},
		{"existingConfigSecret: mine\nconfig: {}\nrbac: {extraRules: [{apiGroups: [''], resources: [pods], verbs: [list, watch]}]}", "mine"},
	} {
		o := objectsWith(t, "testdata/kafka.good.yaml", c.values)
		if o["ConfigMap"] != nil {
			t.Errorf("%s: the chart makes a ConfigMap, too", c.values)
		}
		v := o["pods"].(*corev1.PodTemplateSpec).Spec.Volumes[0]
		if v.ConfigMap != nil && v.ConfigMap.Name != c.want || v.Secret != nil && v.Secret.SecretName != c.want {
			t.Errorf("%s: the volume is %v", c.values, v)
		}
		granted := text(t, o["ClusterRole"])
		if !strings.Contains(granted, `"pods"`) {
			t.Errorf("%s: granted is %s", c.values, granted)
		}
	}
	v := valuesOf(t, "testdata/kafka.good.yaml")
	v["existingConfigMap"], v["existingConfigSecret"] = "a", "b"
	if _, err := render(chart(t), v); err == nil || !strings.Contains(err.Error(), "existingConfigMap and existingConfigSecret are both set") {
		t.Errorf("both: %v", err)
	}
}

// A preset adds its resources. Resources that are already configured keep their options, under any name.
func TestPresets(t *testing.T) {
	const more = `
presets: {workloads: {enabled: true}, audit: {enabled: true}}
config:
  cluster: c
  resources: [{resource: po, metadataOnly: true}, deployments.v1.apps, cm]
  sinks: [{name: live, nats: {url: "nats://nats:4222"}}]
`
	text := objectsWith(t, "testdata/kafka.good.yaml", more)["ConfigMap"].(*corev1.ConfigMap).Data["config.yaml"]
	var config struct{ Resources []any }
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for _, entry := range config.Resources {
		name, _ := entry.(string)
		if e, ok := entry.(map[string]any); ok {
			name = e["resource"].(string)
		}
		times[name]++
	}
	for name, want := range map[string]int{
		"po": 1, "pods": 0, "deployments.v1.apps": 1, "deployments.apps": 0, "cm": 1, "configmaps": 0,
		"jobs.batch": 1, "secrets": 1, "clusterrolebindings.rbac.authorization.k8s.io": 1, "events": 0,
	} {
		if times[name] != want {
			t.Errorf("%s is there %d times:\n%s", name, times[name], text)
		}
	}
}

// The notes print commands for the TLS and the login that are configured, and nothing that is secret or a placeholder of the configuration.
func TestNotes(t *testing.T) {
	for _, n := range []string{"kafka", "file-store", "full", "alone", "serve", "serve-local"} {
		path := "testdata/" + n + ".good.yaml"
		golden(t, strings.Replace(path, ".good.yaml", ".notes.golden", 1), []byte(rendering(t, path).notes))
	}
	v := valuesOf(t, "testdata/kafka.good.yaml")
	var config map[string]any
	if err := yaml.Unmarshal([]byte(`
cluster: "${file:/etc/kubebridge/credentials/cluster}"
resources: [pods]
sinks:
  - {name: a, kafka: {brokers: ["${env:BROKER}"], sasl: {mechanism: PLAIN, username: u, password: hunter2}}}
  - {name: b, nats: {url: "tls://user:hunter2@nats:4222", auth: {creds: /x.creds}, tls: {ca: /ca}}}
`), &config); err != nil {
		t.Fatal(err)
	}
	v["config"], v["configIn"] = config, "Secret"
	r, err := render(chart(t), v)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(r.notes, "${") || strings.Contains(r.notes, "hunter2") {
		t.Errorf("the notes show a placeholder or a password:\n%s", r.notes)
	}
	for _, want := range []string{"--bootstrap-server BROKER:9092", "nats sub -s tls://nats:4222 --creds user.creds --tlsca ca.crt 'k8s.>'", "plain.PlainLoginModule"} {
		if !strings.Contains(r.notes, want) {
			t.Errorf("the notes lack %s:\n%s", want, r.notes)
		}
	}
}
