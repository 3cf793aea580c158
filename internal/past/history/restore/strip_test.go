package restore

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestStrip: fields that a cluster has assigned are removed, fields that a user has chosen stay.
func TestStrip(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{
			"{apiVersion: v1, kind: Service, metadata: {name: a, uid: u, generation: 1, labels: {x: y}}, spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], type: ClusterIP}, status: {}}",
			"{apiVersion: v1, kind: Service, metadata: {name: a, labels: {x: y}}, spec: {type: ClusterIP}}",
		},
		{
			"{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: None, clusterIPs: [None]}}",
			"{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: None, clusterIPs: [None]}}",
		},
		{
			"{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a, finalizers: [kubernetes.io/pvc-protection, own], annotations: {pv.kubernetes.io/bind-completed: 'yes', mine: a}}, spec: {volumeName: v, accessModes: [ReadWriteOnce]}}",
			"{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a, finalizers: [own], annotations: {mine: a}}, spec: {accessModes: [ReadWriteOnce]}}",
		},
		{
			"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeName: n, volumes: [{name: kube-api-access-x}, {name: own}], containers: [{name: c, volumeMounts: [{name: kube-api-access-x}, {name: own}]}]}}",
			"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {volumes: [{name: own}], containers: [{name: c, volumeMounts: [{name: own}]}]}}",
		},
		{
			"{apiVersion: batch/v1, kind: Job, metadata: {name: a, labels: {controller-uid: u, app: x}}, spec: {selector: {matchLabels: {controller-uid: u}}, template: {metadata: {labels: {batch.kubernetes.io/controller-uid: u}}}}}",
			"{apiVersion: batch/v1, kind: Job, metadata: {name: a, labels: {app: x}}, spec: {template: {metadata: {labels: {}}}}}",
		},
		{"{apiVersion: v1, kind: Namespace, metadata: {name: a}, spec: {finalizers: [kubernetes]}}", "{apiVersion: v1, kind: Namespace, metadata: {name: a}}"},
	} {
		got := object(t, c.in)
		strip(got)
		if diff := cmp.Diff(object(t, c.want).Object, got.Object); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.in, diff)
		}
	}
}

// TestSkip: objects that a controller creates, and Jobs that would run again, are not restored.
func TestSkip(t *testing.T) {
	for text, want := range map[string]bool{
		"{apiVersion: v1, kind: Pod, metadata: {name: a}}": false,
		"{apiVersion: v1, kind: Pod, metadata: {name: a, ownerReferences: [{apiVersion: v1, kind: X, name: x, uid: u, controller: true}]}}":             true,
		"{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: a, ownerReferences: [{apiVersion: v1, kind: X, name: x, uid: u, controller: true}]}}": false,
		"{apiVersion: batch/v1, kind: Job, metadata: {name: a}, status: {conditions: [{type: Complete, status: 'True'}]}}":                              true,
		"{apiVersion: batch/v1, kind: Job, metadata: {name: a}, status: {active: 1}}":                                                                   false,
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, deletionTimestamp: '2026-03-14T09:26:00Z'}}":                                             true,
		"{apiVersion: v1, kind: Secret, metadata: {name: a}, type: kubernetes.io/service-account-token}":                                                true,
		"{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: a}}":                                                                        true,
	} {
		if got := skipReason(object(t, text)); (got != "") != want {
			t.Errorf("%s is skipped: %q", text, got)
		}
	}
}
