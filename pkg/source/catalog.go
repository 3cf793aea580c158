package source

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubediscovery "k8s.io/client-go/discovery"

	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// catalogTimeout bounds one round of discovery, all its requests together.
const catalogTimeout = 30 * time.Second

// Catalog asks the server what it serves, in one round of discovery that nothing
// is remembered of: aggregated (KEP-3352), or group by group on older servers. A
// group that cannot be asked, because the server behind it is down, is unknown
// in the catalog. An error means that nothing was learnt.
func (c *Client) Catalog(ctx context.Context) (*discovery.Catalog, error) {
	ctx, cancel := context.WithTimeout(ctx, catalogTimeout)
	defer cancel()
	groups, lists, err := kubediscovery.ServerGroupsAndResourcesWithContext(ctx, c.discovery)
	failed, partial := kubediscovery.GroupDiscoveryFailedErrorGroups(err)
	if ctx.Err() != nil {
		err, partial = ctx.Err(), false // it is the rest that failed
	}
	if err != nil && (!partial || len(lists) == 0) {
		return nil, fmt.Errorf("ask the server what it serves: %w", plainCause(err))
	}
	var unknown []schema.GroupVersion
	for gv := range failed {
		unknown = append(unknown, gv)
	}
	core := schema.GroupVersion{Version: "v1"}
	if !slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool {
		return l.GroupVersion == core.String() && len(l.APIResources) > 0
	}) {
		unknown = append(unknown, core) // client-go takes a 404 there for an answer
	}
	return discovery.NewCatalog(groups, lists, unknown).WithAggregated(c.aggregated(ctx)), nil
}
