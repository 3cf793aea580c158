package attribution

import (
	"fmt"
	"testing"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// The API server serves Events in two groups. A request for either of them makes a change of a collection of either of them: the scheduler writes
// through events.k8s.io, and most configurations have the core group.
func TestRequestsOfTheOtherGroup(t *testing.T) {
	for _, collection := range []string{"", "events.k8s.io"} {
		for _, request := range []string{"", "events.k8s.io"} {
			t.Run(fmt.Sprintf("collection of %q, request of %q", collection, request), func(t *testing.T) { exactOf(t, collection, request) })
		}
	}
}

func exactOf(t *testing.T, collection, request string) {
	a, store := newDenying(t)
	r := newRig(t, &nowhere{}, store, a.spec, event.Collection{Group: collection, Resource: "events"})
	defer r.stop()
	defer r.followsAudit(a)()
	r.snapshot("10")
	r.reads(watched("e", "11", "10"))
	var b audit.Batch
	p := audit.NewParser(audit.Options{Denied: true})
	ref := fmt.Sprintf(`"user":{"username":"scheduler"},"objectRef":{"apiGroup":%q,"apiVersion":"v1","resource":"events","namespace":"a","name":"e"}`, request)
	p.Message(fmt.Appendf(nil, `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"1","stage":"ResponseComplete","verb":"create",%s,
		"responseStatus":{"code":201},"responseObject":{"metadata":{"namespace":"a","name":"e","uid":"uid-e","resourceVersion":"11"}}}`, ref), &b)
	p.Message(fmt.Appendf(nil, `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"2","stage":"ResponseComplete","verb":"delete",%s,
		"responseStatus":{"code":403}}`, ref), &b)
	if err := a.Append(b.Records); err != nil {
		t.Fatal(err)
	}
	r.shows("the change is exact, and the denied request is published", func(s shown) bool {
		return s.Exact == 1 && s.Denied == 1
	})
}
