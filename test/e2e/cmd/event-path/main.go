// Event-path counts the functions and types of this repository that one event passes on its way from the API server to
// Kafka, exactly once: scripts/event-path.sh. It runs the program with coverage counters while nothing changes, for changes
// one after the other, each in a batch of its own, and for a burst of changes in few batches. What runs for each change of
// the burst is per event. What runs only for each of the changes before is per batch, or each time the program wakes up.
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

const (
	quiet    = 20 * time.Second // how long nothing happens
	changes  = 40               // how many changes are made one after the other
	burst    = 400              // how many changes are made at once, each of another object
	perBatch = 20               // how many of these a batch must have, on average
)

// host is the package that gets the signal. It is not counted: the compiler's coverage does not know overlays.
const host = "internal/operate/admin"

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
	list := exec.CommandContext(ctx, "go", append([]string{"list"}, packages[:]...)...)
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

// measure counts while nothing happens, while one change after the other does, and for a burst.
func (w *world) measure(ctx context.Context, kafka *bus.Kafka) error {
	create := func(i int) (*unstructured.Unstructured, error) {
		return w.kube.Create(ctx, kube.ConfigMaps, name(i), kube.Fields{})
	}
	if _, err := written(ctx, kafka, burst, create); err != nil {
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
		if _, err := written(ctx, kafka, 1, func(int) (*unstructured.Unstructured, error) { return w.patch(ctx, n) }); err != nil {
			return err
		}
	}
	took := time.Since(began)
	single, err := w.take(ctx)
	if err != nil {
		return err
	}
	many, batches, err := w.burst(ctx, kafka)
	if err != nil {
		return err
	}
	c, err := readCode(w.root)
	if err != nil {
		return err
	}
	fmt.Printf("%d changes one after the other in %s, and %d at once in %d batches:\n", changes, took.Round(100*time.Millisecond), burst, batches)
	longer := took.Seconds() / quiet.Seconds()
	report(c, many, func(b block) bool { return many[b] >= burst }, func(b block) bool {
		// What runs while nothing happens is an estimate, so nine of ten are enough.
		return float64(single[b])-float64(idle[b])*longer >= changes*0.9
	})
	return nil
}

// burst counts for many changes at once. The program stands still until all are made, so that it finds many of them when it
// wakes up. It fails if there are too many batches to distinguish what is per batch.
func (w *world) burst(ctx context.Context, kafka *bus.Kafka) (counts map[block]uint64, batches int, err error) {
	w.bridge.Signal(syscall.SIGSTOP)
	messages, err := written(ctx, kafka, burst, func(i int) (*unstructured.Unstructured, error) {
		o, err := w.patch(ctx, i)
		if i == burst-1 {
			w.bridge.Signal(syscall.SIGCONT)
		}
		return o, err
	})
	if err != nil {
		return nil, 0, err
	}
	if batches, err = transactions(messages); err != nil {
		return nil, 0, err
	}
	if batches*perBatch > burst {
		return nil, 0, fmt.Errorf("%d changes at once were in %d batches: too many to distinguish what is per batch", burst, batches)
	}
	counts, err = w.take(ctx)
	return counts, batches, err
}

func (w *world) patch(ctx context.Context, i int) (*unstructured.Unstructured, error) {
	return w.kube.Patch(ctx, kube.ConfigMaps, name(i), fmt.Sprintf(`{"data":{"n":"%d"}}`, time.Now().UnixNano()))
}

func name(i int) string { return "watched-" + strconv.Itoa(i) }

// written writes n objects, and returns their messages when all are on the bus.
func written(ctx context.Context, kafka *bus.Kafka, n int, write func(int) (*unstructured.Unstructured, error)) (of []bus.Message, err error) {
	versions := map[string]bool{}
	for i := range n {
		o, err := write(i)
		if err != nil {
			return nil, err
		}
		versions[o.GetResourceVersion()] = true
	}
	_, err = kafka.Wait(ctx, func(all []bus.Message) bool {
		of = of[:0]
		for _, m := range all {
			if versions[m.RV()] {
				of = append(of, m)
			}
		}
		return len(of) >= n
	})
	return of, err
}

// transactions counts the transactions of messages that stand together in one partition: each but the last is followed
// by a marker, which has an offset.
func transactions(messages []bus.Message) (int, error) {
	var ends [2]int
	for i, m := range []bus.Message{messages[0], messages[len(messages)-1]} {
		offset := m.Place[strings.LastIndex(m.Place, "/")+1:]
		var err error
		if ends[i], err = strconv.Atoi(offset); err != nil {
			return 0, fmt.Errorf("the offset of %s: %w", m.Place, err)
		}
	}
	markers := ends[1] - ends[0] + 1 - len(messages)
	return markers + 1, nil
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
