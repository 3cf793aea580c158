package bridge

import (
	"errors"
	"net"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	planning "github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// The advice that no cause is known for: the sections of docs/runbook.md have the steps.
const (
	adviceSink       = "if this lasts, follow KubebridgeSinkFailing in the runbook: it is tried again"
	adviceCollection = "if this lasts, follow KubebridgeCollectionStalled in the runbook: it is tried again, and nothing is lost meanwhile"
	adviceRoute      = "correct what the error names: see KubebridgeRouteSuspended in the runbook"
)

const renewCredentials = "renew the bridge's credentials: its service account or kubeconfig. They are read again without a restart"

// advice returns what a user can do about an error that is retried. otherwise is the advice if the cause is not known.
func advice(err error, otherwise string) string {
	var network net.Error
	switch {
	case errors.As(err, new(*sink.RouteError)), errors.As(err, new(*sink.RecordError)):
		return adviceRoute
	case errors.Is(err, syscall.ENOSPC):
		return "make room on the disk that the error names: it is tried again, and nothing is lost meanwhile"
	case otherwise == adviceSink && errors.As(err, &network):
		return "check the sink's addresses and the network; if this lasts, follow KubebridgeSinkFailing in the runbook: it is tried again"
	case errors.As(err, new(*source.ResourceError)):
		return "repair what serves the resource, because the API server answers other requests: " +
			"the conversion webhook of its CustomResourceDefinition, its APIService, or its storage"
	case apierrors.IsForbidden(err):
		return "let the bridge's account get, list and watch the resource"
	case apierrors.IsUnauthorized(err), errors.Is(err, source.ErrCredentials):
		return renewCredentials
	case errors.Is(err, planning.ErrSeveral), errors.Is(err, planning.ErrAmbiguous):
		return "write the resource with its plural and group"
	case errors.Is(err, discovery.ErrNoResource):
		return "install what defines the resource, correct its name, or take it out of the configuration"
	case errors.Is(err, discovery.ErrNotWatchable):
		return "take it out of the configuration: the API server cannot list and watch it"
	case errors.Is(err, discovery.ErrUnknownGroup):
		return "repair the server behind the APIService (kubectl get apiservices), delete the APIService, or name its group in exclude"
	case apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err), apierrors.IsInternalError(err):
		return "the API server is short of something: look at its load if this lasts"
	default:
		return otherwise
	}
}
