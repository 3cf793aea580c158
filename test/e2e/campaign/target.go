package campaign

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

const (
	// watchedLabel is the label that collections with a selector select by, with the value "yes".
	watchedLabel = "watched"
	// shownNote is the annotation that collections with a filter leave objects out by, with the value "no".
	shownNote = "shown"
	// noiseNote is the annotation that collections may ignore.
	noiseNote = "noise"
)

// target is a type and how it is watched.
type target struct {
	kube.Type
	selector bool   // only what has the label
	filter   bool   // not what the annotation hides
	ignore   bool   // changes of the noise are none
	diff     string // as in the configuration
	costly   bool   // in all namespaces, with everything that takes time for an object
}

// choose lets the seed choose how the types are watched.
func choose(types []target, r *chance) {
	for i := range types {
		t := &types[i]
		t.filter = r.IntN(3) == 0
		// A change of hidden values alone is none to a bridge without a hash key, where something is ignored.
		t.ignore = r.IntN(3) == 0 && t.Type != kube.Secrets
		if r.IntN(3) == 0 {
			t.diff = []string{"patch", "before", "both"}[r.IntN(3)]
		}
	}
}

// resource is its entry in the configuration.
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

// published is what a consumer must have of a body, as text: without what is ignored, and what changes with that.
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
