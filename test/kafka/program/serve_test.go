package program_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

// object is what the test compares of an object.
type object struct {
	Metadata struct{ Name, UID, ResourceVersion string }
	Data     map[string]string
}

func (o *object) String() string {
	return fmt.Sprintf("%s %s@%s %v", o.Metadata.Name, o.Metadata.UID, o.Metadata.ResourceVersion, o.Data)
}

// server is a `bridge serve` process.
type server struct {
	w    *world
	url  string
	cmd  *exec.Cmd
	mu   sync.Mutex
	text bytes.Buffer
}

// serve starts a server, and waits until it listens.
func (w *world) serve(path, dir string) *server {
	w.t.Helper()
	s := &server{w: w, cmd: exec.Command(binary, "serve", "-c", path, "--data", dir, "--listen", "127.0.0.1:0")}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.cmd.Stderr = writer(func(b []byte) { s.mu.Lock(); s.text.Write(b); s.mu.Unlock() })
	w.must(s.cmd.Start())
	w.t.Cleanup(s.kill)
	w.await("serve to listen", func() bool {
		for line := range strings.Lines(s.log()) {
			var entry struct{ Msg, Address string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "serving" {
				s.url = "http://" + entry.Address
			}
		}
		return s.url != ""
	})
	return s
}

func (s *server) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *server) kill() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Kill() // may have ended
		_ = s.cmd.Wait()
	}
}

func (w *world) teams() string { return "/api/v1/" + w.path("configmaps") + "?labelSelector=team" }

// list returns the objects that have a team, and the list's resourceVersion.
func (w *world) list(client *http.Client, url string) (all []string, version string) {
	w.t.Helper()
	resp, err := client.Get(url + w.teams())
	w.must(err)
	defer resp.Body.Close()
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []object
	}
	if resp.StatusCode != http.StatusOK {
		return []string{resp.Status}, ""
	}
	w.must(json.NewDecoder(resp.Body).Decode(&list))
	for i := range list.Items {
		all = append(all, list.Items[i].String())
	}
	slices.Sort(all)
	return all, list.Metadata.ResourceVersion
}

// equals waits until the server has what the API server has.
func (s *server) equals() (all []string, version string) {
	s.w.t.Helper()
	want, _ := s.w.list(s.w.http, cluster.Server())
	defer func() {
		if s.w.t.Failed() {
			s.w.t.Logf("the API server has\n%s\nserved are at %s\n%s\nthe log of serve:\n%s", strings.Join(want, "\n"), version, strings.Join(all, "\n"), s.log())
		}
	}()
	s.w.await("the served list", func() bool {
		all, version = s.w.list(http.DefaultClient, s.url)
		return slices.Equal(all, want)
	})
	return all, version
}

// watch returns the next n changes behind a resourceVersion.
func (w *world) watch(client *http.Client, url, version string, n int) (all []string) {
	w.t.Helper()
	resp, err := client.Get(url + w.teams() + "&watch=true&timeoutSeconds=60&resourceVersion=" + version)
	w.must(err)
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for len(all) < n {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return append(all, "the watch has ended")
		}
		w.must(err)
		var e struct {
			Type   string
			Object object
		}
		w.must(json.Unmarshal(line, &e))
		all = append(all, e.Type+" "+e.Object.String())
	}
	return all
}

// put creates an object of a team, or changes it.
func (w *world) put(name, team string, n int) {
	w.t.Helper()
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"team":%q}},"data":{"n":"%d"}}`, name, team, n)
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPatch,
		cluster.Server()+"/api/v1/"+w.path("configmaps")+"/"+name+"?fieldManager=test&force=true", strings.NewReader(body))
	w.must(err)
	req.Header.Set("Content-Type", "application/apply-patch+yaml")
	resp, err := w.http.Do(req)
	w.must(err)
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); resp.StatusCode >= 300 || err != nil {
		w.t.Fatalf("put %s: %s %s (%v)", name, resp.Status, text, err)
	}
}

// Clients of `bridge serve` on Kafka have what the API server has: lists, also over a kill -9 of the server and of the bridge, every change once in
// the order of the API server, and the past. The objects of two teams are two collections, each in a topic of three partitions; an object that
// changes its team is a change, and not a deletion.
func TestServe(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{})
	w := newWorld(t, c, "exactly-once")
	delete(w.sink, "sasl")
	w.sink["create"] = map[string]any{"partitions": 3}
	var entries []any
	for _, team := range []string{"a", "b"} {
		entries = append(entries, map[string]any{"resource": "configmaps", "name": team, "labelSelector": "team=" + team, "topic": w.name + "." + team})
	}
	w.config["resources"] = entries
	for i := range 12 {
		w.put(fmt.Sprintf("s%02d", i), []string{"a", "b"}[i%2], i)
	}
	w.start()
	config, dir := w.file(), filepath.Join(t.TempDir(), "serve")
	s := w.serve(config, dir)
	before, version := s.equals()

	for i := range 10 {
		w.put(fmt.Sprintf("s%02d", i), []string{"a", "b"}[i%2], 100+i)
	}
	w.put("s00", "b", 200) // both teams have reached this version
	s.equals()
	s.kill()
	w.must(w.cmd.Process.Kill())
	<-w.ended
	w.put("s01", "a", 201)
	w.remove("configmaps", "s02", "s03")
	w.put("s02", "b", 202)
	w.put("s00", "a", 203)
	w.start()
	s = w.serve(config, dir)
	after, _ := s.equals()
	if strings.Contains(s.log(), "copy dropped") {
		t.Errorf("the server dropped its copy after a kill:\n%s", s.log())
	}

	const changes = 16
	want, got := w.watch(w.http, cluster.Server(), version, changes), w.watch(http.DefaultClient, s.url, version, changes)
	if !slices.Equal(want, got) {
		t.Errorf("a watch from %s has at the API server\n%s\nand here\n%s", version, strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
	if past, at := w.list(http.DefaultClient, s.url+"/at/"+version); !slices.Equal(past, before) || at != version {
		t.Errorf("at %s were\n%s\nand now\n%s", version, strings.Join(before, "\n"), strings.Join(past, "\n"))
	}

	// A deleted topic: the bridge declares a reset, and the copy begins again.
	w.must(c.DeleteTopic(t.Context(), w.name+".a"))
	s.w.await("serve to drop its copy", func() bool {
		w.put("s04", "a", 300)
		return strings.Contains(s.log(), "was deleted and created again")
	})
	w.put("s00", "b", 301)
	if now, _ := s.equals(); len(now) != len(after) {
		t.Errorf("%d objects are served, %d before", len(now), len(after))
	}

	// Topics that keep only the last record of each key are refused.
	w.must(c.SetTopicConfig(t.Context(), w.name+".b", "cleanup.policy", "compact"))
	out, err := exec.Command(binary, "serve", "-c", config, "--data", dir+"2", "--listen", "127.0.0.1:0").CombinedOutput()
	if err == nil || !strings.Contains(string(out), w.name+".b: it keeps only the last messages of each object") {
		t.Errorf("a compacted topic: %v\n%s", err, out)
	}
}
