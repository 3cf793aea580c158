package source

import (
	"context"
	"fmt"

	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

// StateAt returns an object as it was at resourceVersion rv, or, if the server does not have rv any more, as it is now. version is the
// resourceVersion of that state. The object is nil if the state does not have it, or the collection's selectors do not select it; otherwise the
// caller releases it. StateAt takes no slot of [Options].Lists. n must be whole (see [event.WholeName]).
func (c *Collection) StateAt(ctx context.Context, rv string, n Name) (o *Object, version string, err error) {
	k := c.copier()
	defer k.close()
	read := func(exact string) error {
		version, err = c.pages(ctx, pageQuery{exact: exact, one: n, limit: 1}, func(string) error { return nil }, func(found *Object) error {
			k.own(found)
			o = found
			return nil
		})
		return err
	}
	if isForgotten(read(rv)) {
		_ = read("") // sets err
	}
	if err != nil {
		return nil, "", fmt.Errorf("read %s %s/%s: %w", c.target.Resource, n.Namespace, n.Name, listwatch.PlainCause(err))
	}
	return o, version, nil
}
