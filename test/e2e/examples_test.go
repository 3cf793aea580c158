package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
	"github.com/kubebridge/kubebridge/test/postgrestest"
)

// examples are the example programs, which are built and installed once.
type examples struct{ kafka, nats, python, dir string }

func getExamples(t *testing.T) examples {
	t.Helper()
	x := examples{dir: filepath.Join(bridge.Root(), "examples")}
	bin := t.TempDir()
	x.kafka, x.nats = filepath.Join(bin, "kafka"), filepath.Join(bin, "nats")
	for _, name := range []string{"kafka", "nats"} {
		if err := bridge.Build(t.Context(), filepath.Join(x.dir, "go"), "./"+name, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	var complaints strings.Builder
	clients := exec.CommandContext(t.Context(), filepath.Join(bridge.Root(), "scripts", "clients.sh"))
	clients.Stderr = &complaints
	python, err := clients.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, complaints.String())
	}
	x.python = strings.TrimSpace(string(python))
	return x
}

// life makes changes while the cluster is copied: updates, deletions, reuse of names, a reset. One ConfigMap has NUL
// in a value, which the API server accepts and PostgreSQL does not.
func (w *world) life(types ...kube.Type) {
	w.t.Helper()
	w.start()
	_, err := w.kube.Create(w.soon(), kube.ConfigMaps, "nul", kube.Fields{"data": map[string]any{"text": "nul \x00, not nul \\u0000"}})
	w.must(err)
	for _, typ := range types {
		w.bulk(typ, "a", 12)
		w.bulkPatch(typ, "a", "first", 0, 6)
		w.bulkDelete(typ, "a", 4, 8)
		w.bulk(typ, "b", 3)
	}
	w.settle(types...)
	w.stop()
	for _, typ := range types { // while the bridge is down
		w.bulkDelete(typ, "b", 0, 2)
		w.create(typ, "a-4")
	}
	w.config.Secrets = map[string]any{"values": "redact"} // this changes what consumers may see, so it is a reset
	w.start()
	for _, typ := range types {
		w.bulkPatch(typ, "a", "second", 8, 10)
	}
	w.settle(types...)
}

// lines returns the cluster's objects in the form in which the examples print theirs.
func (w *world) lines(types ...kube.Type) []string {
	w.t.Helper()
	var lines []string
	for _, typ := range types {
		objects, _, err := w.kube.List(w.soon(), typ, metav1.ListOptions{})
		w.must(err)
		for _, o := range objects {
			lines = append(lines, strings.Join([]string{
				"copy", typ.ResourceID(), o.GetNamespace() + "/" + o.GetName(), string(o.GetUID()), o.GetResourceVersion(),
			}, " "))
		}
	}
	slices.Sort(lines)
	return lines
}

// awaitLast waits until the program has printed the last event of each object, and the last synced event of each partition, in the
// last incarnation of each collection. It may ignore events of an earlier incarnation if it has seen a later one in another partition.
func (w *world) awaitLast(p *bridge.Process) {
	w.t.Helper()
	messages, err := w.log.Messages()
	w.must(err)
	incarnation := map[string]string{} // of each collection: numbers with as many digits
	for i := range messages {
		c := messages[i].Attributes["collection"]
		incarnation[c] = max(incarnation[c], messages[i].Attributes["incarnation"])
	}
	last := map[string]string{} // lines: type, collection, name, resourceVersion
	ids := map[string]string{}  // of the last change of each object
	for i := range messages {
		m := &messages[i]
		c := m.Attributes["collection"]
		if m.Is("denied", "lost") { // the examples ignore them
			continue
		}
		if object := fmt.Sprint(c, m.UID()); !m.Is("attributed") {
			ids[object] = m.Attributes["id"]
		} else if m.Attributes["id"] != ids[object]+":attributed" { // some examples ignore who made an earlier change
			continue
		}
		if m.Attributes["incarnation"] == incarnation[c] && (!m.OfCollection() || m.Is("synced")) {
			last[fmt.Sprint(c, m.UID(), m.Partition)] = strings.Join([]string{m.Type(), c, m.Attributes["name"], m.RV()}, " ") + "\n"
		}
	}
	want := map[string]int{}
	for _, line := range last {
		want[line]++
	}
	ctx, tick := w.soon(), time.NewTicker(50*time.Millisecond)
	defer tick.Stop()
	for {
		out, missing := p.Output(), ""
		for line, n := range want {
			if strings.Count(out, line) < n {
				missing = line
			}
		}
		if missing == "" {
			return
		}
		if !p.Running() {
			w.t.Fatalf("the example ended on its own:\n%s\n%s", out, p.Log())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			w.t.Fatalf("%s is not in what the example printed:\n%s\n%s", missing, out, p.Log())
		}
	}
}

// The copy of each example equals the cluster, also after changes while the bridge was down and after a reset.
func TestExamplesOnKafka(t *testing.T) {
	t.Parallel()
	x := getExamples(t)
	w := newWorld(t, options{bus: busKafka, types: []kube.Type{kube.ConfigMaps, kube.Secrets}})
	w.transactional = true
	w.config.Checkpoint = map[string]any{"kafka": map[string]any{"replicas": 1}}
	w.config.Sinks[0].Kafka["delivery"] = "exactly-once"
	w.life(kube.ConfigMaps, kube.Secrets)
	broker := w.proxy.Addr()

	w.isCopied("Go", x.kafka, broker, `^k8s\.`)
	w.isCopied("Python", x.python, filepath.Join(x.dir, "python", "kafka_mirror.py"), broker, `^k8s\.`)
	for _, typ := range []kube.Type{kube.ConfigMaps, kube.Secrets} {
		topic := "k8s." + w.ns + ".core." + typ.Resource
		out, err := exec.CommandContext(w.soon(), filepath.Join(x.dir, "shell", "kafka.sh"), broker, topic).Output()
		w.must(err)
		w.same("shell", strings.Split(strings.TrimSpace(string(out)), "\n"), w.lines(typ))
	}
	sql := w.inPostgres(filepath.Join(x.dir, "sql", "postgres.sql"))
	out := sql("select 'copy ' || resource || ' ' || namespace || '/' || name || ' ' || uid || ' ' || resourceversion from kubebridge.objects;")
	w.same("PostgreSQL", strings.Split(strings.TrimSpace(out), "\n"), w.lines(kube.ConfigMaps, kube.Secrets))
	if out := sql("select object->'data'->>'text' from kubebridge.objects where name = 'nul';"); out != "nul \ufffd, not nul \\u0000\n" {
		w.t.Errorf("PostgreSQL: NUL in a ConfigMap became %q", out)
	}
	if out := sql("select count(*) from kubebridge.complete;"); strings.TrimSpace(out) != "2" {
		w.t.Errorf("PostgreSQL: %s resources are complete, want 2:\n%s", strings.TrimSpace(out), sql("select * from kubebridge.progress;"))
	}
}

// The same on NATS.
func TestExamplesOnNATS(t *testing.T) {
	t.Parallel()
	x := getExamples(t)
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps, kube.Secrets}})
	w.life(kube.ConfigMaps, kube.Secrets)
	url, stream := "nats://"+w.nats.Addr(), "K8S_"+w.ns
	w.isCopied("Go", x.nats, url, stream)
	w.isCopied("Python", x.python, filepath.Join(x.dir, "python", "nats_mirror.py"), url, stream)
	w.noticesAnotherStream(stream, []string{x.nats, url, stream}, []string{x.python, filepath.Join(x.dir, "python", "nats_mirror.py"), url, stream})
}

// noticesAnotherStream checks that examples ignore a message that is no event, and end when the stream is deleted and created again: their copies
// would lack what happened meanwhile, and still be called complete.
func (w *world) noticesAnotherStream(name string, examples ...[]string) {
	w.t.Helper()
	conn, err := nats.Connect("nats://" + w.nats.Addr())
	w.must(err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	w.must(err)
	stream, err := js.Stream(w.soon(), name)
	w.must(err)
	w.nats.SkipForeign.Store(true)
	subject := "k8s." + w.ns + ".foreign"
	_, err = js.Publish(w.soon(), subject, []byte("hello"))
	w.must(err)
	var running []*bridge.Process
	for _, args := range examples {
		p, err := bridge.Start(args[0], args[1:]...)
		w.must(err)
		defer p.Kill()
		w.awaitLast(p)
		running = append(running, p)
	}
	w.bridge.Kill()
	info, err := stream.Info(w.soon())
	w.must(err)
	w.must(js.DeleteStream(w.soon(), name))
	_, err = js.CreateStream(w.soon(), jetstream.StreamConfig{Name: name, Subjects: []string{"k8s." + w.ns + ".>"}})
	w.must(err)
	for range info.State.LastSeq + 1 {
		_, err := js.Publish(w.soon(), subject, []byte("hello"))
		w.must(err)
	}
	for _, p := range running {
		w.exits(p, 1)
		if !strings.Contains(p.Log(), "begin again with an empty copy") {
			w.t.Errorf("an example ended with:\n%s", p.Log())
		}
	}
}

// isCopied runs an example, and compares its copy with the cluster.
func (w *world) isCopied(name, program string, args ...string) {
	w.t.Helper()
	out := w.exampleOutput(program, args...)
	w.same(name, copyLines(out), w.lines(kube.ConfigMaps, kube.Secrets))
	if complete := strings.Count(out, "\ncomplete "); complete != 2 {
		w.t.Errorf("%s: the copy of %d resources is complete, want 2:\n%s", name, complete, out)
	}
}

// copied runs an example, and returns the lines of its copy.
func (w *world) copied(program string, args ...string) []string {
	w.t.Helper()
	return copyLines(w.exampleOutput(program, args...))
}

// exampleOutput runs an example until it has read everything, and returns what it prints.
func (w *world) exampleOutput(program string, args ...string) string {
	w.t.Helper()
	p, err := bridge.Start(program, args...)
	w.must(err)
	defer p.Kill()
	w.awaitLast(p)
	p.Signal(syscall.SIGTERM)
	w.exits(p, 0)
	return p.Output()
}

func copyLines(out string) (lines []string) {
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "copy ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func (w *world) same(name string, copied, cluster []string) {
	w.t.Helper()
	slices.Sort(copied)
	if diff := cmp.Diff(cluster, copied); diff != "" {
		w.t.Errorf("%s: the copy is not the cluster (-cluster +copy):\n%s", name, diff)
	}
}

// inPostgres writes all events on the bus to a PostgreSQL server, twice, as after a consumer's restart. It returns a function that runs SQL.
func (w *world) inPostgres(schema string) (sql func(string) string) {
	w.t.Helper()
	sql = postgrestest.Start(w.t)
	definitions, err := os.ReadFile(schema)
	w.must(err)
	sql(string(definitions))
	messages, err := w.log.Messages()
	w.must(err)
	partitions := map[string]int{}
	for i := range messages {
		partitions[messages[i].Route] = max(partitions[messages[i].Route], messages[i].Partition+1)
	}
	var script strings.Builder
	script.WriteString("begin;\n")
	for range 2 {
		for i := range messages {
			m := &messages[i]
			fmt.Fprintf(&script, "insert into kubebridge.inbox values ('%s', %d, %d, '%s');\n", m.Route, m.Partition, partitions[m.Route], strings.ReplaceAll(string(m.Raw), "'", "''"))
		}
	}
	script.WriteString("commit;\n")
	sql(script.String())
	return sql
}
