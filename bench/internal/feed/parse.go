package feed

import (
	"fmt"
	"strconv"
	"strings"
)

// Parse returns the resources of a list such as "pods,events,widgets*500", each with
// the numbers of shape. widgets*N means N custom resources. The list may name only
// resources of which frames were captured. Parse adds CRDs and APIServices, which have
// no objects, because a client may watch them.
func Parse(list string, shape Resource) ([]*Resource, error) {
	var all []*Resource
	add := func(r Resource) {
		r.Events, r.Objects, r.Initial, r.Silent, r.Lives = shape.Events, shape.Objects, shape.Initial, shape.Silent, shape.Lives
		r.Distinct = shape.Distinct
		r.First = uint64(len(all)) * max(r.Initial+r.Events, r.Objects)
		all = append(all, &r)
	}
	for name := range strings.SplitSeq(list, ",") {
		name, times, many := strings.Cut(name, "*")
		switch name {
		case "pods":
			add(Resource{Version: "v1", Plural: name, Kind: "Pod"})
		case "events":
			add(Resource{Version: "v1", Plural: name, Kind: "Event"})
		case "secrets":
			add(Resource{Version: "v1", Plural: name, Kind: "Secret"})
		case "widgets":
			n := 1
			if many {
				var err error
				if n, err = strconv.Atoi(times); err != nil {
					return nil, fmt.Errorf("resources: %q is no number: %w", times, err)
				}
			}
			for i := range n {
				add(Resource{Group: "bench.kubebridge.io", Version: "v1", Plural: fmt.Sprintf("widgets%03d", i), Kind: fmt.Sprintf("Widget%03d", i), Custom: true})
			}
		default:
			return nil, fmt.Errorf("resources: no frames of %q were captured; there are pods, events, secrets and widgets*N", name)
		}
	}
	for _, r := range []Resource{
		{Group: "apiextensions.k8s.io", Version: "v1", Plural: "customresourcedefinitions", Kind: "CustomResourceDefinition", Custom: true},
		{Group: "apiregistration.k8s.io", Version: "v1", Plural: "apiservices", Kind: "APIService", Custom: true},
	} {
		all = append(all, &r)
	}
	return all, nil
}
