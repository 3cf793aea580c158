package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

// ErrSelector is returned when the server does not support a selector on a
// resource. Every resource supports labels, and the fields metadata.name and metadata.namespace.
// Some resources support more fields.
var ErrSelector = errors.New("the server does not support this selector")

const tryTimeout = 10 * time.Second

// Try sends the requests of a [Collection] of the target: a list of one object, and a watch
// that it closes at once. It returns an error that wraps
// [ErrSelector], an error that names the missing permission, or another error. After nil, later
// requests may still fail.
func (c *Client) Try(ctx context.Context, t Target) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	one := NewCollection(Options{Client: c, Target: t})
	result := one.request(listForm).Param("limit", "1").Do(ctx)
	raw, err := result.Raw()
	if err != nil {
		return tryError(t, fmt.Errorf("list: %w", listwatch.PlainCause(result.Error()))) // err does not say why
	}
	var list metav1.PartialObjectMetadataList // also parses whole objects
	if err := json.Unmarshal(raw, &list); err != nil {
		return tryError(t, fmt.Errorf("list: parse: %w", err))
	}
	body, err := one.request(watchForm).Param("watch", "true").Param("timeoutSeconds", "1").Param("resourceVersion", list.ResourceVersion).Stream(ctx)
	if err != nil {
		return tryError(t, fmt.Errorf("watch: %w", listwatch.PlainCause(err)))
	}
	return body.Close()
}

func tryError(t Target, err error) error {
	switch code := listwatch.StatusCode(err); {
	case code == http.StatusBadRequest && t.Collection.FieldSelector+t.Collection.LabelSelector != "":
		err = fmt.Errorf("%w (labelSelector %q, fieldSelector %q): %w", ErrSelector, t.Collection.LabelSelector, t.Collection.FieldSelector, err)
	case code == http.StatusForbidden:
		where := "in the whole cluster"
		if t.Collection.Namespace != "" {
			where = "in namespace " + t.Collection.Namespace
		}
		err = fmt.Errorf("%w: grant list and watch on %s %s", err, t.Collection.ResourceID(), where)
	}
	return fmt.Errorf("collection %s: %w", t.Collection.ID(), err)
}
