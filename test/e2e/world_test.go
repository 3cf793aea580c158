package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/faultproxy"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

const (
	// patience bounds every wait for something that should happen soon.
	patience = 2 * time.Minute
	// bulkPatience bounds many writes, which a busy API server answers slowly.
	bulkPatience = 5 * time.Minute
)

// world has the namespace, the bus and the bridge of one test.
type world struct {
	t       *testing.T
	cluster *clustertest.Cluster
	kube    *kube.Client
	ns      string
	dir     string
	config  bridge.Config
	log     *bus.Log          // the messages on the bus
	proxy   *faultproxy.Proxy // between bridge and bus
	nats    *bus.NATS         // nil on Kafka
	kafka   *bus.Kafka        // nil on NATS
	bridge  *bridge.Process   // the last one started
	widgets kube.Type         // a custom type of this test's own, see install

	transactional bool               // Kafka, exactly once
	apacheKafka   *kafkatest.Cluster // nil unless asked for

	toCluster *faultproxy.Proxy // nil unless asked for
}

type options struct {
	cluster *clustertest.Cluster // nil: the shared one
	bus     string               // "nats" (the zero value), "kafka" (kfake), or "apache-kafka" (Apache Kafka, exactly once)
	types   []kube.Type          // bridged, in the world's namespace
}

const busNATS, busKafka, busApacheKafka = "nats", "kafka", "apache-kafka"

func newWorld(t *testing.T, o options) *world {
	t.Helper()
	if o.cluster == nil {
		o.cluster = cluster
	}
	w := &world{t: t, cluster: o.cluster, dir: t.TempDir()}
	var err error
	w.kube, err = kube.New(o.cluster.RESTConfig(), "")
	w.must(err)
	w.ns = w.namespace()
	w.kube = w.kube.In(w.ns)
	w.widgets = kube.Widgets(w.ns + ".kubebridge.io")
	w.config = bridge.Config{
		Cluster:    w.ns,
		Kubernetes: map[string]any{"kubeconfig": o.cluster.Kubeconfig()},
		Checkpoint: map[string]any{"file": map[string]any{"path": filepath.Join(w.dir, "checkpoint")}},
		Status:     map[string]any{"listen": "127.0.0.1:0"},
	}
	w.bridges(o.types...)
	switch o.bus {
	case busKafka:
		w.startKafka()
	case busApacheKafka:
		w.startApacheKafka()
	default:
		w.startNATSIn("nats")
	}
	return w
}

// startNATSIn starts a server with its data below the world's directory, and makes it the only sink.
func (w *world) startNATSIn(dir string) {
	w.t.Helper()
	n, err := bus.StartNATS(filepath.Join(w.dir, dir))
	w.must(err)
	w.t.Cleanup(n.Close)
	proxy, err := faultproxy.Start(n.Addr())
	w.must(err)
	w.t.Cleanup(func() { _ = proxy.Close() })
	w.nats, w.log, w.proxy = n, n.Log, proxy
	w.config.Sinks = []bridge.Sink{{Name: "audit", NATS: map[string]any{"url": "nats://" + w.proxy.Addr()}}}
}

func (w *world) startKafka() {
	w.t.Helper()
	k, err := bus.StartKafka()
	w.must(err)
	w.t.Cleanup(func() { _ = k.Close() })
	w.kafka, w.log, w.proxy = k, k.Log, k.Proxy
	w.config.Sinks = []bridge.Sink{{Name: "audit", Kafka: map[string]any{
		"brokers": []string{k.Proxy.Addr()}, "delivery": "at-least-once", "create": map[string]any{"partitions": 3},
	}}}
}

// startApacheKafka starts a broker of Apache Kafka behind a proxy, with exactly-once delivery to topics of one partition.
func (w *world) startApacheKafka() {
	w.t.Helper()
	k := kafkatest.Start(w.t, kafkatest.Options{Proxy: true})
	follower, err := bus.Follow(k.Addrs()...)
	w.must(err)
	w.t.Cleanup(follower.Close)
	w.apacheKafka, w.log, w.transactional = k, follower.Log, true
	w.config.Checkpoint = map[string]any{"kafka": map[string]any{"replicas": 1}}
	w.config.Sinks = []bridge.Sink{{Name: "audit", Kafka: map[string]any{
		"brokers": k.Addrs(), "delivery": "exactly-once", "create": map[string]any{"partitions": 1},
	}}}
}

// namespace creates a namespace for this test. It is not deleted, because the cluster is removed after the last test.
func (w *world) namespace() string {
	w.t.Helper()
	name := fmt.Sprintf("t%x", time.Now().UnixNano())
	other, err := kube.New(w.cluster.RESTConfig(), "")
	w.must(err)
	_, err = other.Create(w.t.Context(), kube.Namespaces, name, nil)
	w.must(err)
	return name
}

// bridges configures entries for types, in the world's namespace.
func (w *world) bridges(types ...kube.Type) {
	w.config.Resources = nil
	for _, t := range types {
		w.config.Resources = append(w.config.Resources, bridge.Resource{Resource: t.ResourceID(), Namespaces: []string{w.ns}})
	}
}

// collection returns the ID of a type's collection in the world's namespace.
func (w *world) collection(t kube.Type) string { return t.ResourceID() + "@" + w.ns }

// install installs the world's own custom type.
func (w *world) install() {
	w.t.Helper()
	w.must(w.kube.Install(w.soon(), w.widgets))
	w.t.Cleanup(func() { // each CRD costs the API server memory and time
		if err := w.kube.Uninstall(context.Background(), w.widgets); err != nil {
			w.t.Error(err)
		}
	})
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Helper()
		w.t.Fatal(err)
	}
}

var errImpatient = errors.New("the condition was not met within the timeout")

// soon returns a context that ends after patience.
func (w *world) soon() context.Context {
	return w.within(patience)
}

// within is soon with another timeout.
func (w *world) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeoutCause(w.t.Context(), d, errImpatient)
	w.t.Cleanup(cancel)
	return ctx
}

// writeConfig writes the configuration and returns the file's path.
func (w *world) writeConfig(c bridge.Config) string {
	w.t.Helper()
	text, err := c.YAML()
	w.must(err)
	f, err := os.CreateTemp(w.dir, "bridge-*.yaml")
	w.must(err)
	_, err = f.Write(text)
	w.must(errors.Join(err, f.Close()))
	return f.Name()
}

// launch runs the program until the test's end, when its log is shown if the test failed.
func (w *world) launch(args ...string) *bridge.Process {
	w.t.Helper()
	p, err := bridge.Start(binary, args...)
	w.must(err)
	w.t.Cleanup(func() {
		p.Kill()
		if raceEnabled && strings.Contains(p.Log(), "DATA RACE") {
			w.t.Error("the race detector found something, see the log")
		}
		if w.t.Failed() {
			log := p.Log()
			w.t.Logf("log of %s:\n%s", strings.Join(args, " "), log[max(0, len(log)-16<<10):])
		}
	})
	return p
}

// run starts the bridge without waiting for anything.
func (w *world) run() {
	w.t.Helper()
	w.bridge = w.launch("run", "-c", w.writeConfig(w.config))
}

// start starts the bridge and waits until the sink is ready and every collection is watched from a position that is in the
// checkpoint. A bridge that is killed earlier begins with a list, which has only the outcome of the changes before it.
func (w *world) start() {
	w.t.Helper()
	w.run()
	w.awaitStatus(func(s bridge.Status) bool {
		n := 0
		for _, sink := range s.Sinks {
			for _, c := range sink.Collections {
				if c.State == "watching" && c.Position != "" && sink.Failing == "" {
					n++
				}
			}
		}
		want := 0
		for _, r := range w.config.Resources {
			want += max(1, len(r.Namespaces))
		}
		return s.Ready && n == want
	})
}

func (w *world) awaitStatus(wanted func(bridge.Status) bool) {
	w.t.Helper()
	w.must(w.bridge.Await(w.soon(), wanted))
}

// exits waits for the bridge's end and checks its exit code.
func (w *world) exits(p *bridge.Process, want int) {
	w.t.Helper()
	code, err := p.Wait(patience)
	w.must(err)
	if code != want {
		w.t.Fatalf("exit code %d, want %d; it said:\n%s", code, want, p.Log())
	}
}

// stop stops the bridge with SIGTERM, and checks that it has delivered all events.
func (w *world) stop() {
	w.t.Helper()
	w.bridge.Signal(syscall.SIGTERM)
	w.exits(w.bridge, 0)
}

// onBus waits until done returns true for the messages on the bus.
func (w *world) onBus(what string, done func([]bus.Message) bool) []bus.Message {
	w.t.Helper()
	messages, err := w.log.Wait(w.soon(), done)
	if err != nil {
		w.t.Fatalf("waiting for %s on the bus: %v", what, err)
	}
	return messages
}

// published waits until an object's last state is on the bus: the version, or its deletion.
func (w *world) published(uid, rv string) []bus.Message {
	w.t.Helper()
	return w.onBus("uid "+uid+" at "+rv, func(all []bus.Message) bool {
		return slices.ContainsFunc(all, func(m bus.Message) bool {
			return m.UID() == uid && (m.RV() == rv || m.Attributes["deletionversion"] == rv)
		})
	})
}

func (w *world) deletionPublished(uid string) []bus.Message {
	w.t.Helper()
	return w.onBus("the deletion of uid "+uid, func(all []bus.Message) bool {
		return slices.ContainsFunc(all, func(m bus.Message) bool { return m.UID() == uid && m.Is("deleted") })
	})
}

// settle creates one more object of each type, a marker, and changes it when it is on the bus. When the change is on the bus, too,
// all events of earlier changes are on the bus, or will never be: a running list or another partition may be behind
// the first event of the marker, but not behind the second.
func (w *world) settle(types ...kube.Type) []bus.Message {
	w.t.Helper()
	marker := fmt.Sprintf("marker-%x", time.Now().UnixNano())
	for _, t := range types {
		w.published(w.create(t, marker))
		w.published(w.patch(t, marker, "settled"))
	}
	if w.kafka != nil && !w.transactional { // transactional partitions end with a control record, for which CatchUp would wait
		w.must(w.kafka.CatchUp(w.soon()))
	}
	messages, err := w.log.Messages()
	w.must(err)
	return messages
}

// verify settles the types and checks all messages on the bus: each object's history, and that the final state equals the
// cluster's.
func (w *world) verify(o check.Options) []bus.Message {
	w.t.Helper()
	messages := w.settle(o.Types...)
	problems := check.History(w.kube.Ledger, messages, o)
	for _, t := range o.Types {
		objects, _, err := w.kube.List(w.soon(), t, metav1.ListOptions{})
		w.must(err)
		problems = append(problems, check.State(messages, objects, t.ResourceID())...)
	}
	w.none(problems, messages)
	return messages
}

// none fails the test if there are problems.
func (w *world) none(problems []string, messages []bus.Message) {
	w.t.Helper()
	if len(problems) == 0 {
		return
	}
	const shown = 20
	more := ""
	if n := len(problems) - shown; n > 0 {
		problems, more = problems[:shown], fmt.Sprintf("\n… and %d more", n)
	}
	w.t.Fatalf("%s%s\nthe bus ends with:\n%s", strings.Join(problems, "\n"), more, bus.Tail(messages, 60))
}

// after returns the messages from the n-th on.
func after(messages []bus.Message, n int) []bus.Message { return messages[min(n, len(messages)):] }

// sample returns the fields of a valid object of a type, with step in them if the type has a field for it.
func sample(t kube.Type, step string) kube.Fields {
	switch t {
	case kube.ConfigMaps:
		return kube.Fields{"data": map[string]any{"step": step}}
	case kube.Secrets:
		return kube.Fields{"stringData": map[string]any{"step": step}}
	case kube.Pods:
		return kube.Fields{"spec": podSpec()}
	case kube.Events:
		return kube.Fields{"reason": step}
	case kube.Deployments:
		labels := map[string]any{"app": "sample"}
		return kube.Fields{"spec": map[string]any{
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": podSpec()},
		}}
	default:
		return kube.Fields{"spec": map[string]any{"step": step}}
	}
}

func podSpec() map[string]any {
	return map[string]any{"containers": []any{map[string]any{"name": "main", "image": "example.org/main:1"}}}
}

// change returns a merge patch that changes any object of sample.
func change(step string) string {
	return fmt.Sprintf(`{"metadata":{"annotations":{"step":%q}}}`, step)
}

// create, patch and delete call the client's methods, and fail the test on an error.
func (w *world) create(t kube.Type, name string) (uid, rv string) {
	w.t.Helper()
	o, err := w.kube.Create(w.soon(), t, name, sample(t, "created"))
	w.must(err)
	return string(o.GetUID()), o.GetResourceVersion()
}

func (w *world) patch(t kube.Type, name, step string) (uid, rv string) {
	w.t.Helper()
	o, err := w.kube.Patch(w.soon(), t, name, change(step))
	w.must(err)
	return string(o.GetUID()), o.GetResourceVersion()
}

func (w *world) delete(t kube.Type, name string) {
	w.t.Helper()
	w.must(w.kube.Delete(w.soon(), t, name))
}

// bulk creates n objects name-0 to name-(n-1).
func (w *world) bulk(t kube.Type, name string, n int) {
	w.t.Helper()
	w.bulkOf(t, name, n, sample(t, "bulk"))
}

func (w *world) bulkOf(t kube.Type, name string, n int, fields kube.Fields) {
	w.t.Helper()
	ctx := w.within(bulkPatience)
	w.must(kube.Each(n, func(i int) error {
		_, err := w.kube.Create(ctx, t, fmt.Sprintf("%s-%d", name, i), fields)
		return err
	}))
}

// bulkPatch changes name-from to name-(to-1).
func (w *world) bulkPatch(t kube.Type, name, step string, from, to int) {
	w.t.Helper()
	ctx := w.within(bulkPatience)
	w.must(kube.Each(to-from, func(i int) error {
		_, err := w.kube.Patch(ctx, t, fmt.Sprintf("%s-%d", name, from+i), change(step))
		return err
	}))
}

// bulkDelete deletes name-from to name-(to-1).
func (w *world) bulkDelete(t kube.Type, name string, from, to int) {
	w.t.Helper()
	ctx := w.within(bulkPatience)
	w.must(kube.Each(to-from, func(i int) error {
		return w.kube.Delete(ctx, t, fmt.Sprintf("%s-%d", name, from+i))
	}))
}

// expire makes the server forget the history of the world's custom type up to now.
func (w *world) expire() {
	w.t.Helper()
	_, rv, err := w.kube.List(w.soon(), w.widgets, metav1.ListOptions{Limit: 1})
	w.must(err)
	w.must(w.kube.Expire(w.soon(), w.widgets, rv))
}
