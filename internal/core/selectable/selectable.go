// Package selectable knows the fields of Kubernetes' own resources that field selectors select by. The API server does not say which they are.
package selectable

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Field is a field of an object that field selectors know.
type Field struct {
	Paths []string // of names with dots; the value is the first one that is not empty
	None  string   // the value if the object has none
}

// fields are those of Kubernetes' own resources, as the API server knows them (ToSelectableFields in its packages pkg/registry). A label
// that is not the path of its value has it behind "=". All resources have metadata.name, and metadata.namespace.
var fields = map[string][]string{
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

// Of returns the fields of a resource, such as "deployments.apps", by label.
func Of(resource string) map[string]Field {
	out := map[string]Field{}
	for _, text := range fields[resource] {
		label, paths, found := strings.Cut(text, "=")
		if !found {
			paths = label
		}
		out[label] = Field{strings.Split(paths, "|"), absentValues[label]}
	}
	return out
}

// Values returns the values of a resource's fields in an object's JSON, by label, those that the object does not have as "". Long values are in the form
// of [event.BoundName]. It returns nil if the resource has no such fields, or the JSON cannot be read.
func Values(resource string, body []byte) map[string]string {
	known := Of(resource)
	var o map[string]any
	if len(known) == 0 || decode(body, &o) != nil {
		return nil
	}
	values := map[string]string{}
	for label, f := range known {
		for _, path := range f.Paths {
			var value any = o
			for name := range strings.SplitSeq(path, ".") {
				m, _ := value.(map[string]any)
				value = m[name]
			}
			if values[label] = event.BoundName(text(value)); values[label] != "" {
				break
			}
		}
	}
	return values
}

// Value returns a text, number or boolean of an object's JSON, by its path of names with dots; "" if there is none.
func Value(body []byte, path string) string {
	for name := range strings.SplitSeq(path, ".") {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(body, &members); err != nil {
			return ""
		}
		body = members[name]
	}
	var value any
	if err := decode(body, &value); err != nil {
		return ""
	}
	return text(value)
}

func decode(body []byte, to any) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	return decoder.Decode(to)
}

func text(value any) string {
	switch value.(type) {
	case string, json.Number, bool:
		return fmt.Sprint(value)
	}
	return ""
}
