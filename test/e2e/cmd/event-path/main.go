// Event-path counts the functions and types of this repository that one event passes on its way from the API server to
// Kafka, exactly once: scripts/event-path.sh. It runs the program with coverage counters. A function is counted if it runs
// for each of many changes that come one after the other, and not as often while nothing changes.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// changes is how many events are sent, and quiet is how long nothing happens before, for comparison.
const (
	changes = 40
	quiet   = 20 * time.Second
)

// host is the package that gets the signal. It is not counted: the compiler's coverage does not know overlays.
const host = "internal/admin"

//go:embed counters.go.txt
var counters []byte

func main() {
	root := flag.String("root", bridge.Root(), "the checkout whose program is counted")
	flag.Parse()
	if err := run(*root); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(root string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "kubebridge-event-path-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	w := &world{root: root, dir: dir}
	if err := w.build(ctx); err != nil {
		return err
	}
	cluster, err := clustertest.Launch(ctx, clustertest.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	kafka, err := bus.StartKafka()
	if err != nil {
		return err
	}
	defer kafka.Close()
	if w.kube, err = kube.New(cluster.RESTConfig(), "default"); err != nil {
		return err
	}
	if err := w.start(cluster, kafka); err != nil {
		return err
	}
	defer w.bridge.Kill()
	return w.measure(ctx, kafka)
}

// world is the program that is measured, and what it reads.
type world struct {
	root, dir string
	kube      *kube.Client
	bridge    *bridge.Process
	taken     int // how often the counters were taken
}

// build compiles the program with counters, and with a signal that takes them.
func (w *world) build(ctx context.Context) error {
	source, overlay := filepath.Join(w.dir, "counters.go"), filepath.Join(w.dir, "overlay.json")
	replace := fmt.Sprintf(`{"Replace":{%q:%q}}`, filepath.Join(w.root, host, "counters_overlay.go"), source)
	if err := errors.Join(os.WriteFile(source, counters, 0o600), os.WriteFile(overlay, []byte(replace), 0o600)); err != nil {
		return err
	}
	list := exec.CommandContext(ctx, "go", "list", "./cmd/bridge", "./internal/...", "./pkg/...")
	list.Dir = w.root
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("list the packages of %s: %w", w.root, err)
	}
	counted := slices.DeleteFunc(strings.Fields(string(out)), func(pkg string) bool { return pkg == module+"/"+host })
	return bridge.Build(ctx, w.root, "./cmd/bridge", w.program(), "-overlay", overlay, "-cover", "-covermode=atomic", "-coverpkg="+strings.Join(counted, ","))
}

func (w *world) program() string { return filepath.Join(w.dir, "bridge") }

func (w *world) start(cluster *clustertest.Cluster, kafka *bus.Kafka) error {
	c := bridge.Config{
		Cluster:    "c",
		Kubernetes: map[string]any{"kubeconfig": cluster.Kubeconfig()},
		Resources:  []bridge.Resource{{Resource: kube.ConfigMaps.ResourceID(), Namespaces: []string{"default"}}},
		Checkpoint: map[string]any{"kafka": map[string]any{"replicas": 1}},
		Status:     map[string]any{"listen": "127.0.0.1:0"},
		Sinks: []bridge.Sink{{Name: "audit", Kafka: map[string]any{
			"brokers": []string{kafka.Proxy.Addr()}, "delivery": "exactly-once", "create": map[string]any{"partitions": 1},
		}}},
	}
	text, err := c.YAML()
	if err != nil {
		return err
	}
	file := filepath.Join(w.dir, "bridge.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	if err := os.Setenv("KUBEBRIDGE_TEST_COUNTERS", w.dir); err != nil {
		return err
	}
	w.bridge, err = bridge.Start(w.program(), "run", "-c", file)
	return err
}

// measure counts while nothing happens, and while one change after the other does.
func (w *world) measure(ctx context.Context, kafka *bus.Kafka) error {
	if err := w.change(ctx, kafka, 0); err != nil {
		return fmt.Errorf("%w; the program's log:\n%s", err, w.bridge.Log())
	}
	if _, err := w.take(ctx); err != nil {
		return err
	}
	time.Sleep(quiet)
	idle, err := w.take(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	for n := range changes {
		if err := w.change(ctx, kafka, n+1); err != nil {
			return err
		}
	}
	took := time.Since(began)
	busy, err := w.take(ctx)
	if err != nil {
		return err
	}
	return report(w.root, idle, busy, took.Seconds()/quiet.Seconds())
}

// change changes an object, and waits until the change is on the bus.
func (w *world) change(ctx context.Context, kafka *bus.Kafka, n int) error {
	const name = "watched"
	write := func() (*unstructured.Unstructured, error) {
		return w.kube.Patch(ctx, kube.ConfigMaps, name, fmt.Sprintf(`{"data":{"n":"%d"}}`, n))
	}
	if n == 0 {
		write = func() (*unstructured.Unstructured, error) {
			return w.kube.Create(ctx, kube.ConfigMaps, name, kube.Fields{})
		}
	}
	o, err := write()
	if err != nil {
		return err
	}
	_, err = kafka.Wait(ctx, func(all []bus.Message) bool {
		return slices.ContainsFunc(all, func(m bus.Message) bool { return m.RV() == o.GetResourceVersion() })
	})
	return err
}

// take has the program write its counters and set them to zero. It returns the counts of each block of code.
func (w *world) take(ctx context.Context) (map[block]uint64, error) {
	dir := filepath.Join(w.dir, strconv.Itoa(w.taken))
	w.taken++
	w.bridge.Signal(syscall.SIGUSR1)
	for {
		if _, err := os.Stat(filepath.Join(dir, "done")); err == nil {
			break
		}
		if !w.bridge.Running() {
			return nil, fmt.Errorf("the program ended:\n%s", w.bridge.Log())
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	text := filepath.Join(dir, "text")
	if out, err := exec.CommandContext(ctx, "go", "tool", "covdata", "textfmt", "-i="+dir, "-o="+text).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go tool covdata: %w\n%s", err, out)
	}
	return readBlocks(text)
}
