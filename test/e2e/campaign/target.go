package campaign

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

const (
	// watchedLabel is the label that collections with a selector select by, with the value "yes".
	watchedLabel = "watched"
	// shownNote is an annotation. Collections with a filter leave out the objects in which its value is "no".
	shownNote = "shown"
	// noiseNote is an annotation whose changes some collections ignore.
	noiseNote = "noise"
)

// target is a type and how it is watched.
type target struct {
	kube.Type
	selector bool   // only objects with watchedLabel
	filter   bool   // no objects that shownNote leaves out
	ignore   bool   // changes of noiseNote alone are ignored
	diff     string // the value of diff in the configuration
	costly   bool   // in all namespaces, with all settings that cost time for each object
}

// choose lets the seed choose how the types are watched.
func choose(types []target, r *chance) {
	for i := range types {
		t := &types[i]
		t.filter = r.IntN(3) == 0
		// With an ignore rule and without a hash key, the bridge misses changes of redacted values alone: see docs/configuration.md.
		t.ignore = r.IntN(3) == 0 && t.Type != kube.Secrets
		if r.IntN(3) == 0 {
			t.diff = []string{"patch", "before", "both"}[r.IntN(3)]
		}
	}
}

// resource returns the type's entry in the configuration.
func (t target) resource(namespace string) bridge.Resource {
	r := bridge.Resource{Resource: t.ResourceID(), Namespaces: []string{namespace}, Diff: t.diff, VerifyEvery: "1m"}
	if t.selector {
		r.LabelSelector = watchedLabel + "=yes"
	}
	if t.filter {
		r.Filter = `annotations[?"` + shownNote + `"].orValue("yes") != "no"`
	}
	if t.costly {
		r.Namespaces, r.ChangedBy = nil, true
		r.Filter += ` && (!has(object.spec.items) || !object.spec.items.exists(i, i == "nothing"))`
	}
	if t.ignore {
		r.Ignore = []string{"metadata.annotations." + noiseNote}
	}
	return r
}

// selects reports whether an object's state is published.
func (t target) selects(u *unstructured.Unstructured) bool {
	return (!t.selector || u.GetLabels()[watchedLabel] == "yes") && (!t.filter || u.GetAnnotations()[shownNote] != "no")
}

// published returns the part of a body that a consumer must have, as text. If noiseNote is ignored, it leaves out that annotation, and the
// resourceVersion and generation, which change with it.
func (t target) published(body map[string]any) string {
	if !t.ignore {
		return canonical(body)
	}
	body = clone(body)
	unstructured.RemoveNestedField(body, "metadata", "annotations", noiseNote)
	unstructured.RemoveNestedField(body, "metadata", "resourceVersion")
	unstructured.RemoveNestedField(body, "metadata", "generation")
	return canonical(body)
}
