package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubebridge/kubebridge/bench/internal/corpus"
	"github.com/kubebridge/kubebridge/bench/internal/mark"
	"github.com/kubebridge/kubebridge/bench/internal/peer"
)

const (
	realObjects = 5000
	realEvents  = 20_000 // maximum number of events; the first event of each object creates it
	realWriters = 16
	// realFilling limits the time for writing events, because kube-apiserver keeps the events of 75 seconds at least, but not of longer.
	realFilling = 50 * time.Second
	realSpace   = "bench"
	markKey     = "bench.kubebridge.io/mark"
)

// apiServer starts kube-apiserver with etcd, as test/cluster builds it. Its kubeconfig
// has the same path as that of the feed.
func (w *world) apiServer() (*process, error) {
	program := w.bench.cluster
	if program == "" {
		out, err := exec.Command("../scripts/cluster.sh").Output()
		if err != nil {
			return nil, fmt.Errorf("build the API server: %w", err)
		}
		program = strings.TrimSpace(string(out))
	}
	p, err := spawn(w.dir, "apiserver", -1, nil, program, "--data-dir="+w.dir)
	if err != nil {
		return nil, err
	}
	err = await(context.Background(), 2*startLimit, "the API server", func() (bool, error) {
		b, err := os.ReadFile(p.log)
		return bytes.Contains(b, []byte("ready server=")), errors.Join(err, p.ended())
	})
	if err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// real measures how fast kube-apiserver sends the events that happened while the bridge
// was stopped: first to a reader that does nothing with them, then to the bridge.
func (b *bench) real(ctx context.Context) error {
	w, err := b.newWorld(setup{program: "bridge", bus: roleKafka, resources: "pods", initial: 1, real: true})
	if err != nil {
		return err
	}
	defer w.close()
	config, err := clientcmd.BuildConfigFromFlags("", w.path("kubeconfig"))
	if err != nil {
		return err
	}
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	f := filler{objects: b.scaled(realObjects)}
	if f.client, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	if f.changes, err = metadata.NewForConfig(config); err != nil {
		return err
	}
	rv, err := f.begin(ctx)
	if err != nil {
		return err
	}
	if err := w.start(); err != nil {
		return err
	}
	if _, err := w.reconciled(ctx, time.Now(), 1); err != nil {
		return err
	}
	before, err := w.arrived(ctx, 1, b.limit)
	if err != nil {
		return err
	}
	w.sut.stop()
	begun := time.Now()
	if w.events, err = f.fill(ctx, b.scaled(realEvents)); err != nil {
		return err
	}
	events := w.events
	fmt.Fprintf(os.Stderr, "%d events written to the API server in %s\n", events, time.Since(begun).Round(time.Second))
	if b.pin {
		if out, err := exec.Command("taskset", "-acp", fmt.Sprint(otherCPU), fmt.Sprint(w.feed.cmd.Process.Pid)).CombinedOutput(); err != nil {
			return fmt.Errorf("pin the API server: %w\n%s", err, out)
		}
	}

	var reading result
	for range 2 { // the first reading only warms up the server
		var read peer.Reading
		cpu := w.feed.cpu()
		reader, err := w.child(testCPU, roleRead, &read, "-kubeconfig", w.path("kubeconfig"), "-rv", rv, "-events", fmt.Sprint(events))
		if err != nil {
			return err
		}
		<-reader.done
		r := result{Name: "Real/replay", Program: roleRead, Due: events, Seen: mark.Stats{Unique: events}, PerSec: read.PerSec}
		r.add(serverCPU, (w.feed.cpu()-cpu)/float64(events)*1e6)
		r.add("frame-bytes", read.Bytes)
		reading = r
	}
	b.report.add(reading)
	if err := errors.Join(w.reset(), w.start()); err != nil {
		return err
	}
	r, err := w.caughtUp(ctx, before, b.limit)
	if err != nil {
		return err
	}
	r.Name, r.Program = "Real/replay", "bridge"
	b.report.add(r)
	return nil
}

// filler writes marked pods to an API server.
type filler struct {
	client  dynamic.Interface
	changes metadata.Interface // answers have only metadata, so they are short
	objects uint64
	pods    []*unstructured.Unstructured
}

// begin creates the object that the bridge reads before it is stopped, and returns its
// resourceVersion.
func (f *filler) begin(ctx context.Context) (rv string, err error) {
	space := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": realSpace}}}
	if _, err := f.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(ctx, space, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	frames, err := corpus.Frames("pods")
	if err != nil {
		return "", err
	}
	for _, frame := range frames {
		var event struct{ Object map[string]any }
		if err := json.Unmarshal(frame, &event); err != nil {
			return "", err
		}
		pod := &unstructured.Unstructured{Object: event.Object}
		for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "ownerReferences"} {
			unstructured.RemoveNestedField(pod.Object, "metadata", field)
		}
		pod.SetNamespace(realSpace)
		f.pods = append(f.pods, pod)
	}
	made, err := f.create(ctx, 0, f.objects)
	if err != nil {
		return "", err
	}
	return made.GetResourceVersion(), nil
}

func marked(seq, object uint64) string {
	b := []byte(mark.Blank)
	mark.Put(b, seq, object, time.UnixMicro(0))
	return string(b)
}

func podResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}

func podName(object uint64) string { return fmt.Sprintf("kb-%08d", object) }

func (f *filler) create(ctx context.Context, seq, object uint64) (*unstructured.Unstructured, error) {
	pod := f.pods[object%uint64(len(f.pods))].DeepCopy()
	pod.SetName(podName(object))
	notes := pod.GetAnnotations()
	if notes == nil {
		notes = map[string]string{}
	}
	notes[markKey] = marked(seq, object)
	pod.SetAnnotations(notes)
	return f.client.Resource(podResource()).Namespace(realSpace).Create(ctx, pod, metav1.CreateOptions{})
}

// fill makes events from number 1 on: n of them, or as many as are possible within
// realFilling. It creates the objects, and then changes each in turn. It returns the
// number of events. Only one writer changes an object, so that its events are in order.
func (f *filler) fill(ctx context.Context, n uint64) (uint64, error) {
	var made atomic.Uint64
	end := time.Now().Add(realFilling)
	group, ctx := errgroup.WithContext(ctx)
	pods := f.changes.Resource(podResource()).Namespace(realSpace)
	for writer := range uint64(realWriters) {
		group.Go(func() error {
			for first := uint64(0); first < n; first += f.objects {
				for object := writer; object < f.objects && first+object < n && time.Now().Before(end); object += realWriters {
					seq := first + object + 1
					var err error
					if first == 0 {
						_, err = f.create(ctx, seq, object)
					} else {
						patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, markKey, marked(seq, object))
						_, err = pods.Patch(ctx, podName(object), types.MergePatchType, patch, metav1.PatchOptions{})
					}
					if err != nil {
						return fmt.Errorf("write event %d: %w", seq, err)
					}
					made.Add(1)
				}
			}
			return nil
		})
	}
	err := group.Wait()
	return made.Load(), err
}
