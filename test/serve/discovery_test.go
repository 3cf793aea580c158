package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/config"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/discovery"
	sd "github.com/prometheus/prometheus/discovery/kubernetes"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// furnishTargets creates nodes, and a service with its EndpointSlice and Ingress.
func (w *world) furnishTargets() {
	w.t.Helper()
	for _, name := range []string{"node-1", "node-2"} {
		node, err := w.client.CoreV1().Nodes().Create(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": "a", "of": w.ns}}}, metav1.CreateOptions{})
		w.must(err)
		w.t.Cleanup(func() {
			if err := w.client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
				w.t.Error(err)
			}
		})
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.1.0." + name[len(name)-1:]}, {Type: corev1.NodeHostName, Address: name}}
		node.Status.DaemonEndpoints.KubeletEndpoint.Port = 10250
		node.Status.NodeInfo.KubeletVersion = "v1.36.3"
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		_, err = w.client.CoreV1().Nodes().UpdateStatus(w.ctx, node, metav1.UpdateOptions{})
		w.must(err)
	}
	w.createService("shop")
	http, ready, port, prefix := "http", true, int32(8080), networkingv1.PathTypePrefix
	_, err := w.client.DiscoveryV1().EndpointSlices(w.ns).Create(w.ctx, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "shop-1", Labels: map[string]string{discoveryv1.LabelServiceName: "shop"}}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: &http, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.2.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: w.ns, Name: "a"}},
			{Addresses: []string{"10.2.0.9"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}},
		},
	}, metav1.CreateOptions{})
	w.must(err)
	_, err = w.client.NetworkingV1().Ingresses(w.ns).Create(w.ctx, &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: "shop"},
		Spec: networkingv1.IngressSpec{
			TLS: []networkingv1.IngressTLS{{Hosts: []string{"shop.example.com"}}},
			Rules: []networkingv1.IngressRule{{Host: "shop.example.com", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix, Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "shop", Port: networkingv1.ServiceBackendPort{Name: "http"}}}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	w.must(err)
}

func (w *world) createService(name string) {
	w.t.Helper()
	_, err := w.client.CoreV1().Services(w.ns).Create(w.ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"prometheus.io/port": "8080"}},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"tier": "web"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "metrics", Port: 9090, Protocol: corev1.ProtocolTCP}}},
	}, metav1.CreateOptions{})
	w.must(err)
}

// targets are the groups of targets that Prometheus discovers, by their source.
type targets struct {
	mu     sync.Mutex
	groups map[string]string
}

func (x *targets) copy() map[string]string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.groups)
}

// discover runs Prometheus' discovery.
func (w *world) discover(c *sd.SDConfig) *targets {
	w.t.Helper()
	registry := prometheus.NewRegistry()
	refresh := discovery.NewRefreshMetrics(registry)
	metrics := c.NewDiscovererMetrics(registry, refresh)
	w.must(metrics.Register())
	d, err := c.NewDiscoverer(discovery.DiscovererOptions{Logger: promslog.NewNopLogger(), Metrics: metrics, SetName: "test"})
	w.must(err)
	ctx, stop := context.WithCancel(w.ctx)
	updates, done := make(chan []*targetgroup.Group), make(chan struct{})
	x := &targets{groups: map[string]string{}}
	go func() {
		defer close(done)
		d.Run(ctx, updates)
	}()
	go func() {
		for {
			select {
			case groups := <-updates:
				x.update(groups)
			case <-ctx.Done():
				return
			}
		}
	}()
	w.t.Cleanup(func() { stop(); <-done })
	return x
}

func (x *targets) update(groups []*targetgroup.Group) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, g := range groups {
		if len(g.Targets) == 0 {
			delete(x.groups, g.Source)
			continue
		}
		text, err := json.MarshalIndent(struct{ Targets, Labels any }{g.Targets, g.Labels}, "", " ")
		if err != nil {
			text = []byte(err.Error())
		}
		x.groups[g.Source] = string(text)
	}
}

// A Prometheus that discovers its targets from `bridge serve` scrapes the targets that it would find at the API server, also while they change
// and after `bridge serve` was killed.
func TestPrometheus(t *testing.T) {
	w := newWorld(t)
	w.furnish()
	w.furnishTargets()
	w.ready()
	address, err := url.Parse(w.url)
	w.must(err)
	type pair struct{ real, served *targets }
	all := map[string]pair{}
	for _, role := range []sd.Role{sd.RoleNode, sd.RolePod, sd.RoleService, sd.RoleEndpointSlice, sd.RoleIngress} {
		for name, change := range map[string]func(*sd.SDConfig){
			"": func(*sd.SDConfig) {},
			" of a namespace, with metadata": func(c *sd.SDConfig) {
				c.NamespaceDiscovery.Names = []string{w.ns}
				c.AttachMetadata = sd.AttachMetadataConfig{Node: role == sd.RolePod || role == sd.RoleEndpointSlice, Namespace: role != sd.RoleNode}
			},
			" with a label": func(c *sd.SDConfig) { c.Selectors = []sd.SelectorConfig{{Role: role, Label: "!tier"}} },
		} {
			real, served := sd.DefaultSDConfig, sd.DefaultSDConfig
			real.Role, served.Role = role, role
			real.KubeConfig, served.APIServer, served.HTTPClientConfig = cluster.Kubeconfig(), config.URL{URL: address}, config.DefaultHTTPClientConfig
			change(&real)
			change(&served)
			all[string(role)+name] = pair{w.discover(&real), w.discover(&served)}
		}
	}
	same := func(when string) {
		t.Helper()
		for _, name := range slices.Sorted(maps.Keys(all)) {
			w.eventually(fmt.Sprintf("the targets of role %s %s (-API server +bridge serve)", name, when), func() string {
				return cmp.Diff(all[name].real.copy(), all[name].served.copy())
			})
		}
	}
	has := func(role, source string, want bool) {
		t.Helper()
		w.eventually(source, func() string {
			if _, ok := all[role].real.copy()[source]; ok != want {
				return fmt.Sprintf("is among the API server's targets: %t", ok)
			}
			return ""
		})
	}
	for role, source := range map[string]string{
		"node": "node/node-1", "pod": "pod/" + w.ns + "/a", "service": "svc/" + w.ns + "/shop", "endpointslice": "endpointslice/" + w.ns + "/shop-1", "ingress": "ingress/" + w.ns + "/shop",
	} {
		has(role, source, true)
	}
	same("at first")
	w.setPod("a", "10.2.0.77", corev1.PodRunning)
	w.remove("pods/b")
	w.createService("pay")
	has("service", "svc/"+w.ns+"/pay", true)
	has("pod", "pod/"+w.ns+"/b", false)
	same("after changes")
	w.kill()
	w.createPod("late", "node-2", map[string]string{"tier": "web"})
	w.setPod("late", "10.2.0.78", corev1.PodRunning)
	w.remove("services/pay")
	w.restart()
	has("service", "svc/"+w.ns+"/pay", false)
	has("pod", "pod/"+w.ns+"/late", true)
	same("after bridge serve was killed")
}
