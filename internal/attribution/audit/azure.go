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

// envelope are the parts of an Azure record that are used.
type envelope struct {
	category, cluster, log value
}

// envelopes reads the array of records of a text that is valid.
func (r *reader) envelopes(records value) {
	var s scan.Scanner
	s.Reset(records)
	err := s.Elements(func() error {
		one, err := s.Value()
		if err == nil {
			r.envelope(one)
		}
		return err
	})
	if err != nil { // the array is none
		r.batch.Fail(errNoEvent)
	}
}

func (r *reader) envelope(text []byte) {
	var one envelope
	err := value(text).members(func(name []byte, v value) error {
		switch string(name) {
		case "category":
			one.category = v
		case "resourceId":
			one.cluster = v
		case "properties":
			return v.members(func(name []byte, v value) error {
				if string(name) == "log" {
					one.log = v
				}
				return nil
			})
		}
		return nil
	})
	category, categoryErr := one.category.text()
	cluster, clusterErr := one.cluster.text()
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
	case len(one.log) == 0 || one.log[0] != '"':
		r.batch.Fail(errNoLog)
	default:
		kind, err := r.read(scan.Unquote(one.log))
		if err != nil {
			r.batch.Fail(err)
			return
		}
		r.finish(kind)
	}
}
