package event_test

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubebridge/kubebridge/pkg/event"
)

func parsed(t *testing.T, name string) *event.Received {
	t.Helper()
	e, err := event.Parse(read(t, golden(name)))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Parse loses nothing: every golden file can be written again from the parsed event.
func TestParseLosesNothing(t *testing.T) {
	for _, x := range examples() {
		t.Run(x.name, func(t *testing.T) {
			r := parsed(t, x.name)
			collection := event.ParseCollection(r.Collection)
			e := event.Event{
				Type: r.Type, Origin: r.Origin, Time: r.Time, Collection: &collection, Epoch: r.Epoch,
				APIVersion: r.APIVersion, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, UID: r.UID,
				ResourceVersion: r.ResourceVersion, DeletionVersion: r.DeletionVersion, Run: strconv.FormatUint(r.Run, 10), Incarnation: r.Incarnation, Nth: x.event.Nth, Plan: r.Plan,
				Object: r.Object, Reason: r.Reason, Truncated: r.Truncated, DeadLetter: r.DeadLetter, Report: r.Report,
				Before: r.Before, Patch: r.Patch, Base: r.Base, ChangedBy: r.ChangedBy, LeftOut: r.LeftOut, Attribution: r.Attribution, Actor: r.Actor, Denial: r.Denial,
			}
			if e.Loss = r.Loss; r.Denial != nil || r.Loss != nil {
				e.RequestID = x.event.RequestID
			}
			for _, explained := range []event.Type{event.Added, event.Modified, event.Deleted} {
				if r.Attribution != nil && strings.HasSuffix(r.Attribution.Explains, ":"+explained.String()) {
					e.Explained = explained
				}
			}
			if !r.BodyKnown {
				e.Object = nil
			}
			c := event.Encoder{Cluster: r.Cluster, ClusterUID: r.ClusterUID}
			again := append(event.Structured.Append(nil, c.Attributes(&e), &e), '\n')
			if diff := cmp.Diff(string(read(t, golden(x.name))), string(again)); diff != "" {
				t.Errorf("(-golden +again):\n%s", diff)
			}
			if r.ID != e.ID() || r.Group != collection.Group || r.Resource != collection.Resource || r.Entry != collection.Entry {
				t.Errorf("got id %q of %q %q %q", r.ID, r.Group, r.Resource, r.Entry)
			}
			if !bytes.Contains(read(t, golden(x.name)), append([]byte(`"data":`), r.Data...)) {
				t.Errorf("data is %s", r.Data)
			}
		})
	}
}

func TestParse(t *testing.T) {
	since := time.Date(2026, 3, 14, 9, 26, 0, 535_897_000, time.UTC)
	for _, want := range []event.Received{
		{
			Type: event.Present, ID: "crontabs.stable.example.com:1773480360000:99999999-8888-4777-8666-555555555555:977:present",
			Time: time.Date(2026, 3, 14, 9, 26, 6, 535_897_000, time.UTC), Cluster: encoder.Cluster, ClusterUID: encoder.ClusterUID,
			Collection: "crontabs.stable.example.com", Group: "stable.example.com", Resource: "crontabs", Origin: event.Resync, Epoch: 2,
			Namespace: "ops", ResourceVersion: "977", APIVersion: "stable.example.com/v1", Kind: "CronTab", Name: "nightly",
			UID: "99999999-8888-4777-8666-555555555555", BodyKnown: true, Run: 1773480360000, Incarnation: 1773400000000,
		},
		{
			Type: event.Synced, ID: "secrets:audit@payments:1773480360000:1:synced",
			Time: time.Date(2026, 3, 14, 9, 26, 9, 535_897_000, time.UTC), Cluster: encoder.Cluster, ClusterUID: encoder.ClusterUID,
			Collection: "secrets:audit@payments", Resource: "secrets", Entry: "audit", Origin: event.Reconcile, Epoch: 1,
			Namespace: "payments", ResourceVersion: "2214", Run: 1773480360000, Incarnation: 1773400000000,
			Plan:   &event.Plan{Number: 1773470000000, Digest: event.PlanDigest(map[string]uint64{"secrets:audit@payments": 1773400000000}), Edit: 1773400000000, Birth: 1773300000000},
			Report: &event.Report{Reason: "expired", To: "2214", Since: &since, Counts: &event.Counts{Listed: 40, Added: 2, Modified: 1, Deleted: 3, Unchanged: 37}, Selection: event.Selection{Redacted: true}},
		},
	} {
		got := parsed(t, want.Type.String())
		got.Data, got.Object = nil, nil // see TestParseLosesNothing
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.Type, diff)
		}
	}
}

// Parse refuses messages that are not events, and incomplete events.
func TestParseRefuses(t *testing.T) {
	added, synced := string(read(t, golden("added"))), string(read(t, golden("synced")))
	change := func(text, old, new string) string {
		t.Helper()
		if !strings.Contains(text, old) {
			t.Fatalf("%q is not in %s", old, text)
		}
		return strings.Replace(text, old, new, 1)
	}
	for _, x := range []struct {
		name, text string
		err        error
		says       string
	}{
		{"nothing", "", event.ErrNotEvent, ""},
		{"no JSON", "web-0 added", event.ErrNotEvent, ""},
		{"cut off", added[:len(added)/2], event.ErrNotEvent, ""},
		{"a Pod", `{"apiVersion":"v1","kind":"Pod"}`, event.ErrNotEvent, "structured CloudEvent"},
		{"CloudEvents 0.3", change(added, `"1.0"`, `"0.3"`), event.ErrNotEvent, `"0.3"`},
		{"version 2", change(added, "added.v1", "added.v2"), event.ErrUnknownType, "io.kubebridge.resource.added.v2"},
		{"another producer's", change(added, "io.kubebridge.resource.added.v1", "com.example.order"), event.ErrUnknownType, "com.example.order"},
		{"no uid", change(added, `"uid":`, `"Uid":`), event.ErrNotEvent, "it has no uid"},
		{"no id", change(added, `"id":`, `"_":`), event.ErrNotEvent, "it has no id"},
		{"no time", change(added, `"time":`, `"_":`), event.ErrNotEvent, "it has no time"},
		{"a time that is none", change(added, `"time":"2026`, `"time":"noon`), event.ErrNotEvent, ""},
		{"no data", change(added, `"data":`, `"_":`), event.ErrNotEvent, "it has no data"},
		{"no object", change(added, `"object":`, `"_":`), event.ErrNotEvent, "data has no object"},
		{"an object that is null", change(added, `"object":{`, `"object":null,"_":{`), event.ErrNotEvent, "data has no object"},
		{"data that is text", change(synced, `"data":{`, `"data":"x","_":{`), event.ErrNotEvent, "data"},
		{"data that is null", change(synced, `"data":{`, `"data":null,"_":{`), event.ErrNotEvent, "no reason"},
		{"no run", change(added, `"run":`, `"_":`), event.ErrNotEvent, `run is "", want a number`},
		{"a run that is no number", change(added, `"run":"1`, `"run":"x`), event.ErrNotEvent, "run is "},
		{"no incarnation", change(added, `"incarnation":`, `"_":`), event.ErrNotEvent, "incarnation is "},
		{"incarnation 0", change(added, `"incarnation":"1773400000000"`, `"incarnation":"0"`), event.ErrNotEvent, `incarnation is "0"`},
		{"no plan", change(synced, `"plan":`, `"_":`), event.ErrNotEvent, "plan is "},
		{"no digest", change(synced, `"plandigest":`, `"_":`), event.ErrNotEvent, "it has no plandigest"},
		{"no birth", change(synced, `"birth":`, `"_":`), event.ErrNotEvent, "birth is "},
		{"epoch 0", change(added, `"origin":`, `"epoch":"0","origin":`), event.ErrNotEvent, `epoch is "0"`},
		{"epoch that is no number", change(added, `"origin":`, `"epoch":"two","origin":`), event.ErrNotEvent, `epoch is "two"`},
	} {
		t.Run(x.name, func(t *testing.T) {
			e, err := event.Parse([]byte(x.text))
			if !errors.Is(err, x.err) || !strings.Contains(err.Error(), x.says) || e != nil {
				t.Errorf("got %v, %v; want an error that is %q and says %q", e, err, x.err, x.says)
			}
		})
	}
	// Later releases may add attributes and members to version 1.
	grown := change(change(added, `"origin":`, `"new":"x","origin":`), `"data":{`, `"data":{"patch":[],`)
	if e, err := event.Parse([]byte(grown)); err != nil || !bytes.Contains(e.Data, []byte(`"patch":[]`)) {
		t.Errorf("a new attribute and a new member of data: %v", err)
	}
}

func TestInto(t *testing.T) {
	t.Run("typed", func(t *testing.T) {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"of": "the last one"}}}
		if err := parsed(t, "added").Into(&pod); err != nil {
			t.Fatal(err)
		}
		want := corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "shop", UID: "6f1b1a2c-8f0e-4b7a-9d55-2f3a4c5d6e7f", ResourceVersion: "1041", Labels: map[string]string{"app": "web"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx:1.29", Args: []string{`--greet=<hi & "bye">`}}}},
			Status:     corev1.PodStatus{Phase: corev1.PodPending},
		}
		if diff := cmp.Diff(want, pod); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("unstructured", func(t *testing.T) {
		var u unstructured.Unstructured
		for _, name := range []string{"added", "modified"} { // two different kinds
			if err := parsed(t, name).Into(&u); err != nil {
				t.Fatal(err)
			}
		}
		if replicas, _, err := unstructured.NestedInt64(u.Object, "spec", "replicas"); u.GetKind() != "Deployment" || replicas != 3 || err != nil {
			t.Errorf("got %v, %v", u.Object, err)
		}
	})
	t.Run("metadata", func(t *testing.T) {
		var m metav1.PartialObjectMetadata
		if err := parsed(t, "modified").Into(&m); err != nil || m.Kind != "Deployment" || m.Generation != 4 {
			t.Errorf("got %v, %v", m, err)
		}
	})
	t.Run("a synthesised deletion has the identity", func(t *testing.T) {
		r := parsed(t, "deleted-synthesised")
		var node corev1.Node
		if err := r.Into(&node); err != nil || r.BodyKnown || node.Name != "worker-7" || node.UID == "" || node.Kind != "Node" {
			t.Errorf("got %v, body known %t, %v", node, r.BodyKnown, err)
		}
	})
	t.Run("a struct of one's own", func(t *testing.T) {
		var s struct{ Status struct{ Phase string } }
		var p *corev1.Pod
		if err := errors.Join(parsed(t, "added").Into(&s), parsed(t, "added").Into(&p)); err != nil || s.Status.Phase != "" || p.Name != "web-0" {
			t.Errorf("got %+v, %v, %v; field names without tags are case-sensitive", s, p, err)
		}
	})
}

func TestIntoRefuses(t *testing.T) {
	var nowhere *corev1.Pod
	var deployment *appsv1.Deployment
	knative := parsed(t, "added")
	knative.APIVersion, knative.Kind = "serving.knative.dev/v1", "Service"
	coreEvent := parsed(t, "added")
	coreEvent.Kind = "Event"
	mangled := parsed(t, "added")
	mangled.Object = []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"other","labels":7}}`)
	for _, x := range []struct {
		name  string
		event *event.Received
		into  any
		err   error
		says  string
	}{
		{"a Pod into a Deployment", parsed(t, "added"), &appsv1.Deployment{}, event.ErrOtherKind, "v1 Pod shop/web-0 of event "},
		{"a Pod into a pointer to a Deployment", parsed(t, "added"), &deployment, event.ErrOtherKind, "**v1.Deployment"},
		{"a Pod into a PodList", parsed(t, "added"), &corev1.PodList{}, event.ErrOtherKind, "*v1.PodList"},
		{"apps/v1 into apps/v1beta1", parsed(t, "modified"), &appsv1beta1.Deployment{}, event.ErrOtherKind, "apps/v1 Deployment shop/web"},
		{"another group's Service", knative, &corev1.Service{}, event.ErrOtherKind, "serving.knative.dev/v1 Service"},
		{"a core Event into one of events.k8s.io", coreEvent, &eventsv1.Event{}, event.ErrOtherKind, "v1 Event"},
		{"a gap", parsed(t, "gap"), &corev1.Secret{}, event.ErrNoObject, "gap of collection secrets:audit@payments"},
		{"no pointer", parsed(t, "added"), corev1.Pod{}, nil, "into a v1.Pod, want a pointer"},
		{"nil", parsed(t, "added"), nil, nil, "into a <nil>, want a pointer"},
		{"a nil pointer", parsed(t, "added"), nowhere, nil, "want a pointer"},
		{"a field of another type", mangled, &corev1.Pod{}, nil, "labels"},
	} {
		t.Run(x.name, func(t *testing.T) {
			err := x.event.Into(x.into)
			if err == nil || x.err != nil && !errors.Is(err, x.err) || !strings.Contains(err.Error(), x.says) {
				t.Errorf("got %v, want an error that is %v and says %q", err, x.err, x.says)
			}
		})
	}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	if err := mangled.Into(&pod); err == nil || pod.Name != "mine" {
		t.Errorf("an error, %v, left %q", err, pod.Name)
	}
}
