package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// notThere is the API server's answer for an object that does not exist.
func notThere(resource, name string) answer {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"%s %s not found","details":{"name":%q,"kind":%q}}`,
			resource, name, name, resource)
	}
}

func owner(uid string) answer {
	return text200(`{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"it","uid":"` + uid + `"}}`)
}

func apiServices(items ...string) answer {
	return text200(`{"kind":"APIServiceList","metadata":{"resourceVersion":"1"},"items":[` + strings.Join(items, ",") + `]}`)
}

// apiService is managed "true" for a CRD's group and "onstart" for the server's own.
func apiService(group, managed, service string) string {
	return fmt.Sprintf(`{"metadata":{"name":"v1.%s","labels":{"kube-aggregator.kubernetes.io/automanaged":%q}},"spec":{"group":%q,"version":"v1"%s}}`,
		group, managed, group, service)
}

func things(group, version, namespace string) Target {
	return Target{
		Collection: event.Collection{Group: group, Resource: "things", Namespace: namespace},
		Resource:   Resource{Group: group, Version: version, Name: "things", Kind: "Thing", Namespaced: namespace != ""},
	}
}

// Rule 6: only the absence of the CRD or of the namespace proves that objects are absent. A false proof would delete all
// objects.
func TestProofOfAbsence(t *testing.T) {
	const (
		crd  = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.a.example.com"
		apis = "/apis/apiregistration.k8s.io/v1/apiservices"
		ns   = "/api/v1/namespaces/s"
	)
	noCRD, noNS := notThere("customresourcedefinitions", "things.a.example.com"), notThere("namespaces", "s")
	group, others := "a.example.com", apiServices(apiService("a.example.com", "true", ""), apiService("apps", "onstart", ""), apiService("metrics.k8s.io", "", `,"service":{"name":"m"}`))
	k8s := "things.networking.k8s.io"
	for _, c := range []struct {
		name    string
		target  Target
		refused int
		owner   Owner
		others  map[string]answer
		proof   string // "": none
	}{
		{"CRD absent", things(group, "v1", ""), 404, Owner{}, map[string]answer{crd: noCRD, apis: others}, "things.a.example.com does not exist"},
		{"CRD absent, and it is forbidden to list", things(group, "v1", ""), 403, Owner{}, map[string]answer{crd: noCRD, apis: others}, "things.a.example.com does not exist"},
		{"CRD absent, and discovery knows no version", things(group, "", ""), 0, Owner{}, map[string]answer{crd: noCRD, apis: others}, "things.a.example.com does not exist"},
		{"a lone 404", things(group, "v1", ""), 404, Owner{CRD: "1"}, map[string]answer{crd: owner("1"), apis: others}, ""},
		{"a lone 404, and the CRD was never known", things(group, "v1", ""), 404, Owner{}, map[string]answer{crd: owner("1"), apis: others}, ""},
		{"discovery knows no version, but the CRD is there", things(group, "", ""), 0, Owner{CRD: "1"}, map[string]answer{crd: owner("1"), apis: others}, ""},
		{"CRD forbidden", things(group, "v1", ""), 404, Owner{CRD: "1"}, map[string]answer{apis: others}, ""},
		{"CRD 401", things(group, "v1", ""), 404, Owner{CRD: "1"}, map[string]answer{crd: failing(401), apis: others}, ""},
		{"CRD 500", things(group, "v1", ""), 404, Owner{CRD: "1"}, map[string]answer{crd: failing(500), apis: others}, ""},
		{"CRDs not served", things(group, "v1", ""), 404, Owner{CRD: "1"}, map[string]answer{crd: func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "404 page not found", http.StatusNotFound)
		}, apis: others}, ""},
		{"another object absent", things(group, "v1", ""), 404, Owner{CRD: "1"}, map[string]answer{crd: notThere("customresourcedefinitions", "x"), apis: others}, ""},
		{"an aggregated API", things(group, "v1", ""), 404, Owner{}, map[string]answer{crd: noCRD, apis: apiServices(apiService(group, "", `,"service":{"name":"m"}`))}, ""},
		{"an aggregated API in front of the CRD", things(group, "v1", ""), 404, Owner{CRD: "1"}, map[string]answer{crd: noCRD, apis: apiServices(apiService(group, "", `,"service":{"name":"m"}`))}, ""},
		{"a group of the server's own", things(group, "v1", ""), 403, Owner{}, map[string]answer{crd: noCRD, apis: apiServices(apiService(group, "onstart", ""))}, ""},
		{"a built-in group that is switched off", things("networking.k8s.io", "v1", ""), 404, Owner{}, map[string]answer{
			strings.ReplaceAll(crd, "things.a.example.com", k8s): notThere("customresourcedefinitions", k8s), apis: others,
		}, ""},
		{"APIServices forbidden", things(group, "v1", ""), 404, Owner{CRD: "1"}, map[string]answer{crd: noCRD}, ""},
		{"a group without a dot", things("apps", "v1", ""), 404, Owner{}, map[string]answer{apis: others}, ""},
		{"namespace absent", configMaps(event.Collection{Namespace: "s"}), 403, Owner{}, map[string]answer{ns: noNS}, "namespace s does not exist"},
		{"namespace of custom resources absent", things(group, "v1", "s"), 403, Owner{CRD: "1"}, map[string]answer{crd: owner("1"), ns: noNS}, "namespace s does not exist"},
		{"namespace forbidden", configMaps(event.Collection{Namespace: "s"}), 403, Owner{Namespace: "1"}, nil, ""},
		{"namespace there", configMaps(event.Collection{Namespace: "s"}), 403, Owner{Namespace: "1"}, map[string]answer{ns: owner("1")}, ""},
		{"namespace there again, whose objects may have been passed on", configMaps(event.Collection{Namespace: "s"}), 403, Owner{Namespace: "1"}, map[string]answer{ns: owner("2")}, ""},
		{"not refused: 500", configMaps(event.Collection{Namespace: "s"}), 500, Owner{}, map[string]answer{ns: noNS}, ""},
		{"not refused: 401", configMaps(event.Collection{Namespace: "s"}), 401, Owner{}, map[string]answer{ns: noNS}, ""},
	} {
		for _, void := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, void=%t", c.name, void), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStub(t, answers(100, failing(c.refused)), answers(100, failing(c.refused)))
					s.path, s.others = c.target.path(), c.others
					r := run(t, Options{Client: inMemory(t, s), Target: c.target, Owner: c.owner}, event.Position{RV: "10", Void: void}, nil)
					pass(time.Minute)
					if c.proof == "" {
						r.awaitState(Waiting, 2)
						r.stop()
						compare(t, r.received(), nil)
						return
					}
					if err := r.ended(); !errors.Is(err, ErrGone) {
						t.Fatalf("Run returned %v", err)
					}
					compare(t, r.received(), []string{"begun gone from 10", "ended  >"})
					if d := r.signals[0].Detail; !strings.HasSuffix(d, c.proof) {
						t.Errorf("detail %q, want %q", d, c.proof)
					}
					if r.signals[1].Owner != (Owner{}) {
						t.Errorf("an owner of nothing: %+v", r.signals[1].Owner)
					}
					r.awaitState(Gone, 1)
				})
			})
		}
	}
}

// The deletion of a CRD deletes its objects, even if the CRD was created again and the new objects cannot be listed. The
// handler receives that once, and the new objects as soon as they can be listed.
func TestRecreatedCRD(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := things("a.example.com", "v1", "")
		s := newStub(t, append(answers(5, failing(403)), text200(`{"metadata":{"resourceVersion":"90"},"items":[`+item("new", "80")+`]}`)), []answer{failing(404)})
		s.path = target.path()
		s.others = map[string]answer{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.a.example.com": owner("2")}
		r := run(t, Options{Client: inMemory(t, s), Target: target, Owner: Owner{CRD: "1"}}, event.Position{RV: "10"}, nil)
		pass(2 * time.Minute)
		r.stop()
		compare(t, r.received(), []string{"begun gone from 10", "ended  >", "begun expired from ", "listed new@80", "ended 90 >90"})
		if got := r.signals[4].Owner; got != (Owner{CRD: "2"}) {
			t.Errorf("the list's owner is %+v", got)
		}
		r.awaitState(Waiting, 5)
	})
}

// A namespace was deleted and created again under an open watch. An object that the watch has reported since may be in the new
// namespace, and must not be reported as deleted with the old one.
func TestRecreatedNamespace(t *testing.T) {
	for _, c := range []struct {
		name  string
		watch answer
		want  []string
	}{
		{"nothing was reported since the list", broken(bookmark("20")), []string{"begun gone from 11", "ended  >"}},
		{"a deletion was reported", broken(frame("DELETED", "a", "20")), []string{"begun gone from 11", "ended  >"}},
		{"an object was reported", broken(frame("ADDED", "b", "20")), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, append([]answer{pageOf("11", "", item("a", "5"))}, answers(100, failing(403))...), append([]answer{c.watch}, answers(100, failing(403))...))
				s.path, s.others = "/api/v1/namespaces/s/configmaps", map[string]answer{"/api/v1/namespaces/s": owner("1")}
				r := run(t, Options{Client: inMemory(t, s), Target: configMaps(event.Collection{Namespace: "s"})}, event.Position{}, func(_ context.Context, sig Signal) error {
					if sig.Kind == ListEnded && sig.RV == "11" {
						s.mu.Lock()
						s.others["/api/v1/namespaces/s"] = owner("2")
						s.mu.Unlock()
					}
					return nil
				})
				pass(time.Minute)
				r.stop()
				got := r.received()
				if got[2] != "ended 11 >11" || r.signals[2].Owner != (Owner{Namespace: "1"}) {
					t.Fatalf("the list: %v, %+v", got, r.signals[2])
				}
				compare(t, got[4:], append([]string{}, c.want...))
			})
		})
	}
}
