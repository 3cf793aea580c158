package access

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/internal/bus/kafka"
	"github.com/kubebridge/kubebridge/internal/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte("cluster: prod\n"+text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestStatusLogin: a login by the API server requires two permissions for reviews, and read access to one path for the
// bridge's own user.
func TestStatusLogin(t *testing.T) {
	const text = "resources: [pods]\nstatus: {login: {kubernetes: true}}"
	want := []string{
		"everywhere: list,watch pods.",
		"everywhere: get /kubebridge/api/status.",
		"everywhere: create tokenreviews.authentication.k8s.io",
		"everywhere: create subjectaccessreviews.authorization.k8s.io",
	}
	got := permissions(t, text, ClusterOptions{})
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	need, err := ForCluster(parse(t, text+"\ncheckpoint: {file: {path: /x}}\nsinks: [{name: a, stdout: {}}]"), ClusterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var yaml strings.Builder
	if err := need.WriteYAML(&yaml, "bridge", Subject{"ns", "account"}); err != nil || !strings.Contains(yaml.String(), "  - nonResourceURLs: [\"/kubebridge/api/status\"]\n    verbs: [\"get\"]\n") {
		t.Errorf("%v\n%s", err, &yaml)
	}
}

// permissions returns the rules, without those that every bridge has, as lines.
func permissions(t *testing.T, resources string, o ClusterOptions) []string {
	t.Helper()
	if !strings.Contains(resources, "sinks:") {
		resources += "\ncheckpoint: {file: {path: /x}}\nsinks: [{name: a, stdout: {}}]"
	}
	need, err := ForCluster(parse(t, resources), o)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	line := func(namespace string, r Rule) {
		if strings.Contains(strings.Join(r.Why, " "), "identity") || strings.HasPrefix(r.Why[0], "What is installed") {
			return
		}
		where := "everywhere"
		if namespace != "" {
			where = "in " + namespace
		}
		names := ""
		if len(r.Names) > 0 {
			names = "=" + strings.Join(r.Names, ",")
		}
		out = append(out, where+": "+strings.Join(r.Verbs, ",")+" "+strings.Join(r.Resources, ",")+"."+r.Group+names)
	}
	for _, r := range need.Everywhere {
		line("", r)
	}
	for _, namespace := range []string{"a", "b"} {
		for _, r := range need.Within[namespace] {
			line(namespace, r)
		}
	}
	return out
}

// Exactly the permissions for the watched resources are granted, each once.
func TestPermissions(t *testing.T) {
	for name, c := range map[string]struct {
		resources string
		want      []string
	}{
		"merged by group": {"resources: [pods, svc, deploy, statefulsets.apps]", []string{
			"everywhere: list,watch pods,services.", "everywhere: list,watch deployments,statefulsets.apps",
		}},
		"a version is no matter": {"resources: [hpa.v1.autoscaling, {group: cert-manager.io, version: v1, resource: certificates}]", []string{
			"everywhere: list,watch horizontalpodautoscalers.autoscaling", "everywhere: list,watch certificates.cert-manager.io",
		}},
		"a version, or a part of the group": {"resources: [codebases.v2.edp.example.com]", []string{
			"everywhere: list,watch codebases.edp.example.com", "everywhere: list,watch codebases.v2.edp.example.com",
		}},
		"a group that begins like a version": {`resources: [{group: v2.edp.example.com, resource: codebases}, {group: v1.edp.example.com, version: v3, resource: apps}, "*.v3.edp.example.com"]`, []string{
			"everywhere: list,watch apps.v1.edp.example.com", "everywhere: list,watch codebases.v2.edp.example.com", "everywhere: list,watch *.v3.edp.example.com",
		}},
		"namespaces": {"resources: [{resource: pods, namespaces: [a, b]}, nodes]", []string{
			"everywhere: get namespaces.=a,b", "everywhere: list,watch nodes.",
			"in a: list,watch pods.", "in b: list,watch pods.",
		}},
		"selectors ask for get": {"resources: [{resource: pods, labelSelector: x=y}]", []string{"everywhere: get,list,watch pods."}},
		"one name":              {"resources: [{resource: cm, namespaces: [a], fieldSelector: metadata.name=x}]", []string{"everywhere: get namespaces.=a", "in a: get,list,watch configmaps.=x"}},
		"several entries of one resource": {"resources: [{resource: pods, namespaces: [a]}, {resource: po, name: x, labelSelector: x=y, namespaces: [a, b]}, {resource: pods.v1., name: y, fieldSelector: spec.nodeName=n, namespaces: [b]}]", []string{
			"everywhere: get namespaces.=a,b", "in a: get,list,watch pods.", "in b: get,list,watch pods.",
		}},
		"entries of all objects, and of some": {"resources: [pods, {resource: pods, name: x, namespaces: [a]}, {resource: pods, name: y, labelSelector: x=y}]", []string{
			"everywhere: get namespaces.=a", "everywhere: get,list,watch pods.",
		}},
		"excluded namespaces":                          {"resources: [{resource: pods, excludeNamespaces: [a]}]", []string{"everywhere: get,list,watch pods."}},
		"excluded namespaces beside namespaceSelector": {"resources: [{resource: pods, namespaceSelector: x=y, excludeNamespaces: [a]}]", []string{"everywhere: get,list,watch namespaces.", "everywhere: list,watch pods."}},
		"namespaceSelector":                            {"resources: [{resource: pods, namespaceSelector: x=y}]", []string{"everywhere: get,list,watch namespaces.", "everywhere: list,watch pods."}},
		"a group":                                      {"resources: ['*.cert-manager.io', certificates.cert-manager.io]", []string{"everywhere: list,watch *.cert-manager.io"}},
		"a Lease": {"name: x\nresources: [pods]\nleaderElection: {enabled: true}\nsinks: [{name: k, kafka: {brokers: ['k:9092']}}]", []string{
			"everywhere: list,watch pods.", "in a: create leases.coordination.k8s.io", "in a: get,update,watch leases.coordination.k8s.io=kubebridge-x",
		}},
		"standbys that buffer": {"name: x\nresources: [pods]\nleaderElection: {enabled: true, namespace: b}\nbuffer: {path: /buffer, standby: true}\nsinks: [{name: k, kafka: {brokers: ['k:9092']}}]", []string{
			"everywhere: list,watch pods.", "in b: create leases.coordination.k8s.io", "in b: get,update,watch leases.coordination.k8s.io=kubebridge-x",
			"in b: create configmaps.", "in b: get,update configmaps.=kubebridge-x-buffer",
		}},
		"covered elsewhere": {"resources: [{resource: pods, labelSelector: x=y, namespaces: [a]}, {resource: pods, name: x, labelSelector: x!=y}]", []string{"everywhere: get,list,watch pods.", "everywhere: get namespaces.=a"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, permissions(t, c.resources, ClusterOptions{Namespace: "a"}), cmp.Transformer("set", set)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func set(list []string) map[string]bool {
	out := map[string]bool{}
	for _, s := range list {
		out[s] = true
	}
	return out
}

// The pattern of the core group grants neither Secrets nor pods/exec.
func TestCoreGroupIsListed(t *testing.T) {
	got := strings.Join(permissions(t, "resources: ['*.core']\nexclude: [events]", ClusterOptions{}), "\n")
	if !strings.Contains(got, "configmaps,") || strings.Contains(got, "secrets") || strings.Contains(got, "*") || strings.Contains(got, "events") {
		t.Errorf("granted: %s", got)
	}
}

func TestWhatCannotBeGranted(t *testing.T) {
	for resources, says := range map[string]string{
		"resources: ['*.*']": "Secrets",
		"resources: [cert]":  "write it in full",
	} {
		_, err := ForCluster(parse(t, "checkpoint: {file: {path: /x}}\nsinks: [{name: a, stdout: {}}]\n"+resources), ClusterOptions{})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want it to say %q", resources, err, says)
		}
	}
	got := permissions(t, "resources: [{resource: '*.*', labelSelector: a=b}]", ClusterOptions{Everything: true})
	if diff := cmp.Diff([]string{"everywhere: list,watch *.*"}, got[:1]); diff != "" { // without get, which would allow pods/exec
		t.Error(diff)
	}
}

// A pattern must be refused if it is not known how much it matches: a permission for its group would cover more than
// is watched.
func TestOtherPatternsAreRefused(t *testing.T) {
	for _, pattern := range []string{"deploy*.apps", "*s.apps", "deployments.*", "*.*.example.com"} {
		c := &config.Config{Resources: []config.Resource{{Resource: pattern}}, Sinks: []config.Sink{{}}}
		need, err := ForCluster(c, ClusterOptions{Everything: true})
		if err == nil || !strings.Contains(err.Error(), "not known which permissions") {
			t.Errorf("%s: granted %v, error %v", pattern, need.Everywhere, err)
		}
	}
}

// The prefix in the ACL is as long as possible, and the topics are those of the resources.
func TestKafka(t *testing.T) {
	for name, c := range map[string]struct {
		config string
		want   []string
	}{
		"exactly once": {"sinks: [{name: a, kafka: {brokers: ['k:9092']}}]", []string{
			"create --if-not-exists --topic k8s.prod.apps.deployments --partitions 12 ", "--topic k8s.prod.core.pods --partitions 12 --config cleanup.policy=delete",
			"--topic k8s.prod. --resource-pattern-type prefixed", "--topic kubebridge.kubebridge.prod.a --partitions 1 --config cleanup.policy=compact",
			"--operation Read --operation Write --operation Describe --operation DescribeConfigs --operation Create --topic kubebridge.kubebridge.prod.a\n",
			"--transactional-id kubebridge.kubebridge. --resource-pattern-type prefixed",
		}},
		"one topic, made beforehand": {"sinks: [{name: a, kafka: {brokers: ['k:9092'], topic: all, delivery: at-least-once, create: {enabled: false, replicationFactor: 3}}}]\ncheckpoint: {file: {path: /x}}", []string{
			"--topic all --partitions 12 --replication-factor 3", "--operation Write --operation Describe --operation DescribeConfigs --topic all\n",
		}},
		"dead letters": {"sinks: [{name: a, oversize: dead-letter, kafka: {brokers: ['k:9092'], deadLetter: {topic: lost}}}]", []string{
			"--topic lost --partitions 12 --config cleanup.policy=delete", "--operation Create --topic lost\n",
		}},
		"no prefix": {"sinks: [{name: a, kafka: {brokers: ['k:9092'], topic: '{resource}', tombstones: true}}]", []string{
			"DescribeConfigs --operation Create --topic '*'\n", "--topic pods --partitions 12 --config cleanup.policy=compact",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			conf := parse(t, "resources: [pods, deploy]\n"+c.config)
			need := needs(t, conf)
			var b strings.Builder
			if err := need.WriteShell(&b, "User:x", "User:y"); err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if !strings.Contains(b.String(), want) {
					t.Errorf("does not print %q:\n%s", want, b.String())
				}
			}
			if name == "one topic, made beforehand" && strings.Contains(b.String(), "transactional") {
				t.Error("transactions are granted to who makes none")
			}
		})
	}
}

// The topics of all entries are listed.
func TestTopicsOfEntries(t *testing.T) {
	conf := parse(t, `resources:
  - {resource: pods, namespaceSelector: env=prod}
  - {resource: pods, name: canary}
  - {resource: deployments.apps, name: canary, topic: rollouts}
sinks: [{name: a, kafka: {brokers: ["k:1"], topic: "k8s.{cluster}.{resource}.{entry}"}}]
`)
	var names []string
	need := needs(t, conf)
	for _, one := range need.Topics {
		names = append(names, one.Name)
	}
	if want := []string{"k8s.prod.pods._", "k8s.prod.pods.canary", "rollouts"}; !slices.Equal(names[:len(want)], want) {
		t.Errorf("topics are %v, want %v first", names, want)
	}
	if strings.Contains(strings.Join(need.Notes, " "), "Patterns") {
		t.Errorf("the topics are not complete: %v", need.Notes)
	}
}

// needs returns what the first sink needs of Kafka.
func needs(t *testing.T, conf *config.Config) kafka.Needs {
	t.Helper()
	s := &conf.Sinks[0]
	need, err := s.Kafka.Needs(conf.Setup(s), &bus.PermissionOptions{
		Targets: func() ([]bus.Target, error) { return Targets(conf, s, ClusterOptions{}) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return need
}

// A resource's own topic is listed and allowed like the others. Otherwise
// its collections would be suspended at the first event.
func TestTopicsOfResources(t *testing.T) {
	conf := parse(t, `resources:
  - pods
  - {resource: deployments.apps, topic: "rollouts.{cluster}"}
  - {resource: "*.apps", topic: "apps.{resource}"}
  - {resource: services, topic: "k8s.{cluster}.net"}
sinks: [{name: a, kafka: {brokers: ["k:1"], topic: "k8s.{cluster}.{resource}"}}]
`)
	need := needs(t, conf)
	var topics, acls []string
	for _, x := range need.Topics {
		topics = append(topics, x.Name)
	}
	for _, x := range need.ACLs {
		if x.Why == "events" {
			acls = append(acls, fmt.Sprint(x.Name, " ", x.Prefixed))
		}
	}
	if want := []string{"k8s.prod.net", "k8s.prod.pods", "rollouts.prod"}; !slices.Equal(topics[:len(want)], want) {
		t.Errorf("topics are %v, want %v first", topics, want)
	}
	if want := []string{"k8s.prod. true", "rollouts.prod false", "apps. true"}; !slices.Equal(acls, want) {
		t.Errorf("ACLs are for %v, want %v", acls, want)
	}
	var readers []string
	for _, x := range need.Readers {
		readers = append(readers, fmt.Sprint(x.Name, " ", x.Prefixed))
		if !slices.Equal(x.Operations, []string{"Read", "Describe"}) {
			t.Errorf("a reader may %v", x.Operations)
		}
	}
	if !slices.Equal(readers, acls) {
		t.Errorf("readers may read %v, want %v", readers, acls)
	}
	if !strings.Contains(strings.Join(need.Notes, "\n"), "Patterns have more topics") {
		t.Errorf("nothing is said of the pattern's topics: %v", need.Notes)
	}
}
