package api

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	lru "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/version"

	"github.com/kubebridge/kubebridge/internal/past/mirror"
	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
)

// kind is a resource as discovery describes it.
type kind struct {
	mirror.Kind
	gv         schema.GroupVersion
	plural     string
	singular   string
	shortNames []string
	columns    []column    // of a CustomResourceDefinition
	defined    *definition // the CustomResourceDefinition; nil: the bus does not have it, or it has no schema of this version
	schemaHash string      // of a CustomResourceDefinition: the hash of its openAPIV3Schema; "": it has none
	fields     []string    // of a CustomResourceDefinition: the paths of its selectableFields
	categories []string    // such as "all"
	verbs      metav1.Verbs
	resource   *mirror.Resource
	review     *review // nil: the kind is one of the bus
}

func (k *kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.gv.Group, Resource: k.plural}
}

type column struct {
	Name, Type, Format, Description, JSONPath string
	Priority                                  int32
}

// definition is what a CustomResourceDefinition says about its resource. Schemas can be large, so it has only their
// hashes.
type definition struct {
	view store.View
	name string
	time time.Time // when the bridge saw it

	Spec struct {
		Names struct {
			Kind, Singular string
			ShortNames     []string
			Categories     []string
		}
		Scope    string
		Versions []definedVersion
	}
}

type definedVersion struct {
	Name                     string
	Served                   bool
	AdditionalPrinterColumns []column
	Schema                   struct{ OpenAPIV3Schema json.RawMessage }
	SelectableFields         []struct{ JSONPath string }
	schemaHash               string
}

// kinds returns the kinds that the API server serves of the resource, in the order in which it prefers them.
func (d *definition) kinds(group string) (all []mirror.Kind) {
	for _, v := range slices.SortedFunc(slices.Values(d.Spec.Versions), func(a, b definedVersion) int {
		return version.CompareKubeAwareVersionStrings(b.Name, a.Name)
	}) {
		if v.Served {
			all = append(all, mirror.Kind{
				APIVersion: group + "/" + v.Name, Kind: d.Spec.Names.Kind, Namespaced: d.Spec.Scope == "Namespaced",
			})
		}
	}
	return all
}

// categoryAll are Kubernetes' own resources that `kubectl get all` lists.
var categoryAll = []string{
	"pods", "replicationcontrollers", "services", "daemonsets.apps", "deployments.apps", "replicasets.apps", "statefulsets.apps",
	"horizontalpodautoscalers.autoscaling", "cronjobs.batch", "jobs.batch",
}

const (
	definitions = "customresourcedefinitions.apiextensions.k8s.io"
	// So many definitions are kept, and so long.
	cachedDefinitions, definitionLife = 8192, time.Hour
)

// kindOf returns a resource of a group version; nil if the bus has no events of it. If the copy may lack them, or lacks
// the kind, that is an error, and no absence.
func (s *Server) kindOf(v view, gv schema.GroupVersion, plural string) (*kind, error) {
	name := schema.GroupResource{Group: gv.Group, Resource: plural}.String()
	unread := s.unread(name) // before the look-up: it has everything then
	r := s.Mirror.Resource(store.Resource{Cluster: v.cluster, Name: name})
	if r == nil {
		return nil, unread
	}
	k := s.describe(v, r)
	switch {
	case k != nil && k.gv == gv:
		return k, nil
	case k != nil || unread != nil:
		return nil, unread
	}
	if _, err := r.Latest(); errors.Is(err, mirror.ErrAbsent) {
		return nil, nil
	}
	return nil, apierrors.NewServiceUnavailable(name + ": its kind is not known: the bus has no object of it, and no CustomResourceDefinition")
}

// describe returns what is known of a resource; nil if its kind is not.
func (s *Server) describe(v view, r *mirror.Resource) *kind {
	k := &kind{Kind: r.Kind, verbs: readVerbs, resource: r}
	var group string
	k.plural, group, _ = strings.Cut(r.ID.Name, ".")
	if b, ok := s.Builtin(r.ID.Name); ok {
		k.shortNames = b.ShortNames
		if slices.Contains(categoryAll, r.ID.Name) {
			k.categories = []string{"all"}
		}
		if k.Kind.Kind == "" {
			k.Kind = mirror.Kind{APIVersion: b.APIVersion, Kind: b.Kind, Namespaced: b.Namespaced}
		}
	} else if d := s.definition(v, r.ID.Name); d != nil {
		k.define(d, group)
	}
	if k.Kind.Kind == "" {
		return nil
	}
	k.singular = cmp.Or(k.singular, strings.ToLower(k.Kind.Kind))
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	if err != nil || gv.Group != group {
		return nil
	}
	k.gv = gv
	return k
}

// define adds what a CustomResourceDefinition says. The kind is that of the last event, unless the definition is newer
// and does not have it any more.
func (k *kind) define(d *definition, group string) {
	k.shortNames, k.singular, k.categories = d.Spec.Names.ShortNames, d.Spec.Names.Singular, d.Spec.Names.Categories
	newer := k.Kind.Kind == "" || d.time.After(k.resource.KindTime)
	if kinds := d.kinds(group); newer && len(kinds) > 0 && !slices.Contains(kinds, k.Kind) {
		k.Kind = kinds[0]
	}
	for _, v := range d.Spec.Versions {
		if group+"/"+v.Name == k.APIVersion {
			k.columns, k.defined, k.schemaHash = v.AdditionalPrinterColumns, d, v.schemaHash
			for _, f := range v.SelectableFields {
				k.fields = append(k.fields, f.JSONPath)
			}
		}
	}
}

// definition returns the CustomResourceDefinition of a resource in a view; nil if the bus lacks it.
func (s *Server) definition(v view, name string) *definition {
	r := s.Mirror.Resource(store.Resource{Cluster: v.cluster, Name: definitions})
	if r == nil {
		return nil
	}
	at, err := r.Latest()
	if v.at.RV != 0 {
		at, err = r.AtVersion(v.at.RV, v.at.Epoch)
	} else if v.past != "" {
		var p mirror.Past
		p, err = s.Mirror.AtTime(r, v.at.Time)
		at = p.At
	}
	if err != nil {
		return nil
	}
	view := store.View{Resource: r.ID, At: at}
	read := func() (d *definition, err error) { return s.readDefinition(view, name, false) }
	if v.past != "" {
		d, _ := read() // nil after an error
		return d
	}
	d, _ := s.defined.get(view, name, read)
	return d
}

// readDefinition reads a CustomResourceDefinition, with its schemas or their hashes; nil if there is none that can be
// read.
func (s *Server) readDefinition(v store.View, name string, schemas bool) (*definition, error) {
	x, err := s.Mirror.Store().Get(v, store.Name{Name: name})
	if err != nil || x == nil {
		return nil, err
	}
	d := &definition{view: v, name: name, time: x.Time}
	if err := json.Unmarshal(x.Body, d); err != nil {
		return nil, nil //nolint:nilerr,nilnil // it is not better the next time
	}
	for i := range d.Spec.Versions {
		if one := &d.Spec.Versions[i]; len(one.Schema.OpenAPIV3Schema) > 0 && !schemas {
			one.schemaHash = fmt.Sprintf("%X", sha256.Sum256(one.Schema.OpenAPIV3Schema))
			one.Schema.OpenAPIV3Schema = nil
		}
	}
	return d, nil
}

// schema returns the openAPIV3Schema of a custom resource; nil if the bus has none.
func (s *Server) schema(k *kind) json.RawMessage {
	if k.schemaHash == "" {
		return nil
	}
	d, err := s.readDefinition(k.defined.view, k.defined.name, true)
	if err != nil || d == nil {
		return nil
	}
	i := slices.IndexFunc(d.Spec.Versions, func(v definedVersion) bool { return v.Name == k.gv.Version })
	if i < 0 {
		return nil
	}
	return d.Spec.Versions[i].Schema.OpenAPIV3Schema
}

// definitionCache keeps CustomResourceDefinitions of present views, so that requests do not read and parse them again.
type definitionCache struct{ *lru.LRUExpireCache }

// cachedDefinition is a definition as of a position. The cache has one of each name: views that have passed take no room.
type cachedDefinition struct {
	*definition
	at store.Position
}

// get returns a definition, which it reads if it does not know it. An error is not kept.
func (c definitionCache) get(v store.View, name string, read func() (*definition, error)) (*definition, error) {
	key := [2]string{v.Resource.Cluster, name}
	if known, ok := c.Get(key); ok && known.(cachedDefinition).at == v.At {
		return known.(cachedDefinition).definition, nil
	}
	d, err := read()
	if err == nil {
		c.Add(key, cachedDefinition{d, v.At}, definitionLife)
	}
	return d, err
}

// kinds returns the resources of a cluster, and the reviews, by group and name, without those that are not published
// any more.
func (s *Server) kinds(v view) (all []*kind) {
	for i := range reviews {
		all = append(all, reviews[i].describe())
	}
	for _, r := range s.Mirror.Resources(v.cluster) {
		if r.Closed && v.past == "" {
			continue
		}
		if k := s.describe(v, r); k != nil {
			all = append(all, k)
		}
	}
	slices.SortStableFunc(all, func(a, b *kind) int {
		return cmp.Or(strings.Compare(a.gv.Group, b.gv.Group), strings.Compare(a.gv.Version, b.gv.Version), strings.Compare(a.plural, b.plural))
	})
	return all
}

var readVerbs = metav1.Verbs{"get", "list", "watch"}

func isDiscovery(parts []string) bool {
	return parts[0] == "api" && len(parts) <= 2 || parts[0] == "apis" && len(parts) <= 3
}

func (s *Server) discovery(w http.ResponseWriter, r *http.Request, v view, parts []string) {
	core := parts[0] == "api"
	all := slices.DeleteFunc(s.kinds(v), func(k *kind) bool { return core != (k.gv.Group == "") })
	switch len(parts) {
	case 1:
		if wantsAggregated(r) {
			w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
			s.encode(w, aggregated(all))
			return
		}
		if core {
			s.answer(w, metav1.APIVersions{TypeMeta: typeMeta("APIVersions"), Versions: []string{"v1"}})
			return
		}
		s.answer(w, metav1.APIGroupList{TypeMeta: typeMeta("APIGroupList"), Groups: groups(all)})
	case 2:
		if core {
			s.resources(w, r, all, schema.GroupVersion{Version: parts[1]})
			return
		}
		for _, g := range groups(all) {
			if g.Name == parts[1] {
				g.TypeMeta = typeMeta("APIGroup")
				s.answer(w, g)
				return
			}
		}
		s.fail(w, notFound(r.URL.Path))
	case 3:
		s.resources(w, r, all, schema.GroupVersion{Group: parts[1], Version: parts[2]})
	}
}

func typeMeta(kind string) metav1.TypeMeta { return metav1.TypeMeta{Kind: kind, APIVersion: "v1"} }

func (s *Server) resources(w http.ResponseWriter, r *http.Request, all []*kind, gv schema.GroupVersion) {
	list := metav1.APIResourceList{TypeMeta: typeMeta("APIResourceList"), GroupVersion: gv.String(), APIResources: []metav1.APIResource{}}
	for _, k := range all {
		if k.gv == gv {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: k.plural, SingularName: k.singular, Namespaced: k.Namespaced, Kind: k.Kind.Kind, Verbs: k.verbs,
				ShortNames: k.shortNames, Categories: k.categories,
			})
		}
	}
	if len(list.APIResources) == 0 && gv != (schema.GroupVersion{Version: "v1"}) {
		s.fail(w, notFound(r.URL.Path))
		return
	}
	s.answer(w, list)
}

func groups(all []*kind) []metav1.APIGroup {
	out := []metav1.APIGroup{}
	for _, k := range all { // which are in the order of their groups
		gv := metav1.GroupVersionForDiscovery{GroupVersion: k.gv.String(), Version: k.gv.Version}
		if n := len(out); n == 0 || out[n-1].Name != k.gv.Group {
			out = append(out, metav1.APIGroup{Name: k.gv.Group, PreferredVersion: gv})
		}
		if g := &out[len(out)-1]; !slices.Contains(g.Versions, gv) {
			g.Versions = append(g.Versions, gv)
		}
	}
	return out
}

// wantsAggregated reports whether a client prefers aggregated discovery (KEP-3352).
func wantsAggregated(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		kind, params, err := mime.ParseMediaType(part)
		if err != nil || kind != "application/json" {
			continue
		}
		as := params["as"]
		if as == "" || as == "APIGroupDiscoveryList" && params["g"] == "apidiscovery.k8s.io" && params["v"] == "v2" {
			return as != ""
		}
	}
	return false
}

func aggregated(all []*kind) apidiscovery.APIGroupDiscoveryList {
	list := apidiscovery.APIGroupDiscoveryList{Items: []apidiscovery.APIGroupDiscovery{}}
	list.Kind, list.APIVersion = "APIGroupDiscoveryList", "apidiscovery.k8s.io/v2"
	for _, k := range all {
		if n := len(list.Items); n == 0 || list.Items[n-1].Name != k.gv.Group {
			list.Items = append(list.Items, apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: k.gv.Group}})
		}
		g := &list.Items[len(list.Items)-1]
		if n := len(g.Versions); n == 0 || g.Versions[n-1].Version != k.gv.Version {
			version := apidiscovery.APIVersionDiscovery{Version: k.gv.Version, Freshness: apidiscovery.DiscoveryFreshnessCurrent}
			g.Versions = append(g.Versions, version)
		}
		scope := apidiscovery.ScopeCluster
		if k.Namespaced {
			scope = apidiscovery.ScopeNamespace
		}
		version := &g.Versions[len(g.Versions)-1]
		version.Resources = append(version.Resources, apidiscovery.APIResourceDiscovery{
			Resource: k.plural, SingularResource: k.singular, Scope: scope, Verbs: k.verbs, ShortNames: k.shortNames,
			Categories: k.categories, ResponseKind: &metav1.GroupVersionKind{Group: k.gv.Group, Version: k.gv.Version, Kind: k.Kind.Kind},
		})
	}
	return list
}
