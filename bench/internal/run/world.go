package run

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/bench/internal/feed"
	"github.com/kubebridge/kubebridge/bench/internal/mark"
)

// setup is one arrangement of feed, program and bus.
type setup struct {
	program   string // "bridge", roleRaw, roleDynamic or a command
	bus       string // roleKafka or roleNATS
	resources string // in the format of feed.Parse
	events    uint64 // of each resource
	objects   uint64 // of each
	initial   uint64 // of each
	silent    uint64
	rate      float64
	fileStore bool   // the checkpoint is in files; with Kafka, delivery is at least once
	secrets   string // secrets.values
	linger    time.Duration
	options   string // of the resource, in YAML's flow style
	format    string // of the sink; "": the default
	distinct  bool   // objects differ as those of a cluster do
	buffer    string // address of the status server of a bridge with a disk buffer; "": no buffer
	real      bool   // an API server with etcd instead of the feed
}

func (s setup) count() uint64 {
	_, times, many := strings.Cut(s.resources, "*")
	n := uint64(1)
	if many {
		_, _ = fmt.Sscan(times, &n)
	}
	return n
}

// total returns the number of marked records that are expected.
func (s setup) total() uint64 { return s.count() * (s.initial + s.events - s.silent) }

// world is a running setup.
type world struct {
	setup
	bench           *bench
	dir             string
	cluster         string
	feed, sink, sut *process
	feedAt, sinkAt  hello
	client          *http.Client
}

func (b *bench) newWorld(s setup) (w *world, err error) {
	b.worlds++
	w = &world{
		setup: s, bench: b, dir: filepath.Join(b.dir, fmt.Sprint(b.worlds)), cluster: fmt.Sprintf("bench%d-%d", time.Now().Unix(), b.worlds),
		client: &http.Client{
			Timeout:   30 * time.Second,
			Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, // the feed signs its certificate itself
		},
	}
	w.objects = cmp.Or(w.objects, 1000)
	made := w
	defer func() {
		if err != nil {
			made.close()
		}
	}()
	if err := errors.Join(os.RemoveAll(w.dir), os.MkdirAll(w.dir, 0o755)); err != nil {
		return nil, err
	}
	role := s.bus
	if s.bus == roleKafka && b.kafka != "" {
		role = roleConsume
	}
	cpu := otherCPU
	if s.real { // the API server must be the slowest process, so it does not share its CPU
		cpu = testCPU
	}
	w.sink, err = w.child(cpu, role, &w.sinkAt, "-dir", filepath.Join(w.dir, "jetstream"), "-address", b.kafka, "-cluster", w.cluster)
	if err != nil {
		return nil, err
	}
	if s.real {
		w.feed, err = w.apiServer()
		return w, err
	}
	w.feed, err = w.child(otherCPU, roleFeed, &w.feedAt, "-kubeconfig", w.path("kubeconfig"), "-resources", s.resources,
		"-events", fmt.Sprint(s.events), "-objects", fmt.Sprint(w.objects), "-initial", fmt.Sprint(s.initial), "-silent", fmt.Sprint(s.silent), "-rate", fmt.Sprint(s.rate), "-distinct="+fmt.Sprint(s.distinct))
	return w, err
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// pinned returns the CPU for a process; -1 means any CPU.
func (b *bench) pinned(cpu int) int {
	if !b.pin {
		return -1
	}
	return cpu
}

func (w *world) child(cpu int, role string, said any, args ...string) (*process, error) {
	return spawn(w.dir, role, w.bench.pinned(cpu), said, append([]string{w.bench.self, role}, args...)...)
}

// start starts the program under test.
func (w *world) start() (err error) {
	args := []string{w.bench.bridge, "run", "-c", w.path("bridge.yaml")}
	switch w.program {
	case "bridge":
		if err := w.configure(); err != nil {
			return err
		}
		// Only a bridge that profile.sh has built reads this variable.
		args = append([]string{"env", "KUBEBRIDGE_BENCH_PROFILE=" + w.path("cpu.pprof")}, args...)
	case roleRaw, roleDynamic:
		args = []string{w.bench.self, w.program, "-kubeconfig", w.path("kubeconfig"), "-" + w.bus, w.sinkAt.Address, "-to", "k8s." + w.cluster + ".raw", "-resource", w.resources}
	default:
		args = append([]string{"env", "KUBECONFIG=" + w.path("kubeconfig"), "KAFKA=" + w.sinkAt.Address, "NATS=" + w.sinkAt.Address, "RESOURCE=" + w.resources}, strings.Fields(w.program)...)
	}
	w.sut, err = spawn(w.dir, named(w.program), w.bench.pinned(testCPU), nil, args...)
	return err
}

// named returns the name of a program in tables. For a command, it is the name of the
// file, up to the first dot.
func named(program string) string {
	command, _, _ := strings.Cut(program, " ")
	name, _, _ := strings.Cut(filepath.Base(command), ".")
	return name
}

// configure writes the configuration of the bridge. Everything else has the defaults,
// as for a user.
func (w *world) configure() error {
	resources := w.resources
	if w.count() > 1 || strings.HasPrefix(resources, "widgets") {
		resources = `"*.bench.kubebridge.io"`
	}
	if w.options != "" {
		resources = fmt.Sprintf("{resource: %s, %s}", resources, w.options)
	}
	c := fmt.Sprintf("name: bench\ncluster: %s\nkubernetes: {kubeconfig: %s}\nresources: [%s]\nstatus: {listen: %q}\nadmin: {socket: \"off\"}\n", w.cluster, w.path("kubeconfig"), resources, cmp.Or(w.buffer, "off"))
	if w.buffer != "" {
		c += fmt.Sprintf("buffer: {path: %s, maxBytes: 20Gi}\n", w.path("buffer"))
	}
	switch w.secrets {
	case "hash":
		key := w.path("hash.key")
		if err := os.WriteFile(key, []byte("a key for the benchmark, no secret"), 0o600); err != nil {
			return err
		}
		c += fmt.Sprintf("secrets: {hashKeyFile: %s}\n", key)
	case "plain":
		c += "secrets: {values: plain}\n"
	}
	delivery := ""
	if w.fileStore { // with exactly-once delivery, the checkpoint would be in Kafka
		delivery = ", delivery: at-least-once"
		c += fmt.Sprintf("checkpoint: {file: {path: %s}}\n", w.path("checkpoint"))
	}
	c += fmt.Sprintf("sinks:\n  - name: out\n    linger: %s\n", w.linger)
	if w.format != "" {
		c += fmt.Sprintf("    format: %s\n", w.format)
	}
	if w.bus == roleKafka {
		c += fmt.Sprintf("    kafka: {brokers: [%q]%s}\n", w.sinkAt.Address, delivery)
	} else {
		c += fmt.Sprintf("    nats: {url: %q}\n", w.sinkAt.Address)
	}
	return os.WriteFile(w.path("bridge.yaml"), []byte(c), 0o600)
}

func (w *world) close() {
	for _, p := range []*process{w.sut, w.feed, w.sink} {
		if p != nil {
			p.stop()
		}
	}
	if !w.bench.keep {
		_ = os.RemoveAll(w.dir) // ignore an error: files that remain are in var/
	}
}

// call sends a request to the feed or the bus, and decodes the answer.
func (w *world) call(method, url string, answer any) error {
	q, err := http.NewRequest(method, url, nil)
	if err != nil {
		return err
	}
	a, err := w.client.Do(q)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return errors.New(a.Status)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(a.Body).Decode(answer)
}

func (w *world) command(what string) error {
	return w.call(http.MethodPost, w.feedAt.Control+"/_bench/"+what, nil)
}

func (w *world) asked() (s feed.Stats, err error) {
	return s, w.call(http.MethodGet, w.feedAt.Control+"/_bench/stats", &s)
}

func (w *world) stats(query string) (s mark.Stats, err error) {
	return s, w.call(http.MethodGet, w.sinkAt.Control+"/stats"+query, &s)
}

func (w *world) reset() error { return w.call(http.MethodPost, w.sinkAt.Control+"/reset", nil) }

// watching waits until every resource is watched.
func (w *world) watching(ctx context.Context, limit time.Duration) error {
	return await(ctx, limit, "a watch of everything", func() (bool, error) {
		s, err := w.asked()
		return s.Watches >= int64(w.count()), errors.Join(err, w.sut.ended())
	})
}

// arrived waits until n distinct marked records have arrived. It returns the latest
// statistics, also after the limit.
func (w *world) arrived(ctx context.Context, n uint64, limit time.Duration) (s mark.Stats, err error) {
	err = await(ctx, limit, fmt.Sprintf("%d records", n), func() (bool, error) {
		var err error
		s, err = w.stats("")
		return s.Unique >= n, errors.Join(err, w.sut.ended())
	})
	if errors.Is(err, errLate) {
		err = fmt.Errorf("%w: %d arrived\n%s", err, s.Unique, w.sut.tail())
	}
	return s, err
}
