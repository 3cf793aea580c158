package access

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/internal/bus"
)

// Subject is the service account that a bridge runs as.
type Subject struct{ Namespace, ServiceAccount string }

// WriteYAML prints roles and bindings with the given name, for `kubectl apply`. A comment before each rule
// says why it is needed.
func (c Cluster) WriteYAML(w io.Writer, name string, s Subject) error {
	var b strings.Builder
	for _, n := range append(slices.Clone(c.Notes),
		"The bridge reads which resources the cluster serves by the role system:discovery, which every authenticated user has.") {
		bus.Comment(&b, "", n)
	}
	role(&b, "ClusterRole", name, "", c.Everywhere)
	binding(&b, "ClusterRole", name, "", s)
	for _, namespace := range slices.Sorted(maps.Keys(c.Within)) {
		role(&b, "Role", name, namespace, c.Within[namespace])
		binding(&b, "Role", name, namespace, s)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func header(b *strings.Builder, kind, name, namespace string) {
	fmt.Fprintf(b, "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: %s\nmetadata:\n  name: %q\n", kind, name)
	if namespace != "" {
		fmt.Fprintf(b, "  namespace: %q\n", namespace)
	}
}

func role(b *strings.Builder, kind, name, namespace string, rules []Rule) {
	header(b, kind, name, namespace)
	b.WriteString("rules:\n")
	for _, r := range rules {
		for _, why := range r.Why {
			bus.Comment(b, "  ", why)
		}
		if isPath(r.Resources[0]) {
			fmt.Fprintf(b, "  - nonResourceURLs: %s\n    verbs: %s\n", flow(r.Resources...), flow(r.Verbs...))
			continue
		}
		fmt.Fprintf(b, "  - apiGroups: %s\n    resources: %s\n", flow(r.Group), flow(r.Resources...))
		if len(r.Names) > 0 {
			fmt.Fprintf(b, "    resourceNames: %s\n", flow(r.Names...))
		}
		fmt.Fprintf(b, "    verbs: %s\n", flow(r.Verbs...))
	}
}

func binding(b *strings.Builder, kind, name, namespace string, s Subject) {
	header(b, kind+"Binding", name, namespace)
	fmt.Fprintf(b, "roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: %s\n  name: %q\n", kind, name)
	fmt.Fprintf(b, "subjects:\n  - kind: ServiceAccount\n    name: %q\n    namespace: %q\n", s.ServiceAccount, s.Namespace)
}

// flow returns a YAML list on one line.
func flow(list ...string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = fmt.Sprintf("%q", s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
