package program_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

// auditTopic is what the tests use of a topic with audit records. The bridge may only read it.
type auditTopic struct {
	w      *world
	client *kgo.Client
	name   string
}

// readsTopic has the bridge read audit records from a topic with two partitions.
func (w *world) readsTopic() *auditTopic {
	w.t.Helper()
	a := &auditTopic{w: w, name: w.name + ".audit-log"}
	var err error
	a.client, err = kgo.NewClient(kgo.SeedBrokers(w.kafka.Addrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	w.must(err)
	w.t.Cleanup(a.client.Close)
	w.must(w.kafka.CreateTopic(w.t.Context(), a.name, 2, 0, nil))
	w.config["audit"] = map[string]any{
		"path": w.t.TempDir(), "kafka": map[string]any{"brokers": w.kafka.Addrs(), "topic": a.name},
	}
	return a
}

// creation sends the record of the request that has created a ConfigMap.
func (a *auditTopic) creation(name, user string, partition int32) {
	a.w.t.Helper()
	resp, err := a.w.http.Get(cluster.Server() + "/api/v1/" + a.w.path("configmaps") + "/" + name)
	a.w.must(err)
	defer resp.Body.Close()
	var object struct {
		Metadata struct{ UID, ResourceVersion string }
	}
	a.w.must(json.NewDecoder(resp.Body).Decode(&object))
	text := fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"a-%[1]s","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/%[5]s/configmaps","verb":"create",`+
		`"user":{"username":%[2]q},"objectRef":{"resource":"configmaps","namespace":%[5]q,"name":%[1]q,"apiVersion":"v1"},"responseStatus":{"code":201},`+
		`"responseObject":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%[1]q,"namespace":%[5]q,"uid":%[3]q,"resourceVersion":%[4]q}},"requestReceivedTimestamp":"2026-03-14T09:26:02.535897Z","stageTimestamp":"2026-03-14T09:26:02.54Z"}`,
		name, user, object.Metadata.UID, object.Metadata.ResourceVersion, a.w.name)
	a.w.must(a.client.ProduceSync(a.w.t.Context(), &kgo.Record{Topic: a.name, Partition: partition, Value: []byte(text)}).FirstErr())
}

// attributed returns how many events say that a user has changed an object.
func (a *auditTopic) attributed(name, user string) (n int) {
	records, err := a.w.kafka.Read(a.w.t.Context(), a.w.name+".fine")
	if err != nil {
		return 0 // it is not there yet
	}
	for _, r := range records {
		if text := string(r.Value); strings.Contains(text, `"io.kubebridge.resource.attributed.v1"`) && strings.Contains(text, "/"+name+`"`) && strings.Contains(text, `"name":"`+user+`"`) {
			n++
		}
	}
	return n
}

// Records that come through a topic of Apache Kafka say who made a change, each once, also those that came while the bridge was down.
func TestAuditTopic(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{})
	eachDelivery(t, func(t *testing.T, delivery string) {
		w := newWorld(t, c, delivery)
		delete(w.sink, "sasl")
		a := w.readsTopic()
		w.start()
		w.arrives(w.name+".fine", w.create("configmaps", "ConfigMap")) // what comes later is not in the first list
		first := w.create("configmaps", "ConfigMap")
		w.arrives(w.name+".fine", first)
		a.creation(first, "alice", 0)
		w.await("who created "+first, func() bool { return a.attributed(first, "alice") > 0 })

		second := w.create("configmaps", "ConfigMap")
		w.arrives(w.name+".fine", second)
		w.must(w.cmd.Process.Signal(syscall.SIGTERM))
		w.exits(0)
		a.creation(second, "bob", 1)
		w.start()
		w.await("who created "+second, func() bool { return a.attributed(second, "bob") > 0 })
		if n := a.attributed(first, "alice"); n != 1 {
			t.Errorf("it was said %d times who created %s", n, first)
		}
	})
}

// The topic can be read with a password over TLS. What the brokers refuse is in the status until it is corrected, and never the password.
// `bridge validate --connect` finds it, too, and `bridge rbac --bus` prints what the user needs.
func TestAuditTopicAccess(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{TLS: true, ACLs: true, Users: map[string]string{user: password, "reader": "secret-of-the-reader"}})
	w := newWorld(t, c, "at-least-once")
	tls := map[string]any{"enabled": true, "ca": c.CA()}
	w.sink["tls"] = tls
	topic := w.name + ".audit-log"
	w.must(c.CreateTopic(t.Context(), topic, 1, 0, nil))
	for _, prefix := range []string{w.name + ".fine", w.checkpoint()} {
		w.must(c.Allow(t.Context(), user, prefix, kadm.OpAll))
	}
	w.config["audit"] = map[string]any{"path": t.TempDir(), "kafka": map[string]any{
		"brokers": c.Addrs(), "topic": topic, "tls": tls,
		"sasl": map[string]any{"mechanism": "SCRAM-SHA-512", "username": "reader", "password": "secret-of-the-reader"},
	}}
	path := w.file()
	run := func(args ...string) string {
		out, err := exec.Command(binary, append(args, "-c", path)...).CombinedOutput()
		return fmt.Sprintf("%s (%v)", out, err)
	}
	if out := run("validate", "--connect"); !strings.Contains(out, "audit.kafka: audit topic "+topic) || !strings.Contains(out, "exit status 3") {
		t.Errorf("validate: %s", out)
	}
	if out := run("rbac", "--bus"); !strings.Contains(out, "--allow-principal User:reader --operation Read --operation Describe --topic "+topic+"\n") {
		t.Errorf("rbac --bus: %s", out)
	}
	w.run(path)
	w.await("the error in the log", func() bool { return strings.Contains(w.log(), "read of the audit topic failed") })
	w.must(c.Allow(t.Context(), "reader", topic, kadm.OpRead, kadm.OpDescribe))
	w.await("validate to find no mistake", func() bool { return !strings.Contains(run("validate", "--connect"), "audit.kafka") })
	if strings.Contains(w.log(), "secret-of-the-reader") {
		t.Error("the log has the password")
	}
}
