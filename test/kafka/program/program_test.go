// Package program_test runs the program as a process, with a real API server and real Kafka. It tests the program's reaction to
// faults of the brokers and of the checkpoint's topic, at the start and later.
package program_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
	"github.com/kubebridge/kubebridge/test/paralleltest"
)

// patience is when a test gives up. Half a minute is usual on a busy machine.
const patience = 5 * time.Minute

const user, password = "writer", "pencil"

// What all tests share.
var (
	binary  string
	cluster *clustertest.Cluster
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	paralleltest.Raise(6) // a broker takes some 400 MiB
	dir, err := os.MkdirTemp("", "kubebridge-program-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "bridge")
	build := exec.Command("go", "build", "-o", binary, "./cmd/bridge")
	build.Dir = "../../.."
	if text, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build the program: %w\n%s", err, text)
	}
	if cluster, err = clustertest.Launch(context.Background(), clustertest.Options{}); err != nil {
		return 1, err
	}
	code = m.Run()
	return code, cluster.Close()
}

// world is one test's bridge, and the namespace that it watches.
type world struct {
	t      *testing.T
	kafka  *kafkatest.Cluster
	name   string
	config map[string]any
	sink   map[string]any // the Kafka sink's part of config
	http   *http.Client   // to the API server

	cmd    *exec.Cmd
	ended  chan struct{}
	mu     sync.Mutex
	stderr bytes.Buffer
}

func newWorld(t *testing.T, c *kafkatest.Cluster, delivery string) *world {
	w := &world{t: t, kafka: c, name: "t" + strings.ToLower(rand.Text())}
	w.sink = map[string]any{
		"brokers": c.Addrs(), "delivery": delivery,
		"sasl": map[string]any{"mechanism": "SCRAM-SHA-512", "username": user, "password": password},
	}
	w.config = map[string]any{
		"name": w.name, "cluster": "c", "kubernetes": map[string]any{"kubeconfig": cluster.Kubeconfig()},
		"resources": []any{map[string]any{"resource": "configmaps", "namespaces": []string{w.name}, "topic": w.name + ".fine"}},
		"sinks":     []any{map[string]any{"name": "audit", "kafka": w.sink}},
		"secrets":   map[string]any{"values": "redact"}, "status": map[string]any{"listen": "127.0.0.1:0"}, "log": map[string]any{"format": "json"},
	}
	var err error
	w.http, err = rest.HTTPClientFor(cluster.RESTConfig())
	w.must(err)
	w.post("namespaces", fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, w.name))
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%v; the log:\n%s", err, w.log())
	}
}

// checkpoint is the name of the checkpoint's topic.
func (w *world) checkpoint() string { return "kubebridge." + w.name + ".c.audit" }

func (w *world) file() string {
	w.t.Helper()
	text, err := json.Marshal(w.config) // JSON is YAML
	w.must(err)
	path := filepath.Join(w.t.TempDir(), "bridge.yaml")
	w.must(os.WriteFile(path, text, 0o600))
	return path
}

// start runs the bridge until the test ends, or it ends itself.
func (w *world) start() {
	w.t.Helper()
	w.run(w.file())
}

// run runs the bridge with a configuration file, and variables for it.
func (w *world) run(path string, env ...string) {
	w.t.Helper()
	w.cmd, w.ended = exec.Command(binary, "run", "-c", path), make(chan struct{})
	w.cmd.Env = append(os.Environ(), env...)
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	w.cmd.Stderr = writer(func(b []byte) { w.mu.Lock(); w.stderr.Write(b); w.mu.Unlock() })
	w.must(w.cmd.Start())
	go func() { _ = w.cmd.Wait(); close(w.ended) }() // its error is in ProcessState
	w.t.Cleanup(func() {
		_ = w.cmd.Process.Kill() // may have ended
		<-w.ended
	})
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

func (w *world) log() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stderr.String()
}

// exits fails the test unless the bridge ends with a code and its log has all words.
func (w *world) exits(code int, words ...string) {
	w.t.Helper()
	select {
	case <-w.ended:
	case <-time.After(patience):
		w.t.Fatalf("the bridge has not ended; its log:\n%s", w.log())
	}
	if got := w.cmd.ProcessState.ExitCode(); got != code {
		w.t.Errorf("exit code %d, want %d; the log:\n%s", got, code, w.log())
	}
	for _, word := range words {
		if !strings.Contains(w.log(), word) {
			w.t.Errorf("the log does not say %q:\n%s", word, w.log())
		}
	}
}

// await polls until so returns true, while the bridge runs.
func (w *world) await(what string, so func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !so(); {
		select {
		case <-w.ended:
			w.t.Fatalf("the bridge has ended while waiting for %s; its log:\n%s", what, w.log())
		case <-time.After(200 * time.Millisecond):
		}
		if time.Now().After(end) {
			w.t.Fatalf("waited in vain for %s; the log:\n%s", what, w.log())
		}
	}
}

// status returns the answer of /readyz.
func (w *world) status() (ready bool, text string) {
	address := ""
	for line := range strings.Lines(w.log()) {
		var entry struct{ Msg, Address string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "status listens" {
			address = entry.Address
		}
	}
	if address == "" {
		return false, ""
	}
	resp, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		return false, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body) // what there is of it
	return resp.StatusCode == http.StatusOK, string(body)
}

func (w *world) ready() {
	w.t.Helper()
	w.await("the bridge to be ready", func() bool { ready, _ := w.status(); return ready })
}

// create creates an object with a unique name in the test's namespace, and returns the name.
func (w *world) create(resource, kind string) string {
	w.t.Helper()
	name := "o" + strings.ToLower(rand.Text())
	w.post(w.path(resource), fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"metadata":{"name":%q}}`, kind, name))
	return name
}

// path returns where the API server has a resource in the test's namespace.
func (w *world) path(resource string) string { return "namespaces/" + w.name + "/" + resource }

func (w *world) post(path, body string) {
	w.t.Helper()
	resp, err := w.http.Post(cluster.Server()+"/api/v1/"+path, "application/json", strings.NewReader(body))
	w.must(err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		text, _ := io.ReadAll(resp.Body)
		w.t.Fatalf("create %s: %s: %s", path, resp.Status, text)
	}
}

// arrives waits until an object's event is in a topic.
func (w *world) arrives(topic, name string) {
	w.t.Helper()
	w.await(name+" in "+topic, func() bool { return w.holds(topic, name) })
}

func (w *world) holds(topic, name string) bool {
	records, err := w.kafka.Read(w.t.Context(), topic)
	if err != nil {
		return false // it is not there yet
	}
	for _, r := range records {
		if strings.HasSuffix(string(r.Key), "/"+w.name+"/"+name+"/@") { // @: the entry has one collection per namespace
			return true
		}
	}
	return false
}

// eachDelivery runs a test with both deliveries, beside each other.
func eachDelivery(t *testing.T, test func(t *testing.T, delivery string)) {
	for _, delivery := range []string{"exactly-once", "at-least-once"} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel()
			test(t, delivery)
		})
	}
}

// Untrusted certificates, rejected credentials, and a topic that cannot keep a checkpoint end the program at
// its start with code 3.
func TestWrongAtStart(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{TLS: true, Users: map[string]string{user: password}})
	other := filepath.Join(t.TempDir(), "other.pem")
	kafkatest.Authority(t, other)
	eachDelivery(t, func(t *testing.T, delivery string) {
		for name, wrong := range map[string]struct {
			make func(*world) error
			says string
		}{
			"authority": {func(w *world) error { w.sink["tls"] = map[string]any{"enabled": true, "ca": other}; return nil }, "check tls.ca"},
			"password":  {func(w *world) error { w.sink["sasl"].(map[string]any)["password"] = "wrong"; return nil }, "check sasl.mechanism"},
			"checkpoint partitions": {func(w *world) error {
				return c.CreateTopic(t.Context(), w.checkpoint(), 3, 0, map[string]string{"cleanup.policy": "compact"})
			}, "the topic has 3 partitions, want 1"},
			"checkpoint forgets": {func(w *world) error { return c.CreateTopic(t.Context(), w.checkpoint(), 1, 0, nil) }, "set it to compact"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, c, delivery)
				w.sink["tls"] = map[string]any{"enabled": true, "ca": c.CA()}
				w.must(wrong.make(w))
				w.start()
				w.exits(3, wrong.says)
			})
		}
	})
}

// A bridge that is fenced, here by `bridge checkpoint reset`, ends with code 1.
func TestFenced(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{Users: map[string]string{user: password}})
	eachDelivery(t, func(t *testing.T, delivery string) {
		w := newWorld(t, c, delivery)
		w.start()
		w.ready()
		w.arrives(w.name+".fine", w.create("configmaps", "ConfigMap"))
		if out, err := exec.Command(binary, "checkpoint", "reset", "--yes", "-c", w.file()).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		w.create("configmaps", "ConfigMap") // an idle bridge does not write, so make changes
		w.exits(1, "taken", "start this one again")
	})
}

// If the same faults occur later, the bridge retries until they are corrected.
func TestWrongLater(t *testing.T) {
	t.Parallel()
	eachDelivery(t, func(t *testing.T, delivery string) {
		c := kafkatest.Start(t, kafkatest.Options{Users: map[string]string{user: password}, Proxy: true})
		w := newWorld(t, c, delivery)
		w.start()
		w.ready()
		w.arrives(w.name+".fine", w.create("configmaps", "ConfigMap"))
		failing := func(word string) {
			t.Helper()
			w.await("the status to say "+word, func() bool {
				ready, text := w.status()
				return !ready && strings.Contains(text, word)
			})
		}

		w.must(c.SetPassword(t.Context(), user, ""))
		c.Broker(1).Proxy().Cut() // open connections would not be affected
		late := w.create("configmaps", "ConfigMap")
		failing("SASL")
		w.must(c.SetPassword(t.Context(), user, password))
		w.arrives(w.name+".fine", late)

		remake := func(partitions int) {
			t.Helper()
			w.await("the checkpoint's topic to be created again", func() bool { // the bridge may be faster
				_ = c.DeleteTopic(t.Context(), w.checkpoint())
				return c.CreateTopic(t.Context(), w.checkpoint(), partitions, 0, map[string]string{"cleanup.policy": "compact"}) == nil
			})
		}
		remake(3)
		late = w.create("configmaps", "ConfigMap")
		failing("the topic has 3 partitions, want 1")
		if delivery == "exactly-once" { // with at-least-once delivery, a deleted checkpoint ends the program
			remake(1)
			w.arrives(w.name+".fine", late)
			w.ready()
		}
	})
}

// A topic that the user may not describe affects one collection only, from the start and when the permission is
// withdrawn later, and the error names the topic.
func TestOneTopicMayNotBeDescribed(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{Users: map[string]string{user: password}, ACLs: true})
	eachDelivery(t, func(t *testing.T, delivery string) {
		w := newWorld(t, c, delivery)
		fine, hidden := w.name+".fine", w.name+".hidden"
		w.config["resources"] = append(w.config["resources"].([]any), map[string]any{"resource": "secrets", "namespaces": []string{w.name}, "topic": hidden})
		all := []kadm.ACLOperation{kadm.OpWrite, kadm.OpRead, kadm.OpDescribe, kadm.OpDescribeConfigs, kadm.OpCreate}
		w.must(c.Allow(t.Context(), user, w.name, all...))
		w.must(c.Allow(t.Context(), user, "kubebridge."+w.name, all...))
		w.must(c.AllowTransactions(t.Context(), user, "kubebridge.", kadm.OpWrite, kadm.OpDescribe))
		w.must(c.CreateTopic(t.Context(), hidden, 1, 0, nil))
		deny := func() { w.must(c.Deny(t.Context(), user, hidden, kadm.OpDescribe)) }
		allow := func() { w.must(c.Forget(t.Context(), user, hidden)) }
		// suspended reports whether the status has the collection's error, while the bridge is ready.
		suspended := func() bool {
			ready, text := w.status()
			var s struct {
				Sinks []struct {
					Collections []struct{ Resource, Error string }
				}
			}
			if !ready || json.Unmarshal([]byte(text), &s) != nil {
				return false
			}
			found := false
			for _, one := range s.Sinks[0].Collections {
				switch {
				case strings.Contains(one.Error, fine), one.Resource != "secrets" && one.Error != "":
					t.Fatalf("%s: %s, want nothing to be wrong there", one.Resource, one.Error)
				case one.Resource == "secrets":
					found = strings.Contains(one.Error, hidden) && strings.Contains(one.Error, "DESCRIBE")
				}
			}
			return found
		}

		deny()
		w.start()
		w.arrives(fine, w.create("configmaps", "ConfigMap"))
		secret := w.create("secrets", "Secret")
		w.await("the collection to be suspended", suspended)
		for range 3 {
			w.arrives(fine, w.create("configmaps", "ConfigMap"))
		}
		if w.holds(hidden, secret) {
			t.Error("a topic that may not be described was written to")
		}
		allow()
		w.arrives(hidden, secret)

		deny()
		w.await("the collection to be suspended", func() bool { // within a minute, because metadata of topics is kept that long
			secret = w.create("secrets", "Secret")
			w.arrives(fine, w.create("configmaps", "ConfigMap"))
			return suspended()
		})
		w.arrives(fine, w.create("configmaps", "ConfigMap"))
		allow()
		w.arrives(hidden, secret)
	})
}

// A bridge that is killed while it writes publishes every object exactly once, and needs no list after its start.
func TestKilled(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{Users: map[string]string{user: password}})
	w := newWorld(t, c, "exactly-once")
	topic := w.name + ".fine"
	created := map[string]bool{}
	create := func() string {
		name := w.create("configmaps", "ConfigMap")
		created[name] = true
		return name
	}
	for range 3 {
		w.start()
		w.arrives(topic, create())
		for range 20 {
			create()
		}
		w.must(w.cmd.Process.Kill())
		<-w.ended
		create()
	}
	w.start()
	w.arrives(topic, create()) // the last one: all others come before it
	records, err := c.Read(t.Context(), topic)
	w.must(err)
	published, gaps := map[string]int{}, map[int32]int{}
	for _, r := range records {
		headers := map[string]string{}
		for _, h := range r.Headers {
			headers[h.Key] = string(h.Value)
		}
		switch name := headers["ce_name"]; {
		case headers["ce_type"] == "io.kubebridge.collection.gap.v1":
			gaps[r.Partition]++
		case created[name]:
			published[name]++
		}
	}
	for name := range created {
		if published[name] != 1 {
			t.Errorf("%s was published %d times", name, published[name])
		}
	}
	for partition, n := range gaps {
		if n != 1 {
			t.Errorf("partition %d has %d gaps, want the one of the first list", partition, n)
		}
	}
	if len(gaps) == 0 {
		t.Error("no partition has the gap of the first list")
	}
}
