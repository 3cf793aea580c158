package source

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubediscovery "k8s.io/client-go/discovery"

	"github.com/kubebridge/kubebridge/pkg/source/discovery"
	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

// catalogTimeout bounds one round of discovery, all its requests together.
const catalogTimeout = 30 * time.Second

// Catalog asks the server for its resources, in one round of discovery without a
// cache: aggregated (KEP-3352), or group by group on older servers. A
// group whose discovery fails, because the server behind it is down, is unknown
// in the catalog. If Catalog returns an error, there is no catalog.
func (c *Client) Catalog(ctx context.Context) (*discovery.Catalog, error) {
	ctx, cancel := context.WithTimeout(ctx, catalogTimeout)
	defer cancel()
	groups, lists, err := kubediscovery.ServerGroupsAndResourcesWithContext(ctx, c.discovery)
	failed, partial := kubediscovery.GroupDiscoveryFailedErrorGroups(err)
	if ctx.Err() != nil {
		err, partial = ctx.Err(), false // the other requests failed because ctx ended
	}
	if err != nil && (!partial || len(lists) == 0) {
		err = listwatch.PlainCause(err)
		if listwatch.StatusCode(err) == http.StatusUnauthorized { // what the server serves is no resource of anybody else
			err = fmt.Errorf("%w: %w", ErrCredentials, err)
		}
		return nil, fmt.Errorf("ask the server what it serves: %w", err)
	}
	var unknown []schema.GroupVersion
	for gv := range failed {
		unknown = append(unknown, gv)
	}
	core := schema.GroupVersion{Version: "v1"}
	if !slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool {
		return l.GroupVersion == core.String() && len(l.APIResources) > 0
	}) {
		unknown = append(unknown, core) // client-go accepts a 404 as an empty answer for the core group
	}
	return discovery.NewCatalog(groups, lists, unknown).WithAggregated(c.aggregated(ctx)), nil
}
