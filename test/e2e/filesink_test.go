package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// A bridge with a file sink that is killed while it writes and rotates loses no line and leaves no torn line, and events that
// it writes again after the start have the same ids.
func TestFileSinkKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	path := filepath.Join(w.dir, "events.jsonl")
	w.config.Sinks = []bridge.Sink{{Name: "audit", File: map[string]any{"path": path, "maxSize": 256 << 10, "keep": 1000}}}
	large := kube.Fields{"data": map[string]any{"pad": strings.Repeat("x", 8<<10)}}

	for round := range 5 {
		w.start()
		before := w.written(path)
		made := make(chan error, 1)
		ctx := w.soon()
		go func() {
			made <- kube.Each(80, func(i int) error {
				_, err := w.kube.Create(ctx, kube.ConfigMaps, fmt.Sprintf("o-%d-%d", round, i), large)
				return err
			})
		}()
		w.grows(path, before+int64((round+1)*100<<10)) // after the first list: docs/faults.md says what a crash during it costs
		w.bridge.Kill()
		w.must(<-made)
		w.bulkPatch(kube.ConfigMaps, fmt.Sprintf("o-%d", round), "while down", 0, 10)
		w.bulkDelete(kube.ConfigMaps, fmt.Sprintf("o-%d", round), 10, 20)
	}
	w.start()
	w.finishFile(path)

	// The worst case of a crash before a commit: all events since the saved checkpoint are written again.
	checkpoint, saved := filepath.Join(w.dir, "checkpoint", "audit"), filepath.Join(w.dir, "saved")
	w.must(os.CopyFS(saved, os.DirFS(checkpoint)))
	w.start()
	w.bulkPatch(kube.ConfigMaps, "o-0", "again", 20, 40)
	w.finishFile(path)
	w.must(os.RemoveAll(checkpoint))
	w.must(os.Rename(saved, checkpoint))
	w.start()
	w.finishFile(path)

	all, files, err := bus.ReadFiles(path)
	w.must(err)
	if files < 5 {
		t.Errorf("there are %d files: rotation was not tested", files)
	}
	problems := check.History(w.kube.Ledger, all, check.Options{Types: []kube.Type{kube.ConfigMaps}, Repeats: true})
	objects, _, err := w.kube.List(w.soon(), kube.ConfigMaps, metav1.ListOptions{})
	w.must(err)
	w.none(append(problems, check.State(all, objects, kube.ConfigMaps.ResourceID())...), all)
	w.repeated(all, true)
}

// written returns the number of bytes in the file and in the files rotated from it.
func (w *world) written(path string) (bytes int64) {
	w.t.Helper()
	names, err := filepath.Glob(path + "*")
	w.must(err)
	for _, name := range names {
		if info, err := os.Stat(name); err == nil { // else it is being rotated
			bytes += info.Size()
		}
	}
	return bytes
}

// grows waits until more than so many bytes are written.
func (w *world) grows(path string, beyond int64) {
	w.t.Helper()
	ctx := w.soon()
	for w.written(path) <= beyond {
		select {
		case <-ctx.Done():
			w.t.Fatalf("%d bytes are written, waited for more than %d", w.written(path), beyond)
		case <-time.After(time.Millisecond):
		}
	}
}

// finishFile creates one more object, waits for its line, and stops the bridge.
func (w *world) finishFile(path string) {
	w.t.Helper()
	uid, _ := w.create(kube.ConfigMaps, fmt.Sprintf("marker-%x", time.Now().UnixNano()))
	ctx := w.soon()
	for {
		for _, name := range []string{path, path + ".1"} {
			if content, err := os.ReadFile(name); err == nil && bytes.Contains(content, []byte(uid)) {
				w.stop()
				return
			}
		}
		select {
		case <-ctx.Done():
			w.t.Fatalf("uid %s is not in %s", uid, path)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
