// Package peer has the programs that the bridge is compared with. Raw does the
// minimum: it lists, watches, copies the bytes of each object into an event, and
// sends the event. It drops managedFields, but has no filters and no checkpoint, and
// does not handle failures. Dynamic does what most programs do: it encodes the objects
// of the dynamic client with json.Marshal.
package peer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// readBuffer is the size of the buffer for reading a watch, in bytes.
const readBuffer = 256 << 10

// getter returns a function that sends a query for a resource of the core group, and
// returns the body of the answer.
func getter(ctx context.Context, config *rest.Config, resource string) (func(query string) (io.ReadCloser, error), error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	return func(query string) (io.ReadCloser, error) {
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/api/v1/"+resource+"?"+query, nil)
		if err != nil {
			return nil, err
		}
		a, err := transport.RoundTrip(q)
		if err == nil && a.StatusCode != http.StatusOK {
			err = errors.Join(errors.New(a.Status), a.Body.Close())
		}
		if err != nil {
			return nil, fmt.Errorf("get %s: %w", resource, err)
		}
		return a.Body, nil
	}, nil
}

// Reading is the result of [Read].
type Reading struct {
	PerSec float64 // events per second, from the first event to the last
	Bytes  float64 // average size of a frame
}

// Read reads n events of a resource of the core group after the resourceVersion rv.
// It does nothing with them, to measure how fast a server can be read.
func Read(ctx context.Context, config *rest.Config, resource, rv string, n uint64) (r Reading, err error) {
	get, err := getter(ctx, config, resource)
	if err != nil {
		return r, err
	}
	body, err := get("watch=1&resourceVersion=" + rv)
	if err != nil {
		return r, err
	}
	defer body.Close()
	in := bufio.NewReaderSize(body, readBuffer)
	var begun time.Time
	for i := range n {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return r, fmt.Errorf("read the watch: %w", err)
		}
		if bytes.HasPrefix(line, []byte(`{"type":"ERROR"`)) {
			return r, fmt.Errorf("read the watch: %s", line)
		}
		if i == 0 {
			begun = time.Now()
		}
		r.Bytes += float64(len(line)) / float64(n)
	}
	r.PerSec = float64(n-1) / time.Since(begun).Seconds()
	return r, nil
}

// Raw watches a resource of the core group and sends its events until ctx is cancelled.
func Raw(ctx context.Context, config *rest.Config, resource string, to Sender) error {
	get, err := getter(ctx, config, resource)
	if err != nil {
		return err
	}
	body, err := get("limit=1")
	if err != nil {
		return err
	}
	var list struct{ Metadata metav1.ListMeta }
	err = json.NewDecoder(body).Decode(&list)
	if err := errors.Join(err, body.Close()); err != nil {
		return fmt.Errorf("list: %w", err)
	}
	if body, err = get("watch=1&allowWatchBookmarks=true&resourceVersion=" + list.Metadata.ResourceVersion); err != nil {
		return err
	}
	defer body.Close()
	buffers := sync.Pool{New: func() any { return new([]byte) }}
	in := bufio.NewReaderSize(body, readBuffer)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("read the watch: %w", err)
		}
		f, err := scan(line)
		if err != nil {
			return err
		}
		if string(f.typ) == "BOOKMARK" {
			continue
		}
		p := buffers.Get().(*[]byte)
		b := append((*p)[:0], f.uid...)
		b = f.appendEvent(b, line, time.Now().UTC().AppendFormat(nil, time.RFC3339Nano))
		*p = b
		if err := to.Send(ctx, b[:len(f.uid)], b[len(f.uid):], func() { buffers.Put(p) }); err != nil {
			return err
		}
	}
}

// Dynamic watches a resource of the core group and sends its events until ctx is
// cancelled.
func Dynamic(ctx context.Context, config *rest.Config, resource string, to Sender) error {
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	client := d.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource})
	list, err := client.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	w, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), AllowWatchBookmarks: true})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		u, ok := e.Object.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("the watch ends: %v", e.Object)
		}
		if e.Type == watch.Bookmark {
			continue
		}
		u.SetManagedFields(nil)
		b, err := json.Marshal(map[string]any{
			"specversion": "1.0", "id": string(u.GetUID()) + ":" + u.GetResourceVersion(), "source": "/clusters/bench",
			"type":    "io.kubebridge.resource." + strings.ToLower(string(e.Type)) + ".v1",
			"subject": u.GetNamespace() + "/" + u.GetName(), "time": time.Now().UTC().Format(time.RFC3339Nano),
			"kind": u.GetKind(), "apiversion": u.GetAPIVersion(), "datacontenttype": "application/json", "data": map[string]any{"object": u.Object},
		})
		if err != nil {
			return err
		}
		if err := to.Send(ctx, []byte(u.GetUID()), b, func() {}); err != nil {
			return err
		}
	}
	return errors.New("the watch has ended")
}
