package program_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

// The copy of the Java example equals the cluster, also after changes while the bridge was down and after a reset.
func TestJavaExample(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{})
	w := newWorld(t, c, "exactly-once")
	delete(w.sink, "sasl")
	w.sink["create"] = map[string]any{"partitions": 3}
	topic := w.name + ".fine"
	var names []string
	for range 6 { // in the first list
		names = append(names, w.create("configmaps", "ConfigMap"))
	}
	w.start()
	w.arrives(topic, names[0])
	for range 6 {
		names = append(names, w.create("configmaps", "ConfigMap"))
	}
	w.remove("configmaps", names[3], names[8])
	w.arrives(topic, w.create("configmaps", "ConfigMap"))
	w.must(w.cmd.Process.Signal(syscall.SIGTERM))
	w.exits(0)

	w.remove("configmaps", names[4], names[9]) // behind the bridge's back
	if out, err := exec.Command(binary, "checkpoint", "reset", "--yes", "-c", w.file()).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.create("configmaps", "ConfigMap")
	w.start()
	w.ready()
	w.remove("configmaps", names[5])
	w.arrives(topic, w.create("configmaps", "ConfigMap"))

	out := w.mirror(topic)
	want := w.objects("configmaps")
	var got []string
	complete := 0
	for line := range strings.Lines(out) {
		switch {
		case strings.HasPrefix(line, "copy "):
			got = append(got, strings.TrimSpace(line))
		case strings.HasPrefix(line, "complete /clusters/c/core/configmaps "):
			complete++
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("the copy is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if complete != 1 {
		t.Errorf("the copy is not complete:\n%s", out)
	}
}

// mirror runs the example until it has read all that is in a topic, and returns what it has printed.
func (w *world) mirror(topic string) string {
	w.t.Helper()
	jars, err := kafkatest.Jars(w.t.Context())
	w.must(err)
	records, err := w.kafka.Read(w.t.Context(), topic)
	w.must(err)
	want := lastIncarnation(records)

	example := filepath.Join("..", "..", "..", "examples", "java", "KafkaMirror.java")
	cmd := exec.Command("java", "-cp", filepath.Join(jars, "*"), example, w.kafka.Addrs()[0], "^"+topic+"$")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var (
		mu          sync.Mutex
		out, stderr bytes.Buffer
	)
	cmd.Stdout = writer(func(b []byte) { mu.Lock(); out.Write(b); mu.Unlock() })
	cmd.Stderr = &stderr // to be read when it has ended
	w.must(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }() // may have ended
	w.await("the example to read the topic", func() bool {
		mu.Lock()
		defer mu.Unlock()
		select {
		case err := <-ended:
			w.t.Fatalf("the example has ended: %v\n%s\n%s", err, out.String(), stderr.String())
		default:
		}
		for line, n := range want {
			if strings.Count(out.String(), line) < n {
				return false
			}
		}
		return true
	})
	w.must(cmd.Process.Signal(syscall.SIGTERM))
	<-ended
	return out.String()
}

// lastIncarnation counts the lines that the example prints about a topic's highest incarnation: it takes each of its events.
func lastIncarnation(records []*kgo.Record) map[string]int {
	highest, lines := "", map[string]int{}
	for _, r := range records {
		headers := map[string]string{}
		for _, h := range r.Headers {
			headers[h.Key] = string(h.Value)
		}
		incarnation := headers["ce_incarnation"] // milliseconds since 1970: all have as many digits
		if incarnation > highest {
			highest, lines = incarnation, map[string]int{}
		}
		if incarnation == highest {
			kind := strings.Split(headers["ce_type"], ".")[3]
			lines[strings.Join([]string{kind, headers["ce_collection"], headers["ce_name"], headers["ce_resourceversion"]}, " ")+"\n"]++
		}
	}
	return lines
}

// remove deletes objects in the test's namespace.
func (w *world) remove(resource string, names ...string) {
	w.t.Helper()
	for _, name := range names {
		req, err := http.NewRequestWithContext(w.t.Context(), http.MethodDelete, cluster.Server()+"/api/v1/"+w.path(resource)+"/"+name, http.NoBody)
		w.must(err)
		resp, err := w.http.Do(req)
		w.must(err)
		w.must(resp.Body.Close())
		if resp.StatusCode != http.StatusOK {
			w.t.Fatalf("delete %s: %s", name, resp.Status)
		}
	}
}

// objects are those of the test's namespace, as the example prints them.
func (w *world) objects(resource string) []string {
	w.t.Helper()
	resp, err := w.http.Get(cluster.Server() + "/api/v1/" + w.path(resource))
	w.must(err)
	defer resp.Body.Close()
	var list struct {
		Items []struct {
			Metadata struct{ Namespace, Name, UID, ResourceVersion string }
		}
	}
	w.must(json.NewDecoder(resp.Body).Decode(&list))
	var lines []string
	for _, one := range list.Items {
		m := one.Metadata
		lines = append(lines, fmt.Sprintf("copy %s %s/%s %s %s", resource, m.Namespace, m.Name, m.UID, m.ResourceVersion))
	}
	slices.Sort(lines)
	return lines
}
