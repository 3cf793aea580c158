package chart

import (
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// permission is one thing that an account may do. An empty namespace or name is any.
type permission struct{ Namespace, Group, Resource, Name, Verb string }

// The chart and the program compute independently which permissions a configuration needs. A permission that only one of them
// grants is either superfluous there or missing in the other.
func TestAccessIsTheBridges(t *testing.T) {
	t.Parallel()
	// Only `bridge rbac` grants these, because it does not consider installations without ClusterRoles. docs/install.md
	// describes such installations: the cluster's UID is taken from the configuration, and discovery is repeated every 30 s.
	withoutClusterRole := []permission{
		{"", "", "namespaces", "kube-system", "get"},
		{"", "apiextensions.k8s.io", "customresourcedefinitions", "", "list"},
		{"", "apiextensions.k8s.io", "customresourcedefinitions", "", "watch"},
		{"", "apiregistration.k8s.io", "apiservices", "", "list"},
		{"", "apiregistration.k8s.io", "apiservices", "", "watch"},
	}
	for _, path := range goodValues(t) {
		t.Run(name(path), func(t *testing.T) {
			v := valuesOf(t, path)
			rbac, _ := v["rbac"].(map[string]any)
			if rbac["create"] == false {
				_, account := configAndAccount(t, rendering(t, path).objects)
				if got := permissions(t, rendering(t, path).objects, account); len(got) > 0 {
					t.Errorf("rbac.create is false, and granted is %v", got)
				}
				rbac["create"] = true // the chart grants this elsewhere
			}
			r, err := render(chart(t), v)
			if err != nil {
				t.Fatal(err)
			}
			config, account := configAndAccount(t, r.objects)
			want := askBridge(t, config, account, rbac["allowEverything"] == true)
			if rbac["clusterScope"] == false {
				for _, p := range withoutClusterRole {
					if !want[p] {
						t.Errorf("bridge rbac does not grant %v: it is no difference any more", p)
					}
					delete(want, p)
				}
			}
			got := permissions(t, r.objects, account)
			if len(got) == 0 {
				t.Error("the chart grants nothing")
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("-bridge rbac +chart:\n%s", diff)
			}
		})
	}
}

// configAndAccount finds the bridge's configuration in a rendering, and what its pods run as.
func configAndAccount(t *testing.T, manifests []string) (config, account string) {
	t.Helper()
	for _, manifest := range manifests {
		object := decode(t, manifest)
		switch o := object.(type) {
		case *corev1.ConfigMap:
			config += o.Data["config.yaml"]
		case *corev1.Secret:
			config += string(o.Data["config.yaml"])
		}
		if template := podTemplate(object); template != nil && !isServe(template) {
			account = template.Spec.ServiceAccountName
		}
	}
	if config == "" || account == "" {
		t.Fatalf("account %q, configuration %q", account, config)
	}
	return config, account
}

// askBridge returns what `bridge rbac` prints for the configuration.
func askBridge(t *testing.T, config, account string, everything bool) map[permission]bool {
	t.Helper()
	dir := t.TempDir()
	for _, f := range []string{"key", "password"} {
		write(t, filepath.Join(dir, "credentials", f), "0123456789abcdef")
	}
	file := write(t, filepath.Join(dir, "config.yaml"), strings.ReplaceAll(config, "/etc/kubebridge/", dir+"/"))
	args := []string{"rbac", "-c", file, "--namespace", namespace, "--service-account", account}
	if everything {
		args = append(args, "--allow-everything")
	}
	var problems strings.Builder
	cmd := exec.CommandContext(t.Context(), bridge, args...)
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, &problems, config)
	}
	var manifests []string
	for _, text := range releaseutil.SplitManifests(string(out)) {
		if strings.Contains(text, "\nkind: ") { // else the comment at the head
			manifests = append(manifests, text)
		}
	}
	return permissions(t, manifests, account)
}

// permissions returns what the bindings in the manifests grant to the account, without permissions that another one includes.
func permissions(t *testing.T, manifests []string, account string) map[permission]bool {
	t.Helper()
	type ref struct{ namespace, kind, name string }
	rules, bound := map[ref][]rbacv1.PolicyRule{}, map[string][]ref{} // by the namespace they are for
	bind := func(meta metav1.ObjectMeta, to rbacv1.RoleRef, subjects []rbacv1.Subject) {
		if !slices.Contains(subjects, rbacv1.Subject{Kind: "ServiceAccount", Name: account, Namespace: namespace}) {
			return
		}
		r := ref{meta.Namespace, to.Kind, to.Name}
		if to.Kind == "ClusterRole" {
			r.namespace = ""
		}
		bound[meta.Namespace] = append(bound[meta.Namespace], r)
	}
	for _, manifest := range manifests {
		switch o := decode(t, manifest).(type) {
		case *rbacv1.Role:
			rules[ref{o.Namespace, "Role", o.Name}] = o.Rules
		case *rbacv1.ClusterRole:
			rules[ref{"", "ClusterRole", o.Name}] = o.Rules
		case *rbacv1.RoleBinding:
			bind(o.ObjectMeta, o.RoleRef, o.Subjects)
		case *rbacv1.ClusterRoleBinding:
			bind(o.ObjectMeta, o.RoleRef, o.Subjects)
		}
	}
	all := map[permission]bool{}
	for where, refs := range bound {
		for _, r := range refs {
			for _, rule := range rules[r] {
				for p := range each(where, rule) {
					all[p] = true
				}
			}
		}
	}
	granted := slices.Collect(maps.Keys(all))
	maps.DeleteFunc(all, func(p permission, _ bool) bool {
		return slices.ContainsFunc(granted, func(wider permission) bool { return wider != p && wider.includes(p) })
	})
	return all
}

func each(where string, rule rbacv1.PolicyRule) func(func(permission) bool) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	return func(yield func(permission) bool) {
		for _, path := range rule.NonResourceURLs {
			for _, verb := range rule.Verbs {
				if !yield(permission{Resource: path, Verb: verb}) {
					return
				}
			}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					for _, verb := range rule.Verbs {
						p := permission{where, group, resource, name, verb}
						if group == "" && resource == "namespaces" && name == where {
							p.Namespace = "" // the API server takes a namespace to be in itself
						}
						if !yield(p) {
							return
						}
					}
				}
			}
		}
	}
}

func (p permission) includes(other permission) bool {
	return (p.Namespace == "" || p.Namespace == other.Namespace) &&
		(p.Group == "*" || p.Group == other.Group) &&
		(p.Resource == "*" || p.Resource == other.Resource) &&
		(p.Name == "" || p.Name == other.Name) &&
		p.Verb == other.Verb
}
