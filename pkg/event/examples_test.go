package event_test

import (
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// example is one golden file.
type example struct {
	name  string
	event event.Event
}

var encoder = event.Encoder{Cluster: "prod-eu-1", ClusterUID: "0b8c2f6e-5d0e-4c39-9a6c-0f7e3f1f5d11"}

// examples returns one event of every form.
func examples() []example {
	at := func(second int) time.Time { return time.Date(2026, 3, 14, 9, 26, second, 535_897_932, time.UTC) }
	berlin := time.FixedZone("CET", 3600)
	pods := &event.Collection{Resource: "pods"}
	deployments := &event.Collection{Group: "apps", Resource: "deployments"}
	secrets := &event.Collection{Resource: "secrets", Entry: "audit", Namespace: "payments"}
	nodes := &event.Collection{Resource: "nodes"}
	crontabs := &event.Collection{Group: "stable.example.com", Resource: "crontabs"}
	const first, run = 1773400000000, "1773480360000" // the incarnation, and the run of a later gap
	plan := &event.Plan{Number: 1773470000000, Digest: event.PlanDigest(map[string]uint64{"secrets:audit@payments": first}), Edit: first, Birth: 1773300000000}

	const podUID, webUID = "6f1b1a2c-8f0e-4b7a-9d55-2f3a4c5d6e7f", "c1d2e3f4-0a1b-4c2d-8e3f-4a5b6c7d8e9f"
	const secretUID, nodeUID, cronUID = "a0a1a2a3-b0b1-4c0c-8d0d-e0e1e2e3e4e5", "11111111-2222-4333-8444-555555555555", "99999999-8888-4777-8666-555555555555"
	since := at(0).In(berlin)
	redacted := event.Selection{Redacted: true}

	return []example{
		{"added", event.Event{
			Type: event.Added, Origin: event.Watch, Time: at(1), Collection: pods,
			APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web-0", UID: podUID, ResourceVersion: "1041", Run: run, Incarnation: first,
			Object: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","namespace":"shop","uid":"` + podUID + `","resourceVersion":"1041","labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"nginx:1.29","args":["--greet=<hi & \"bye\">"]}]},"status":{"phase":"Pending"}}`),
		}},
		{"modified", event.Event{
			Type: event.Modified, Origin: event.Watch, Time: at(2), Collection: deployments, Epoch: 1,
			APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web", UID: webUID, ResourceVersion: "1057", Run: run, Incarnation: first,
			Object: []byte(`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web","namespace":"shop","uid":"` + webUID + `","resourceVersion":"1057","generation":4},"spec":{"replicas":3},"status":{"readyReplicas":2}}`),
		}},
		{"modified-diff", event.Event{
			Type: event.Modified, Origin: event.Watch, Time: at(2), Collection: deployments, Epoch: 1,
			APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web", UID: webUID, ResourceVersion: "1057", Run: run, Incarnation: first,
			Object:    []byte(`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web","namespace":"shop","uid":"` + webUID + `","resourceVersion":"1057"},"spec":{"replicas":3}}`),
			Before:    []byte(`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web","namespace":"shop","uid":"` + webUID + `","resourceVersion":"1041"},"spec":{"replicas":2}}`),
			Patch:     []byte(`[{"op":"replace","path":"/metadata/resourceVersion","value":"1057"},{"op":"replace","path":"/spec/replicas","value":3}]`),
			Base:      "1041",
			ChangedBy: []byte(`[{"manager":"kubectl","operation":"Update","subresource":"scale","time":"2026-03-14T09:26:02Z","paths":["spec.replicas"]}]`),
		}},
		{"modified-actor", event.Event{
			Type: event.Modified, Origin: event.Watch, Time: at(2), Collection: deployments, Epoch: 1,
			APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web", UID: webUID, ResourceVersion: "1059", Run: run, Incarnation: first,
			Object: []byte(`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web","namespace":"shop","uid":"` + webUID + `","resourceVersion":"1059"},"spec":{"replicas":4}}`),
			Actor: &event.Request{
				User: event.User{Name: "alice@example.com", Groups: []string{"shop-admins", "system:authenticated"}}, SourceIPs: []string{"10.0.0.12"}, UserAgent: "kubectl/v1.36.3",
				Verb: "update", URI: "/apis/apps/v1/namespaces/shop/deployments/web", AuditID: "6c7d8e9f-2a3b-4c4d-8e5f-6a7b8c9d0e1f", Received: event.FormatTime(at(1)), Completed: event.FormatTime(at(2)), Code: 200,
			},
		}},
		{"modified-leftout", event.Event{
			Type: event.Modified, Origin: event.Watch, Time: at(2), Collection: deployments, Epoch: 1,
			APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web", UID: webUID, ResourceVersion: "1058", Run: run, Incarnation: first,
			Object:  []byte(`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web","namespace":"shop","uid":"` + webUID + `","resourceVersion":"1058"},"spec":{"replicas":3}}`),
			Patch:   []byte(`[]`),
			Base:    "1057",
			LeftOut: []string{"changedby"},
		}},
		{"deleted", event.Event{
			Type: event.Deleted, Origin: event.Watch, Time: at(3), Collection: pods,
			APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web-0", UID: podUID, ResourceVersion: "1041", DeletionVersion: "1102", Run: run, Incarnation: first,
			Object: []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-0","namespace":"shop","uid":"` + podUID + `","resourceVersion":"1102","deletionTimestamp":"2026-03-14T09:26:33Z"},"spec":{"containers":[{"name":"web","image":"nginx:1.29"}]},"status":{"phase":"Succeeded"}}`),
		}},
		{"deleted-synthesised", event.Event{
			Type: event.Deleted, Origin: event.Reconcile, Time: at(4), Collection: nodes,
			APIVersion: "v1", Kind: "Node", Name: "worker-7", UID: nodeUID, ResourceVersion: "312", DeletionVersion: "2200", Run: run, Incarnation: first,
		}},
		{"deleted-left", event.Event{
			Type: event.Deleted, Origin: event.Watch, Time: at(5), Collection: secrets,
			APIVersion: "v1", Kind: "Secret", Namespace: "payments", Name: "card-key", UID: secretUID, ResourceVersion: "1003", DeletionVersion: "1190", Run: run, Incarnation: first,
			Object: []byte(`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"card-key","namespace":"payments","uid":"` + secretUID + `","resourceVersion":"1190","labels":{"audit":"false"}},"data":{"key":"redacted"},"type":"Opaque"}`),
			Reason: "left",
		}},
		{"present", event.Event{
			Type: event.Present, Origin: event.Resync, Time: at(6), Collection: crontabs, Epoch: 2,
			APIVersion: "stable.example.com/v1", Kind: "CronTab", Namespace: "ops", Name: "nightly", UID: cronUID, ResourceVersion: "977", Run: run, Incarnation: first,
			Object: []byte(`{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"nightly","namespace":"ops","resourceVersion":"977","uid":"` + cronUID + `"},"spec":{"cronSpec":"0 3 * * *"}}`),
		}},
		{"truncated", event.Event{
			Type: event.Modified, Origin: event.Reconcile, Time: at(7), Collection: crontabs,
			APIVersion: "stable.example.com/v1", Kind: "CronTab", Namespace: "ops", Name: "huge", UID: cronUID, ResourceVersion: "1301", Run: run, Incarnation: first,
			Object:    []byte(`{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"huge","namespace":"ops","resourceVersion":"1301","uid":"` + cronUID + `"}}`),
			Truncated: &event.Truncation{Size: 1_310_720, SHA256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", Limit: 1_048_576},
		}},
		{"truncated-fields", event.Event{
			Type: event.Added, Origin: event.Watch, Time: at(7), Collection: &event.Collection{Resource: "secrets"},
			APIVersion: "v1", Kind: "Secret", Namespace: "ops", Name: "huge", UID: cronUID, ResourceVersion: "1302", Run: run, Incarnation: first,
			Object:    []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"huge","namespace":"ops","resourceVersion":"1302","uid":"` + cronUID + `"}}`),
			Truncated: &event.Truncation{Size: 1_310_720, SHA256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", Limit: 1_048_576, Fields: map[string]string{"type": "Opaque"}},
		}},
		{"too-deep", event.Event{
			Type: event.Added, Origin: event.Watch, Time: at(7), Collection: crontabs,
			APIVersion: "stable.example.com/v1", Kind: "CronTab", Namespace: "ops", Name: "deep", UID: cronUID, ResourceVersion: "1302", Run: run, Incarnation: first,
			Object:    []byte(`{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"deep","namespace":"ops","resourceVersion":"1302","uid":"` + cronUID + `"}}`),
			Truncated: &event.Truncation{Size: 20_480, Levels: event.MaxLevels},
		}},
		{"dead-letter", event.Event{
			Type: event.Added, Origin: event.Watch, Time: at(7), Collection: crontabs,
			APIVersion: "stable.example.com/v1", Kind: "CronTab", Namespace: "ops", Name: "huge", UID: cronUID, ResourceVersion: "1300", Run: run, Incarnation: first,
			Object:     []byte(`{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"huge","namespace":"ops","resourceVersion":"1300","uid":"` + cronUID + `"},"spec":{"cronSpec":"0 3 * * *"}}`),
			DeadLetter: &event.DeadLetter{Reason: event.Oversize, Route: "k8s.prod-eu-1.stable.example.com.crontabs", Size: 1_311_942, Limit: 1_048_588},
		}},
		{"attributed", event.Event{
			Type: event.Attributed, Explained: event.Modified, Origin: event.Audit, Time: at(8), Collection: deployments,
			APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web", UID: webUID, ResourceVersion: "1057", Run: run, Incarnation: first,
			Attribution: &event.Attribution{Explains: "deployments.apps:" + run + ":" + webUID + ":1057:modified", Request: &event.Request{
				User:         event.User{Name: "system:serviceaccount:ci:deployer", UID: "d4c3b2a1", Groups: []string{"system:serviceaccounts", "system:authenticated"}, Extra: map[string][]string{"authentication.kubernetes.io/pod-name": {"deploy-7"}}},
				Impersonated: &event.User{Name: "alice@example.com", Groups: []string{"shop-admins"}},
				SourceIPs:    []string{"203.0.113.9", "10.0.0.12"}, UserAgent: "kubectl/v1.36.3 (linux/amd64) kubernetes/abcdef0",
				Verb: "update", Subresource: "scale", URI: "/apis/apps/v1/namespaces/shop/deployments/web/scale", AuditID: "5b6c7d8e-1f2a-4b3c-9d4e-5f6a7b8c9d0e",
				Received: event.FormatTime(at(2)), Completed: event.FormatTime(at(3)), Code: 200,
				Decision: "allow", DecisionReason: "RBAC: allowed by RoleBinding \"shop-admins/shop\" of Role \"editor\" to Group \"shop-admins\"",
			}},
		}},
		{"attributed-candidates", event.Event{
			Type: event.Attributed, Explained: event.Deleted, Origin: event.Audit, Time: at(8), Collection: pods,
			APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web-0", UID: podUID, ResourceVersion: "1041", Run: run, Incarnation: first,
			Attribution: &event.Attribution{
				Explains: "pods:" + run + ":" + podUID + ":1041:deleted", Reason: "incomplete", LeftOut: []string{"extra", "groups"},
				Candidates: []event.Request{{User: event.User{Name: "alice@example.com"}, Verb: "deletecollection", URI: "/api/v1/namespaces/shop/pods", Received: event.FormatTime(at(2)), Code: 200, Cut: true}},
			},
		}},
		{"denied", event.Event{
			Type: event.Denied, Origin: event.Audit, Time: at(8), Collection: deployments, RequestID: "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
			APIVersion: "apps/v1", Namespace: "shop", Name: "web", Run: run, Incarnation: first,
			Denial: &event.Denial{
				Request: event.Request{
					User: event.User{Name: "mallory@example.com", Groups: []string{"system:authenticated"}}, SourceIPs: []string{"10.0.0.66"}, UserAgent: "kubectl/v1.36.3 (linux/amd64) kubernetes/abcdef0",
					Verb: "delete", URI: "/apis/apps/v1/namespaces/shop/deployments/web", AuditID: "7e8d9c0b-1f2a-4b3c-9d4e-5f6a7b8c9d0e",
					Received: event.FormatTime(at(2)), Completed: event.FormatTime(at(3)), Code: 403, Decision: "forbid",
				},
				Message: "deployments.apps \"web\" is forbidden: User \"mallory@example.com\" cannot delete resource \"deployments\" in API group \"apps\" in the namespace \"shop\"",
			},
		}},
		{"denied-collection", event.Event{
			Type: event.Denied, Origin: event.Audit, Time: at(8), Collection: pods, RequestID: "00112233445566778899aabbccddeeff",
			APIVersion: "v1", Run: run, Incarnation: first,
			Denial: &event.Denial{
				Request: event.Request{User: event.User{Name: "system:anonymous"}, Verb: "list", Received: event.FormatTime(at(2)), Code: 403, Decision: "forbid", Cut: true},
				LeftOut: []string{"uri", "message"},
			},
		}},
		{"lost", event.Event{
			Type: event.Lost, Origin: event.Audit, Time: at(8), Collection: secrets, RequestID: "ffeeddccbbaa99887766554433221100", Namespace: secrets.Namespace, Run: run, Incarnation: first,
			Loss: &event.Loss{Since: event.FormatTime(at(2)), Until: event.FormatTime(at(7)), Detail: "audit log file: the file was replaced before it was read to its end"},
		}},
		{"gap", event.Event{
			Type: event.Gap, Origin: event.Reconcile, Time: at(8), Collection: secrets, ResourceVersion: "1190", Run: run, Incarnation: first, Plan: plan,
			Report: &event.Report{Reason: "expired", Detail: "resourceVersion 1190 is no longer served: too old resource version: 1190 (1875)", From: "1190", Selection: redacted},
		}},
		{"gap-reset", event.Event{
			Type: event.Gap, Origin: event.Snapshot, Time: at(8), Collection: secrets, Run: "1773400000000", Incarnation: first, Plan: plan,
			Report: &event.Report{Reason: "reset", Reset: true, Selection: event.Selection{
				Labels: "app in (a,b)", Fields: "metadata.namespace!=kube-system", Types: event.Types(0).Without(event.Deleted),
				Filtered: true, Ignores: true, MetadataOnly: true, Dropped: true, StatusDropped: true, Redacted: true,
			}},
		}},
		{"synced", event.Event{
			Type: event.Synced, Origin: event.Reconcile, Time: at(9), Collection: secrets, ResourceVersion: "2214", Run: run, Nth: 1, Incarnation: first, Plan: plan,
			Report: &event.Report{Reason: "expired", To: "2214", Since: &since, Counts: &event.Counts{Listed: 40, Added: 2, Modified: 1, Deleted: 3, Unchanged: 37}, Selection: redacted},
		}},
		{"synced-gone", event.Event{
			Type: event.Synced, Origin: event.Reconcile, Time: at(9), Collection: secrets, Run: run, Nth: 1, Incarnation: first, Plan: plan,
			Report: &event.Report{Reason: "gone", Since: &since, Counts: &event.Counts{Deleted: 3}, Selection: redacted},
		}},
		{"synced-periodic", event.Event{
			Type: event.Synced, Origin: event.Watch, Time: at(9), Collection: secrets, ResourceVersion: "2214", Run: run, Nth: 2, Incarnation: first, Plan: plan,
			Report: &event.Report{Reason: "periodic", To: "2214"},
		}},
		{"closed", event.Event{
			Type: event.Closed, Origin: event.Reconcile, Time: at(10), Collection: deployments, Run: run, Incarnation: first, Plan: plan,
			Report: &event.Report{Reason: "removed"},
		}},
	}
}

func encode(e *event.Event) []byte {
	return event.Structured.Append(nil, encoder.Attributes(e), e)
}
