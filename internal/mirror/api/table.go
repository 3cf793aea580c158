package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/util/jsonpath"

	"github.com/kubebridge/kubebridge/internal/mirror/store"
)

// cells returns the cells of an object between NAME and AGE.
type cells func(object map[string]any) []any

// printed is how kubectl shows one of Kubernetes' own kinds.
type printed struct {
	names []string
	cells cells
}

// builtinColumns are those of the kinds that are listed most. Other kinds have NAME and AGE.
var builtinColumns = map[string]printed{
	"pods": {[]string{"Ready", "Status", "Restarts"}, podCells},
	"deployments.apps": {[]string{"Ready", "Up-to-date", "Available"}, func(o map[string]any) []any {
		return []any{ratio(o, "status.readyReplicas", "spec.replicas"), number(o, "status.updatedReplicas"), number(o, "status.availableReplicas")}
	}},
	"replicasets.apps": {[]string{"Desired", "Current", "Ready"}, func(o map[string]any) []any {
		return []any{number(o, "spec.replicas"), number(o, "status.replicas"), number(o, "status.readyReplicas")}
	}},
	"statefulsets.apps": {[]string{"Ready"}, func(o map[string]any) []any { return []any{ratio(o, "status.readyReplicas", "spec.replicas")} }},
	"namespaces":        {[]string{"Status"}, func(o map[string]any) []any { return []any{text(o, "status.phase")} }},
	"configmaps":        {[]string{"Data"}, func(o map[string]any) []any { return []any{len(object(o, "data")) + len(object(o, "binaryData"))} }},
	"secrets": {[]string{"Type", "Data"}, func(o map[string]any) []any {
		return []any{text(o, "type"), len(object(o, "data"))}
	}},
	"services": {[]string{"Type", "Cluster-IP", "Port(s)"}, func(o map[string]any) []any {
		var ports []string
		for _, p := range list(o, "spec.ports") {
			ports = append(ports, fmt.Sprintf("%d/%s", number(p, "port"), text(p, "protocol")))
		}
		return []any{text(o, "spec.type"), text(o, "spec.clusterIP"), strings.Join(ports, ",")}
	}},
	"nodes": {[]string{"Status", "Version"}, func(o map[string]any) []any {
		status := "NotReady"
		for _, c := range list(o, "status.conditions") {
			if text(c, "type") == "Ready" && text(c, "status") == "True" {
				status = "Ready"
			}
		}
		return []any{status, text(o, "status.nodeInfo.kubeletVersion")}
	}},
}

func podCells(o map[string]any) []any {
	ready, restarts, status := 0, int64(0), text(o, "status.reason")
	if status == "" {
		status = text(o, "status.phase")
	}
	containers := list(o, "status.containerStatuses")
	for _, c := range containers {
		if c["ready"] == true {
			ready++
		}
		restarts += number(c, "restartCount")
		for _, why := range []string{text(c, "state.waiting.reason"), text(c, "state.terminated.reason")} {
			if why != "" {
				status = why
			}
		}
	}
	if text(o, "metadata.deletionTimestamp") != "" {
		status = "Terminating"
	}
	return []any{fmt.Sprintf("%d/%d", ready, len(list(o, "spec.containers"))), status, restarts}
}

// table returns a table of objects. Its rows have the objects' metadata, with which clients select.
func (k *kind) table(rows []*store.Object, version uint64, next string, columns bool, now time.Time) *metav1.Table {
	t := &metav1.Table{TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"}, Rows: []metav1.TableRow{}}
	if version != 0 {
		t.ResourceVersion = fmt.Sprint(version)
	}
	t.Continue = next
	p, builtin := builtinColumns[k.resource.ID.Name]
	if columns {
		t.ColumnDefinitions = k.definitions(p.names)
	}
	for _, x := range rows {
		var o map[string]any
		decoder := json.NewDecoder(bytes.NewReader(x.Body))
		decoder.UseNumber()
		if err := decoder.Decode(&o); err != nil {
			o = map[string]any{}
		}
		cells := []any{text(o, "metadata.name")}
		switch {
		case builtin:
			cells = append(append(cells, p.cells(o)...), age(text(o, "metadata.creationTimestamp"), now))
		case len(k.columns) > 0:
			for _, c := range k.columns {
				cells = append(cells, c.cell(o, now))
			}
		default:
			cells = append(cells, age(text(o, "metadata.creationTimestamp"), now))
		}
		row := metav1.TableRow{Cells: cells}
		if meta, err := metadataOnly(x.Body); err == nil {
			row.Object = runtime.RawExtension{Raw: meta}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func bookmarkRow(object any) metav1.TableRow {
	raw, err := json.Marshal(object)
	if err != nil {
		raw = nil
	}
	return metav1.TableRow{Cells: []any{}, Object: runtime.RawExtension{Raw: raw}}
}

func (k *kind) definitions(names []string) []metav1.TableColumnDefinition {
	columns := []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name"}}
	for _, c := range k.columns {
		columns = append(columns, metav1.TableColumnDefinition{Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description, Priority: c.Priority})
	}
	if len(k.columns) > 0 {
		return columns
	}
	for _, name := range append(append([]string{}, names...), "Age") {
		columns = append(columns, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	return columns
}

// cell returns the cell of a CustomResourceDefinition's column.
func (c *column) cell(o map[string]any, now time.Time) any {
	path := jsonpath.New(c.Name).AllowMissingKeys(true)
	if err := path.Parse("{" + c.JSONPath + "}"); err != nil {
		return nil
	}
	found, err := path.FindResults(o)
	if err != nil || len(found) == 0 || len(found[0]) == 0 {
		return nil
	}
	value := found[0][0].Interface()
	if s, ok := value.(string); ok && c.Type == "date" {
		return age(s, now)
	}
	return value
}

func age(created string, now time.Time) string {
	t, err := time.Parse(time.RFC3339, created)
	if err != nil {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(t))
}

// field returns a value by its path of names with dots.
func field(o map[string]any, path string) any {
	var value any = o
	for name := range strings.SplitSeq(path, ".") {
		m, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = m[name]
	}
	return value
}

func text(o map[string]any, path string) string {
	s, _ := field(o, path).(string)
	return s
}

func number(o map[string]any, path string) int64 {
	n, ok := field(o, path).(json.Number)
	if !ok {
		return 0
	}
	i, err := n.Int64()
	if err != nil {
		return 0
	}
	return i
}

func object(o map[string]any, path string) map[string]any {
	m, _ := field(o, path).(map[string]any)
	return m
}

func list(o map[string]any, path string) (out []map[string]any) {
	all, _ := field(o, path).([]any)
	for _, x := range all {
		if m, ok := x.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func ratio(o map[string]any, have, want string) string {
	return fmt.Sprintf("%d/%d", number(o, have), number(o, want))
}
