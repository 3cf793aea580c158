package program_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

// record writes the fixtures of the present format, for the tests of later commits. Never record the fixtures of a released format again.
var record = flag.String("formats.record", "", "a format's number: record its fixtures in testdata/formats")

const (
	formats = "testdata/formats" // for each format of the checkpoint: two configurations, and state.tgz
	etcd    = "etcd"             // directories of state.tgz
	broker  = "kafka"
)

// keep makes the brokers keep records of any age, because fixtures are old.
var keep = map[string]string{"log.retention.ms": "-1"}

// past is a copy of a cluster and its buses with the data of two bridges.
type past struct {
	t       *testing.T
	dir     string // of what the bridges and the buses keep
	configs string // directory of the configurations
	cluster *clustertest.Cluster
	kafka   *kafkatest.Cluster
	http    *http.Client
	bridges []*world
}

// bridges are the names of the configurations. sinks are the sinks that are read, with the collection of each.
var (
	configurations = []string{"bus.yaml", "files.yaml"}
	everySink      = []string{"exact", "stream", "repeated", "lines"}
)

// The data of an earlier commit on Kafka, on NATS and in files can be continued: there is no gap, no event is published again, changes made
// since are published once, with a diff from the body that was published before, and a consumer that reads everything has the state of the
// cluster. The API server has no watch cache, because a cache knows no changes from before its start, which would be a gap.
func TestFormats(t *testing.T) {
	t.Parallel()
	if *record != "" {
		recordFormats(t)
	}
	versions, err := os.ReadDir(formats)
	if err != nil || len(versions) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	for _, v := range versions {
		t.Run(v.Name(), func(t *testing.T) { continues(t, filepath.Join(formats, v.Name())) })
	}
}

func continues(t *testing.T, from string) {
	p := &past{t: t, dir: t.TempDir(), configs: from}
	p.must(unpack(filepath.Join(from, "state.tgz"), p.dir))
	p.launch(clustertest.Options{ExtraArgs: []string{"--watch-cache=false"}}, kafkatest.Options{Props: keep, Data: filepath.Join(p.dir, broker)})
	p.must(p.cluster.Stop())
	p.must(p.cluster.RestoreEtcd(filepath.Join(p.dir, etcd)))
	p.must(p.cluster.Restart(t.Context()))
	p.connect()
	p.patch("configmaps", "changed", `{"data":{"step":"later"}}`)
	p.patch("configmaps", "moved", `{"metadata":{"labels":{"team":"blue"}}}`)
	p.patch("configmaps", "annotated", `{"metadata":{"annotations":{"step":"later"}}}`)
	p.request(http.MethodDelete, "configmaps/deleted", "", "")
	p.create("configmaps", "created", "team", "red")
	p.start()
	p.arrive("created")
	p.create("secrets", "last", "team", "red")
	p.arrive("last")
	want := map[string][]string{
		"configmaps@formats":     {"added created", "deleted deleted", "modified annotated", "modified changed", "modified moved"},
		"configmaps:red@formats": {"added created", "deleted deleted", "deleted moved left", "modified changed"}, // which ignores annotations
		"secrets@formats":        {"added last"},
	}
	for _, sink := range everySink {
		messages := p.read(sink)
		before := p.before(sink)
		if len(messages) <= before {
			t.Errorf("%s: %d messages, %d of them recorded", sink, len(messages), before)
			continue
		}
		got := map[string][]string{}
		for _, m := range messages[before:] {
			e, err := event.Parse(m)
			if err != nil {
				t.Fatalf("%s: %v: %s", sink, err, m)
			}
			switch {
			case e.Type == event.Gap:
				t.Errorf("%s: %s has a gap: %s", sink, e.Collection, e.Report.Detail)
			case e.Type.OfCollection():
			default:
				got[e.Collection] = append(got[e.Collection], strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Type, e.Name, e.Reason)))
				if e.Type == event.Modified && e.Entry == "" && len(e.Patch) == 0 {
					t.Errorf("%s: the change of %s has no patch: what was published before is not known any more", sink, e.Name)
				}
			}
		}
		for collection, events := range want {
			slices.Sort(got[collection])
			if !slices.Equal(got[collection], events) {
				t.Errorf("%s, %s: published\n\t%q, want\n\t%q", sink, collection, got[collection], events)
			}
		}
		p.consumed(sink, messages)
	}
	p.stop()
}

// recordFormats records the fixtures that [continues] starts from.
func recordFormats(t *testing.T) {
	p := &past{t: t, dir: t.TempDir(), configs: filepath.Join(formats, *record)}
	p.must(os.WriteFile(filepath.Join(p.dir, "hash.key"), []byte(strings.Repeat("the key of fixtures ", 3)), 0o600))
	p.launch(clustertest.Options{}, kafkatest.Options{Props: keep})
	p.connect()
	p.request(http.MethodPost, "", "application/json", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"formats"}}`)
	for _, name := range []string{"kept", "changed", "deleted", "moved", "annotated"} {
		p.create("configmaps", name, "team", "red")
	}
	p.create("secrets", "token", "team", "red")
	p.start()
	p.arrive("token")
	p.patch("configmaps", "changed", `{"data":{"step":"first"}}`)
	p.create("secrets", "second", "team", "red")
	p.arrive("second")
	for _, sink := range everySink {
		p.must(os.WriteFile(p.countOf(sink), fmt.Append(nil, len(p.read(sink))), 0o600))
	}
	p.stop()
	p.must(p.cluster.Stop())
	p.must(p.cluster.SaveEtcd(filepath.Join(p.dir, etcd)))
	p.must(p.kafka.Broker(1).Stop())
	p.must(p.kafka.Broker(1).Save(filepath.Join(p.dir, broker)))
	p.must(pack(p.dir, filepath.Join(p.configs, "state.tgz")))
}

func (p *past) must(err error) {
	if err != nil {
		p.t.Helper()
		for _, w := range p.bridges {
			p.t.Logf("log of a bridge:\n%s", w.log())
		}
		p.t.Fatal(err)
	}
}

// launch starts the cluster and Kafka.
func (p *past) launch(c clustertest.Options, k kafkatest.Options) {
	p.t.Helper()
	p.cluster, p.kafka = clustertest.Start(p.t, c), kafkatest.Start(p.t, k)
}

func (p *past) connect() {
	p.t.Helper()
	var err error
	p.http, err = rest.HTTPClientFor(p.cluster.RESTConfig())
	p.must(err)
}

// start runs the bridges until they are ready.
func (p *past) start() {
	p.t.Helper()
	for _, name := range configurations {
		w := &world{t: p.t}
		w.run(filepath.Join(p.configs, name), "FORMATS_DIR="+p.dir, "FORMATS_KUBECONFIG="+p.cluster.Kubeconfig(), "FORMATS_KAFKA="+p.kafka.Addrs()[0])
		p.bridges = append(p.bridges, w)
		w.ready()
	}
}

// stop stops the bridges after they have committed everything.
func (p *past) stop() {
	p.t.Helper()
	for _, w := range p.bridges {
		p.must(w.cmd.Process.Signal(syscall.SIGTERM))
		w.exits(0)
	}
}

// request sends a request for an object of the namespace, or with "" for namespaces.
func (p *past) request(method, path, kind, body string) {
	p.t.Helper()
	url := p.cluster.Server() + "/api/v1/namespaces"
	if path != "" {
		url += "/formats/" + path
	}
	r, err := http.NewRequestWithContext(p.t.Context(), method, url, strings.NewReader(body))
	p.must(err)
	r.Header.Set("Content-Type", kind)
	resp, err := p.http.Do(r)
	p.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if p.must(err); resp.StatusCode >= http.StatusBadRequest {
		p.must(fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, text))
	}
}

func (p *past) patch(resource, name, patch string) {
	p.t.Helper()
	p.request(http.MethodPatch, resource+"/"+name, "application/merge-patch+json", patch)
}

func (p *past) create(resource, name, label, value string) {
	p.t.Helper()
	kind := map[string]string{"configmaps": "ConfigMap", "secrets": "Secret"}[resource]
	field := map[string]string{"configmaps": "data", "secrets": "stringData"}[resource]
	p.request(http.MethodPost, resource, "application/json",
		fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"metadata":{"name":%q,"labels":{%q:%q}},%q:{"step":"created"}}`, kind, name, label, value, field))
}

// arrive waits until every sink has an event of an object.
func (p *past) arrive(name string) {
	p.t.Helper()
	for _, sink := range everySink {
		p.bridges[0].await(name+" in "+sink, func() bool {
			return slices.ContainsFunc(p.read(sink), func(m []byte) bool { return bytes.Contains(m, []byte(`"subject":"formats/`+name+`"`)) })
		})
	}
}

// countOf returns the file with the number of recorded messages of a sink.
func (p *past) countOf(sink string) string { return filepath.Join(p.dir, sink+".count") }

func (p *past) before(sink string) (n int) {
	p.t.Helper()
	text, err := os.ReadFile(p.countOf(sink))
	p.must(err)
	_, err = fmt.Sscan(string(text), &n)
	p.must(err)
	return n
}

// read returns the messages of a sink; none if its topic or stream is not there yet.
func (p *past) read(sink string) (messages [][]byte) {
	p.t.Helper()
	switch sink {
	case "lines":
		text, err := os.ReadFile(filepath.Join(p.dir, "events.jsonl"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			p.must(err)
		}
		for line := range bytes.Lines(text) {
			messages = append(messages, line)
		}
	case "stream":
		messages, _ = p.stream()
	default:
		records, err := p.kafka.Read(p.t.Context(), sink)
		if err != nil {
			return nil
		}
		for _, r := range records {
			messages = append(messages, r.Value)
		}
	}
	return messages
}

// stream reads the stream of the embedded NATS server, whose address the log has.
func (p *past) stream() (messages [][]byte, err error) {
	var url string
	for line := range strings.Lines(p.bridges[0].log()) {
		var entry struct{ Msg, URL string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "embedded NATS server started" {
			url = entry.URL
		}
	}
	conn, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	name, err := js.StreamNameBySubject(ctx, "k8s.c.core.secrets.formats.token")
	if err != nil {
		return nil, err
	}
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	state := stream.CachedInfo().State
	for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
		m, err := stream.GetMsg(ctx, seq)
		if err != nil {
			return nil, err
		}
		if !strings.HasSuffix(m.Subject, "term") { // the writer's own
			messages = append(messages, m.Data)
		}
	}
	return messages, nil
}

// consumed checks the copy of a consumer of all messages.
func (p *past) consumed(sink string, messages [][]byte) {
	p.t.Helper()
	var state consumer.State
	for _, m := range messages {
		if _, err := state.Apply(consumer.Message{Topic: sink, Value: m}); err != nil {
			p.t.Errorf("%s: %v", sink, err)
		}
	}
	var names []string
	for n := range state.All() {
		names = append(names, n.Resource+"/"+n.Name)
	}
	slices.Sort(names)
	want := []string{"configmaps/annotated", "configmaps/changed", "configmaps/created", "configmaps/kept", "configmaps/moved", "secrets/last", "secrets/second", "secrets/token"}
	names = slices.DeleteFunc(names, func(n string) bool { return n == "configmaps/kube-root-ca.crt" })
	if !slices.Equal(names, want) {
		p.t.Errorf("%s: a consumer has\n\t%q, want\n\t%q", sink, names, want)
	}
	for _, resource := range []string{"configmaps", "secrets"} {
		if _, complete := state.Complete("c", resource); !complete {
			p.t.Errorf("%s: %s are not complete", sink, resource)
		}
	}
}

// pack writes a directory into an archive.
func pack(dir, path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	zip, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(zip)
	return errors.Join(archive.AddFS(os.DirFS(dir)), archive.Close(), zip.Close())
}

// unpack writes an archive's files below a directory.
func unpack(path, dir string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	archive := tar.NewReader(zip)
	for {
		h, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case h.FileInfo().IsDir():
			err = root.MkdirAll(h.Name, 0o700)
		default:
			err = unpackFile(root, h.Name, archive)
		}
		if err != nil {
			return err
		}
	}
}

func unpackFile(root *os.Root, name string, content io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}
