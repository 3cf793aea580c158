package audit

import (
	"errors"
	"strings"

	"github.com/kubebridge/kubebridge/internal/base/scan"
)

// Azure Monitor sends the resource logs of AKS clusters to Event Hubs as {"records": [...]}, each with the resource ID of its cluster. The properties of a record of the
// categories kube-audit and kube-audit-admin have the audit event as text in the field log, which k8saudit-aks of
// github.com/falcosecurity/plugins reads as well (shared/go/azure/eventhub). The other categories are logs of components.
//
// Azure replaces objects that are too large by the text "skipped-too-big-size-object"
// (https://learn.microsoft.com/en-us/azure/azure-monitor/reference/tables/aksaudit).

var errNoLog = errors.New("an Azure record has no text in properties.log")

// ErrNoCluster is in [Batch.Err] if an Azure record is not used because [Options.AzureResourceID] is not set.
var ErrNoCluster = errors.New("an Azure record can be of another cluster, and is not used")

// envelopes reads the array of records of a text that is valid.
func (r *reader) envelopes(records value) {
	err := records.elements(func(one value) error {
		r.envelope(one)
		return nil
	})
	if err != nil { // the array is none
		r.batch.Fail(errNoEvent)
	}
}

func (r *reader) envelope(one value) {
	text := func(name string) (string, error) {
		v, err := one.at(name)
		if err != nil {
			return "", err
		}
		return v.text()
	}
	category, categoryErr := text("category")
	cluster, clusterErr := text("resourceId")
	log, err := one.at("properties", "log")
	wanted := r.parser.options.AzureResourceID
	switch {
	case err != nil || categoryErr != nil || clusterErr != nil:
		r.batch.Fail(errNoLog)
	case category != "" && category != "kube-audit" && category != "kube-audit-admin":
		r.batch.drop(DropForeign)
	case wanted == "":
		r.batch.Fail(ErrNoCluster)
	case !strings.EqualFold(cluster, wanted):
		r.batch.drop(DropForeign)
	case len(log) == 0 || log[0] != '"':
		r.batch.Fail(errNoLog)
	default:
		kind, err := r.read(scan.Unquote(log))
		if err != nil {
			r.batch.Fail(err)
			return
		}
		r.finish(kind)
	}
}
