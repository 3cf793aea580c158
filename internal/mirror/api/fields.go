package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	operator "k8s.io/apimachinery/pkg/selection"

	"github.com/kubebridge/kubebridge/internal/mirror"
	"github.com/kubebridge/kubebridge/internal/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// selectable is a field of an object that field selectors know.
type selectable struct {
	paths []string // of names with dots; the value is the first one that is not empty
	none  string   // the value if the object has none
}

// selectableFields are those of Kubernetes' own resources, as the API server knows them (ToSelectableFields in its packages pkg/registry). A label
// that is not the path of its value has it behind "=". All resources have metadata.name, and metadata.namespace.
var selectableFields = map[string][]string{
	"pods": {
		"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
		"status.phase", "status.podIP", "status.nominatedNodeName",
	},
	"nodes":                  {"spec.unschedulable"},
	"namespaces":             {"status.phase"},
	"services":               {"spec.clusterIP", "spec.type"},
	"secrets":                {"type"},
	"replicationcontrollers": {"status.replicas"},
	"replicasets.apps":       {"status.replicas"},
	"jobs.batch":             {"status.successful=status.succeeded"},
	"events": {
		"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion",
		"involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "source=source.component|reportingComponent", "type",
	},
	"events.events.k8s.io": {
		"regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid", "regarding.apiVersion",
		"regarding.resourceVersion", "regarding.fieldPath", "reason", "reportingController", "type",
	},
	"certificatesigningrequests.certificates.k8s.io": {"spec.signerName"},
	"resourceslices.resource.k8s.io":                 {"spec.nodeName", "spec.driver"},
}

// absentValues are the values of fields that an object does not have, where they are not empty.
var absentValues = map[string]string{"spec.hostNetwork": "false", "spec.unschedulable": "false", "status.replicas": "0", "status.successful": "0"}

// knownFields returns the fields that field selectors know of a resource, by label.
func (k *kind) knownFields() map[string]selectable {
	out := map[string]selectable{}
	for _, text := range selectableFields[k.resource.ID.Name] {
		label, paths, found := strings.Cut(text, "=")
		if !found {
			paths = label
		}
		out[label] = selectable{strings.Split(paths, "|"), absentValues[label]}
	}
	for _, path := range k.fields {
		label := strings.TrimPrefix(path, ".")
		out[label] = selectable{paths: []string{label}}
	}
	return out
}

// find looks up the fields that the field selector names. It returns an error if the resource does not have one of them.
func (o *options) find(k *kind) error {
	if o.selector == nil {
		return nil
	}
	var known map[string]selectable
	for _, r := range o.selector.Requirements() {
		if r.Field == "metadata.name" || r.Field == "metadata.namespace" {
			continue
		}
		if known == nil {
			known = k.knownFields()
		}
		f, ok := known[r.Field]
		if !ok {
			labels := append(slices.Sorted(maps.Keys(known)), "metadata.name", "metadata.namespace")
			return apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s: fields of %s that bridge serve knows are %s",
				r.Field, k.groupResource(), strings.Join(labels, ", ")))
		}
		if o.fields == nil {
			o.fields = map[string]selectable{}
		}
		o.fields[r.Field] = f
	}
	return nil
}

// readIn notes what the collections of the resource have in the era that is read.
func (o *options) readIn(r *mirror.Resource, era uint64) {
	if o.fields != nil {
		o.selections = r.Selections(era)
	}
}

// selectsFields returns whether the field selector selects an object.
func (o *options) selectsFields(x *store.Object) selection {
	if o.selector == nil {
		return selected
	}
	result := selected
	for _, r := range o.selector.Requirements() {
		value, known := o.field(x, r.Field)
		switch {
		case !known:
			result = undecided
		case (value == r.Value) == (r.Operator == operator.NotEquals):
			return notSelected
		}
	}
	return result
}

// field returns the value of a field for field selectors. known is false if the bus does not have this part of the object.
func (o *options) field(x *store.Object, label string) (value string, known bool) {
	switch {
	case label == "metadata.name":
		return x.Name.Name, true
	case label == "metadata.namespace":
		return x.Namespace, true
	case x.Extent != store.Whole:
		return "", false
	}
	f := o.fields[label]
	for _, path := range f.paths {
		if value := valueAt(x.Body, path); value != "" {
			return value, true
		}
	}
	return f.none, !lacks(o.selections[x.Collection], f)
}

// lacks reports whether objects of a collection do not have a field because of metadataOnly, or maybe because of rules about their status. Which other
// fields rules remove is not on the bus: see docs/serve.md, "Limits".
func lacks(s event.Selection, f selectable) bool {
	return s.MetadataOnly || s.StatusDropped && slices.ContainsFunc(f.paths, func(path string) bool { return strings.HasPrefix(path, "status.") })
}

// valueAt returns a text, number or boolean of an object's JSON, by its path of names with dots; "" if there is none.
func valueAt(body []byte, path string) string {
	for name := range strings.SplitSeq(path, ".") {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(body, &members); err != nil {
			return ""
		}
		body = members[name]
	}
	var value any
	decoder := json.NewDecoder(strings.NewReader(string(body)))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return ""
	}
	switch value.(type) {
	case string, json.Number, bool:
		return fmt.Sprint(value)
	}
	return ""
}
