package restore

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// skipReason returns why an object of this kind is not restored; "" if it is.
func skipReason(u *unstructured.Unstructured) string {
	gk := u.GroupVersionKind().GroupKind()
	switch gk {
	case schema.GroupKind{Kind: "Event"}, schema.GroupKind{Group: "events.k8s.io", Kind: "Event"}:
		return "it is an event"
	case schema.GroupKind{Kind: "Node"}, schema.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"}, schema.GroupKind{Kind: "Endpoints"}:
		return "another component creates it"
	case schema.GroupKind{Kind: "Pod"}, schema.GroupKind{Group: "discovery.k8s.io", Kind: "EndpointSlice"}:
		if metav1.GetControllerOf(u) != nil {
			return "its controller creates it again"
		}
	case schema.GroupKind{Kind: "Secret"}:
		if kind, _, _ := unstructured.NestedString(u.Object, "type"); kind == "kubernetes.io/service-account-token" {
			return "it is the token of a ServiceAccount, which gets another one"
		}
	case schema.GroupKind{Group: "batch", Kind: "Job"}:
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		for _, c := range conditions {
			if m, ok := c.(map[string]any); ok && m["status"] == "True" && (m["type"] == "Complete" || m["type"] == "Failed") {
				return "it had ended, and would run again"
			}
		}
	}
	if u.GetDeletionTimestamp() != nil {
		return "it was being deleted"
	}
	return ""
}

// powerful reports whether objects of a kind grant rights or change what the API server does. A user who can make the
// restore write one controls the cluster.
func powerful(gk schema.GroupKind) bool {
	groups := []string{"rbac.authorization.k8s.io", "admissionregistration.k8s.io", "apiregistration.k8s.io", "apiextensions.k8s.io"}
	return slices.Contains(groups, gk.Group)
}

var assigned = []string{
	"pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller", "pv.kubernetes.io/provisioned-by",
	"volume.kubernetes.io/selected-node", "volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner",
}

// strip removes the fields that a cluster assigns.
func strip(u *unstructured.Unstructured) {
	for _, f := range []string{
		"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink",
		"deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences",
	} {
		unstructured.RemoveNestedField(u.Object, "metadata", f)
	}
	delete(u.Object, "status")
	if a := u.GetAnnotations(); a != nil {
		for _, name := range assigned {
			delete(a, name)
		}
		u.SetAnnotations(a)
	}
	protections := func(f string) bool { return strings.HasPrefix(f, "kubernetes.io/pv") }
	if left := slices.DeleteFunc(u.GetFinalizers(), protections); len(left) > 0 {
		u.SetFinalizers(left)
	} else {
		unstructured.RemoveNestedField(u.Object, "metadata", "finalizers")
	}
	drop := func(path ...string) { unstructured.RemoveNestedField(u.Object, path...) }
	switch u.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Kind: "Namespace"}:
		drop("spec")
	case schema.GroupKind{Kind: "Service"}:
		if ip, _, _ := unstructured.NestedString(u.Object, "spec", "clusterIP"); ip != "None" {
			drop("spec", "clusterIP")
			drop("spec", "clusterIPs")
		}
		drop("spec", "healthCheckNodePort")
	case schema.GroupKind{Kind: "PersistentVolumeClaim"}:
		drop("spec", "volumeName")
	case schema.GroupKind{Kind: "PersistentVolume"}:
		drop("spec", "claimRef", "uid")
		drop("spec", "claimRef", "resourceVersion")
	case schema.GroupKind{Kind: "ServiceAccount"}:
		drop("secrets")
	case schema.GroupKind{Kind: "Pod"}:
		drop("spec", "nodeName")
		dropTokens(u)
	case schema.GroupKind{Group: "batch", Kind: "Job"}:
		if manual, _, _ := unstructured.NestedBool(u.Object, "spec", "manualSelector"); !manual {
			drop("spec", "selector")
			for _, label := range []string{"controller-uid", "batch.kubernetes.io/controller-uid", "job-name", "batch.kubernetes.io/job-name"} {
				drop("metadata", "labels", label)
				drop("spec", "template", "metadata", "labels", label)
			}
		}
	}
}

const tokenVolume = "kube-api-access-"

func dropTokens(u *unstructured.Unstructured) {
	isToken := func(v any) bool {
		m, _ := v.(map[string]any)
		name, _ := m["name"].(string)
		return strings.HasPrefix(name, tokenVolume)
	}
	if volumes, ok, _ := unstructured.NestedSlice(u.Object, "spec", "volumes"); ok {
		_ = unstructured.SetNestedSlice(u.Object, slices.DeleteFunc(volumes, isToken), "spec", "volumes") // cannot fail: spec was read as a map above
	}
	for _, field := range []string{"containers", "initContainers"} {
		containers, ok, _ := unstructured.NestedSlice(u.Object, "spec", field)
		if !ok {
			continue
		}
		for _, c := range containers {
			m, _ := c.(map[string]any)
			if mounts, ok := m["volumeMounts"].([]any); ok {
				m["volumeMounts"] = slices.DeleteFunc(mounts, isToken)
			}
		}
		_ = unstructured.SetNestedSlice(u.Object, containers, "spec", field)
	}
}

const (
	rankNamespace  = 0
	rankDefinition = 1
	rankOther      = 6
)

// groupRanks and coreRanks are when objects are restored, by the group, and in the core group by the kind: lower ranks
// first.
var (
	groupRanks = map[string]int{
		"apiextensions.k8s.io": rankDefinition, "rbac.authorization.k8s.io": 2, "scheduling.k8s.io": 2, "storage.k8s.io": 3,
		"apps": 5, "batch": 5, "admissionregistration.k8s.io": 7, "apiregistration.k8s.io": 7, // these two act on all later writes
	}
	coreRanks = map[string]int{
		"Namespace": rankNamespace, "ServiceAccount": 2, "ConfigMap": 2, "Secret": 2, "LimitRange": 2, "ResourceQuota": 2,
		"PersistentVolume": 3, "PersistentVolumeClaim": 3, "Service": 4, "Pod": 5, "ReplicationController": 5, "PodTemplate": 5,
	}
)

func rank(gk schema.GroupKind) int {
	rank, known := groupRanks[gk.Group]
	if gk.Group == "" {
		rank, known = coreRanks[gk.Kind]
	}
	if !known {
		return rankOther
	}
	return rank
}
