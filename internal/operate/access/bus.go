package access

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// BusOptions say what is known in addition to the configuration.
type BusOptions struct {
	ClusterOptions
	ClusterUID string // "": not known
}

// Targets returns the resources that the entries of a sink mean. Its errors are those of [ForCluster].
func Targets(c *config.Config, s *config.Sink, o ClusterOptions) (out []bus.Target, err error) {
	o.Everything = true // this grants no permission in the cluster
	a := newAsker(c, o)
	named, err := a.named(c.ResourcesOf(s))
	if err != nil {
		return nil, err
	}
	for _, r := range c.ResourcesOf(s) {
		list, err := a.resolve(r)
		if err != nil {
			return nil, err
		}
		entry := r.OnBus()
		for _, gr := range list {
			if discovery.Parse(r.Name()).IsPattern() && slices.Contains(named, gr) {
				continue // it goes where its own entry says
			}
			out = append(out, bus.Target{Entry: &entry, Group: gr.Group, Resource: gr.Resource})
		}
	}
	return out, nil
}

// named returns the resources that have an entry of their own.
func (a *asker) named(list []config.Resource) (out []schema.GroupResource, err error) {
	for _, r := range list {
		if discovery.Parse(r.Name()).IsPattern() {
			continue
		}
		found, err := a.resolve(r)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}
