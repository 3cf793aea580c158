package feed

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

type object = map[string]any

// groups returns the API groups and their versions, in the order of the resources.
func (s *Server) groups() (names []string, versions map[string][]string) {
	versions = map[string][]string{}
	for _, r := range s.resources {
		if versions[r.Group] == nil {
			names = append(names, r.Group)
		}
		if !slices.Contains(versions[r.Group], r.Version) {
			versions[r.Group] = append(versions[r.Group], r.Version)
		}
	}
	return names, versions
}

// discover answers requests for the version, for health checks and for discovery.
// Discovery is available in the aggregated form (KEP-3352) and in the older one.
func (s *Server) discover(w http.ResponseWriter, q *http.Request, path string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case path == "/version":
		writeJSON(w, object{"major": "1", "minor": "36", "gitVersion": "v1.36.3", "platform": "linux/amd64"})
	case path == "/healthz" || path == "/readyz" || path == "/livez":
		_, _ = w.Write([]byte("ok"))
	case len(parts) == 1 && strings.Contains(q.Header.Get("Accept"), "APIGroupDiscoveryList") && (path == "/api" || path == "/apis"):
		s.aggregated(w, path == "/api")
	case path == "/api":
		writeJSON(w, object{"kind": "APIVersions", "versions": []string{"v1"}, "serverAddressByClientCIDRs": []any{}})
	case path == "/apis":
		writeJSON(w, object{"kind": "APIGroupList", "apiVersion": "v1", "groups": s.groupList()})
	case len(parts) == 2 && parts[0] == "api":
		s.resourceList(w, "", parts[1])
	case len(parts) == 3 && parts[0] == "apis":
		s.resourceList(w, parts[1], parts[2])
	default:
		fail(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
	}
}

func (s *Server) groupList() []any {
	names, versions := s.groups()
	groups := []any{}
	for _, g := range names {
		if g == "" {
			continue
		}
		var vs []any
		for _, v := range versions[g] {
			vs = append(vs, object{"groupVersion": g + "/" + v, "version": v})
		}
		groups = append(groups, object{"name": g, "versions": vs, "preferredVersion": vs[0]})
	}
	return groups
}

func verbs() []string { return []string{"get", "list", "watch"} }

func (s *Server) resourceList(w http.ResponseWriter, group, version string) {
	list := []any{}
	name := strings.TrimPrefix(group+"/"+version, "/")
	for _, r := range s.resources {
		if r.Group == group && r.Version == version {
			list = append(list, object{
				"name": r.Plural, "singularName": strings.ToLower(r.Kind), "namespaced": true, "kind": r.Kind, "verbs": verbs(),
			})
		}
	}
	writeJSON(w, object{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": list})
}

func (s *Server) aggregated(w http.ResponseWriter, core bool) {
	names, versions := s.groups()
	items := []any{}
	for _, g := range names {
		if (g == "") != core {
			continue
		}
		var vs []any
		for _, v := range versions[g] {
			var resources []any
			for _, r := range s.resources {
				if r.Group == g && r.Version == v {
					resources = append(resources, object{
						"resource": r.Plural, "responseKind": object{"group": r.Group, "version": r.Version, "kind": r.Kind},
						"scope": "Namespaced", "singularResource": strings.ToLower(r.Kind), "verbs": verbs(),
					})
				}
			}
			vs = append(vs, object{"version": v, "resources": resources, "freshness": "Current"})
		}
		items = append(items, object{"metadata": object{"name": g, "creationTimestamp": nil}, "versions": vs})
	}
	w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	_ = json.NewEncoder(w).Encode(object{"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": object{}, "items": items})
}
