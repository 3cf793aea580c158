package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/util/jsonpath"

	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
)

// tableFormat is how kubectl shows one of Kubernetes' own kinds: the names of the columns, with "+" before those that
// only `-o wide` shows, and the cells of an object.
type tableFormat struct {
	columns []string
	cells   func(o map[string]any, now time.Time) []any
}

// withAge returns a kind with columns between NAME and AGE.
func withAge(columns []string, cells func(o map[string]any) []any) tableFormat {
	return tableFormat{slices.Concat([]string{"Name"}, columns, []string{"Age"}), func(o map[string]any, now time.Time) []any {
		return slices.Concat([]any{nameOf(o)}, cells(o), []any{ageOf(o, now)})
	}}
}

// builtinColumns are those of the kinds that are listed most, as the API server has them
// (pkg/printers/internalversion). Other kinds have NAME and AGE.
var builtinColumns = map[string]tableFormat{
	"pods": {[]string{"Name", "Ready", "Status", "Restarts", "Age", "+IP", "+Node", "+Nominated Node", "+Readiness Gates"}, podCells},
	"deployments.apps": withAge([]string{"Ready", "Up-to-date", "Available"}, func(o map[string]any) []any {
		return []any{ratio(o, "status.readyReplicas", "spec.replicas"), number(o, "status.updatedReplicas"), number(o, "status.availableReplicas")}
	}),
	"replicasets.apps": withAge([]string{"Desired", "Current", "Ready"}, func(o map[string]any) []any {
		return []any{number(o, "spec.replicas"), number(o, "status.replicas"), number(o, "status.readyReplicas")}
	}),
	"statefulsets.apps": withAge([]string{"Ready"}, func(o map[string]any) []any { return []any{ratio(o, "status.readyReplicas", "spec.replicas")} }),
	"daemonsets.apps": withAge([]string{"Desired", "Current", "Ready", "Up-to-date", "Available", "Node Selector"}, func(o map[string]any) []any {
		return []any{
			number(o, "status.desiredNumberScheduled"), number(o, "status.currentNumberScheduled"),
			number(o, "status.numberReady"), number(o, "status.updatedNumberScheduled"), number(o, "status.numberAvailable"),
			labels.FormatLabels(stringsOf(o, "spec.template.spec.nodeSelector")),
		}
	}),
	"jobs.batch":     {[]string{"Name", "Status", "Completions", "Duration", "Age"}, jobCells},
	"cronjobs.batch": {[]string{"Name", "Schedule", "Timezone", "Suspend", "Active", "Last Schedule", "Age"}, cronJobCells},
	"namespaces":     withAge([]string{"Status"}, func(o map[string]any) []any { return []any{text(o, "status.phase")} }),
	"configmaps":     withAge([]string{"Data"}, func(o map[string]any) []any { return []any{len(object(o, "data")) + len(object(o, "binaryData"))} }),
	"secrets": withAge([]string{"Type", "Data"}, func(o map[string]any) []any {
		return []any{text(o, "type"), len(object(o, "data"))}
	}),
	"services":                    {[]string{"Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "+Selector"}, serviceCells},
	"ingresses.networking.k8s.io": withAge([]string{"Class", "Hosts", "Address", "Ports"}, ingressCells),
	"nodes": {[]string{
		"Name", "Status", "Roles", "Age", "Version", "+Internal-IP", "+External-IP", "+OS-Image", "+Kernel-Version", "+Container-Runtime",
	}, nodeCells},
	"events":               {eventColumns, eventCells},
	"events.events.k8s.io": {eventColumns, newEventCells},
}

var eventColumns = []string{
	"Last Seen", "Type", "Reason", "Object", "+Subobject", "+Source", "Message", "+First Seen", "+Count", "+Name",
}

func jobCells(o map[string]any, now time.Time) []any {
	completions := ratio(o, "status.succeeded", "spec.completions")
	if field(o, "spec.completions") == nil {
		completions = fmt.Sprintf("%d/1", number(o, "status.succeeded"))
		if n := number(o, "spec.parallelism"); n > 1 {
			completions += fmt.Sprintf(" of %d", n)
		}
	}
	took := ""
	if start, err := time.Parse(time.RFC3339, text(o, "status.startTime")); err == nil {
		end, err := time.Parse(time.RFC3339, text(o, "status.completionTime"))
		if err != nil {
			end = now
		}
		took = duration.HumanDuration(end.Sub(start))
	}
	return []any{nameOf(o), jobStatus(o), completions, took, ageOf(o, now)}
}

func jobStatus(o map[string]any) string {
	for _, s := range []string{"Complete", "Failed", "Terminating", "Suspended", "FailureTarget", "SuccessCriteriaMet"} {
		if condition(o, s) == "True" || s == "Terminating" && text(o, "metadata.deletionTimestamp") != "" {
			return s
		}
	}
	return "Running"
}

func cronJobCells(o map[string]any, now time.Time) []any {
	suspend := map[any]string{true: "True", false: "False", nil: "<unset>"}[field(o, "spec.suspend")]
	last := "<none>"
	if t := text(o, "status.lastScheduleTime"); t != "" {
		last = age(t, now)
	}
	return []any{
		nameOf(o), text(o, "spec.schedule"), orNone(text(o, "spec.timeZone")), suspend, len(list(o, "status.active")), last, ageOf(o, now),
	}
}

func serviceCells(o map[string]any, now time.Time) []any {
	var ports []string
	for _, p := range list(o, "spec.ports") {
		port := fmt.Sprint(number(p, "port"))
		if n := number(p, "nodePort"); n > 0 {
			port += fmt.Sprintf(":%d", n)
		}
		ports = append(ports, port+"/"+text(p, "protocol"))
	}
	typ, external := text(o, "spec.type"), texts(o, "spec.externalIPs")
	switch typ {
	case "ExternalName":
		external = []string{text(o, "spec.externalName")}
	case "LoadBalancer":
		if external = append(ingressPoints(o), external...); len(external) == 0 {
			external = []string{"<pending>"}
		}
	}
	ip := append(texts(o, "spec.clusterIPs"), "")[0]
	return []any{
		nameOf(o), typ, orNone(ip), orNone(strings.Join(external, ",")), orNone(strings.Join(ports, ",")), ageOf(o, now),
		labels.FormatLabels(stringsOf(o, "spec.selector")),
	}
}

// ingressPoints returns the addresses of a load balancer, sorted.
func ingressPoints(o map[string]any) []string {
	found := map[string]bool{}
	for _, point := range list(o, "status.loadBalancer.ingress") {
		if address := cmp.Or(text(point, "ip"), text(point, "hostname")); address != "" {
			found[address] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func ingressCells(o map[string]any) []any {
	const shown = 3
	var hosts []string
	rules, ports := list(o, "spec.rules"), "80"
	for _, rule := range rules {
		if host := text(rule, "host"); host != "" && len(hosts) < shown {
			hosts = append(hosts, host)
		}
	}
	all := strings.Join(hosts, ",")
	switch {
	case len(hosts) == 0:
		all = "*"
	case len(hosts) == shown && len(rules) > shown:
		all += fmt.Sprintf(" + %d more...", len(rules)-shown)
	}
	if len(list(o, "spec.tls")) > 0 {
		ports = "80, 443"
	}
	return []any{orNone(text(o, "spec.ingressClassName")), all, strings.Join(ingressPoints(o), ","), ports}
}

func nodeCells(o map[string]any, now time.Time) []any {
	const prefix = "node-role.kubernetes.io/"
	status := "Unknown"
	switch condition(o, "Ready") {
	case "":
	case "True":
		status = "Ready"
	default:
		status = "NotReady"
	}
	if value, ok := field(o, "spec.unschedulable").(bool); ok && value {
		status += ",SchedulingDisabled"
	}
	roles := map[string]bool{}
	for label, value := range stringsOf(o, "metadata.labels") {
		if role := strings.TrimPrefix(label, prefix); role != label && role != "" {
			roles[role] = true
		} else if label == "kubernetes.io/role" && value != "" {
			roles[value] = true
		}
	}
	address := func(typ string) string {
		for _, a := range list(o, "status.addresses") {
			if text(a, "type") == typ {
				return text(a, "address")
			}
		}
		return "<none>"
	}
	kernel := cmp.Or(text(o, "status.nodeInfo.kernelVersion"), "<unknown>")
	if arch := text(o, "status.nodeInfo.architecture"); arch != "" {
		kernel += " (" + arch + ")"
	}
	return []any{
		nameOf(o), status, orNone(strings.Join(slices.Sorted(maps.Keys(roles)), ",")), ageOf(o, now), text(o, "status.nodeInfo.kubeletVersion"),
		address("InternalIP"), address("ExternalIP"), cmp.Or(text(o, "status.nodeInfo.osImage"), "<unknown>"), kernel,
		cmp.Or(text(o, "status.nodeInfo.containerRuntimeVersion"), "<unknown>"),
	}
}

// coreEventFields are the names that fields of events.k8s.io have in core events, which have the same columns.
var coreEventFields = map[string]string{
	"deprecatedFirstTimestamp": "firstTimestamp", "deprecatedLastTimestamp": "lastTimestamp", "deprecatedCount": "count", "deprecatedSource": "source",
	"regarding": "involvedObject", "note": "message", "reportingController": "reportingComponent",
}

func newEventCells(o map[string]any, now time.Time) []any {
	o = maps.Clone(o)
	for name, core := range coreEventFields {
		if value, ok := o[name]; ok {
			o[core] = value
		}
	}
	return eventCells(o, now)
}

func eventCells(o map[string]any, now time.Time) []any {
	first := age(cmp.Or(text(o, "firstTimestamp"), text(o, "eventTime")), now)
	last, count := first, max(number(o, "count"), 1)
	if t := text(o, "lastTimestamp"); t != "" {
		last = age(t, now)
	}
	if object(o, "series") != nil {
		last, count = age(text(o, "series.lastObservedTime"), now), number(o, "series.count")
	}
	about := strings.ToLower(text(o, "involvedObject.kind"))
	if name := text(o, "involvedObject.name"); name != "" {
		about += "/" + name
	}
	source := cmp.Or(text(o, "source.component"), text(o, "reportingComponent"))
	if instance := cmp.Or(text(o, "source.host"), text(o, "reportingInstance")); instance != "" {
		source += ", " + instance
	}
	return []any{
		last, text(o, "type"), text(o, "reason"), about, text(o, "involvedObject.fieldPath"), source,
		strings.TrimSpace(text(o, "message")), first, count, nameOf(o),
	}
}

// parseInclude sets what the rows of a table have of their objects (metav1.TableOptions). The default is their
// metadata, with which clients select.
func (q *request) parseInclude() error {
	switch q.include = metav1.IncludeObjectPolicy(q.URL.Query().Get("includeObject")); q.include {
	case "", metav1.IncludeMetadata, metav1.IncludeObject, metav1.IncludeNone:
		return nil
	}
	return apierrors.NewBadRequest(fmt.Sprintf("includeObject: Invalid value: %q: must be 'Metadata', 'Object', 'None', or empty", q.include))
}

func (q *request) table(rows []*store.Object, version uint64, next string, columns bool, now time.Time) *metav1.Table {
	k := q.kind
	t := &metav1.Table{TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"}, Rows: []metav1.TableRow{}}
	if t.Continue = next; version != 0 {
		t.ResourceVersion = fmt.Sprint(version)
	}
	p, builtin := builtinColumns[k.resource.ID.Name]
	if columns {
		t.ColumnDefinitions = k.definitions(p.columns)
	}
	for _, x := range rows {
		var o map[string]any
		decoder := json.NewDecoder(bytes.NewReader(x.Body))
		decoder.UseNumber()
		_ = decoder.Decode(&o) // of what cannot be read, cells are empty
		var cells []any
		switch {
		case builtin:
			cells = p.cells(o, now)
		case len(k.columns) > 0:
			cells = append(cells, nameOf(o))
			for _, c := range k.columns {
				cells = append(cells, c.cell(o, now))
			}
		default:
			cells = []any{nameOf(o), ageOf(o, now)}
		}
		row := metav1.TableRow{Cells: cells}
		switch q.include {
		case metav1.IncludeNone:
		case metav1.IncludeObject:
			row.Object = runtime.RawExtension{Raw: bytes.Clone(x.Body)}
		default:
			if meta, err := metadataOnly(x.Body); err == nil {
				row.Object = runtime.RawExtension{Raw: meta}
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func bookmarkRow(object any) metav1.TableRow {
	raw, _ := json.Marshal(object) // nil after an error
	return metav1.TableRow{Cells: []any{}, Object: runtime.RawExtension{Raw: raw}}
}

func (k *kind) definitions(builtin []string) (columns []metav1.TableColumnDefinition) {
	if len(k.columns) > 0 {
		columns = append(columns, metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name"})
		for _, c := range k.columns {
			columns = append(columns, metav1.TableColumnDefinition{
				Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description, Priority: c.Priority,
			})
		}
		return columns
	}
	if len(builtin) == 0 {
		builtin = []string{"Name", "Age"}
	}
	for _, name := range builtin {
		c := metav1.TableColumnDefinition{Name: strings.TrimPrefix(name, "+"), Type: "string"}
		if c.Name != name {
			c.Priority = 1
		}
		if c.Name == "Name" {
			c.Format = "name"
		}
		columns = append(columns, c)
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

func nameOf(o map[string]any) string { return text(o, "metadata.name") }

func ageOf(o map[string]any, now time.Time) string {
	return age(text(o, "metadata.creationTimestamp"), now)
}

func orNone(s string) string { return cmp.Or(s, "<none>") }

// condition returns the status of an object's condition; "" if it has none of this type.
func condition(o map[string]any, typ string) string {
	for _, c := range list(o, "status.conditions") {
		if text(c, "type") == typ {
			return text(c, "status")
		}
	}
	return ""
}

// age returns how long ago a time was. An empty or wrong time is unknown.
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
	n, _ := field(o, path).(json.Number)
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

func stringsOf(o map[string]any, path string) map[string]string {
	out := map[string]string{}
	for name, value := range object(o, path) {
		if s, ok := value.(string); ok {
			out[name] = s
		}
	}
	return out
}

func texts(o map[string]any, path string) []string { return elements[string](o, path) }

func list(o map[string]any, path string) []map[string]any { return elements[map[string]any](o, path) }

func elements[T any](o map[string]any, path string) (out []T) {
	all, _ := field(o, path).([]any)
	for _, x := range all {
		if v, ok := x.(T); ok {
			out = append(out, v)
		}
	}
	return out
}

func ratio(o map[string]any, have, want string) string {
	return fmt.Sprintf("%d/%d", number(o, have), number(o, want))
}
