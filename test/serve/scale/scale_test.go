// Package scale measures how `bridge serve` behaves with many objects, watches and changes, on a real NATS server. make serve-scale runs it at size.
package scale

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// The size. The defaults are the small form of make test-all; make serve-scale runs the large one.
var (
	objects    = flag.Int("scale.objects", 2000, "pods")
	listed     = flag.Int("scale.listed", 1000, "pods of the namespace that is listed")
	namespaces = flag.Int("scale.namespaces", 20, "namespaces of the other pods, which are watched")
	watchers   = flag.Int("scale.watchers", 100, "watches, spread over the namespaces")
	rate       = flag.Int("scale.rate", 200, "changes a second while pods are watched")
	watchFor   = flag.Duration("scale.for", 2*time.Second, "how long pods change")
	slice      = flag.Int("scale.slice", 0, "publish so many pods at a time, let serve read them while nothing else runs, and remove them from the bus: for a disk that does not have room for the bus and the copy; 0: all at once")
	out        = flag.String("scale.out", "", "file for the result")
	commit     = flag.String("scale.commit", "", "commit that is measured, for the result")
)

const (
	pageSize  = 500
	listTimes = 5
	idleLimit = 2 * time.Minute
	// busLimit are the events for which the time of a first read is computed.
	busLimit = 100_000_000
)

// The limits of the product, which are for a million objects.
const (
	startLimit  = 5 * time.Second
	memoryLimit = 2 << 30
	listLimit   = 500 * time.Millisecond
)

// result is what was measured. Times are in seconds.
type result struct {
	Commit string    `json:"commit,omitzero"`
	Time   time.Time `json:"time"`
	CPUs   int       `json:"cpus"`
	// Load says what was measured.
	Load struct {
		Objects, Namespaces, Watchers, Rate int
		Seconds                             float64
		ObjectBytes                         int64 // of an event of an object, on average
		ListedObjects                       int
	} `json:"load"`
	BusBytes  int64 `json:"busBytes"` // on disk, compressed; of the last slice
	CopyBytes int64 `json:"copyBytes"`
	FirstRead struct {
		Seconds, CPU, EventsPerSecond float64
		HoursFor100M                  float64
		MemoryPeak                    int64
	} `json:"firstRead"`
	Start struct {
		FirstAnswer, Ready, CPU float64 // after kill -9
		Memory                  int64
	} `json:"start"`
	List struct {
		Median, Slowest, CPU float64
		Bytes                int64
		Label                float64 // the same number of pods, selected by a label among all
		LabelObjects         int
	} `json:"list"`
	Watch struct {
		Opened              float64 // until all watches were open
		Published, Received int
		Seconds             float64 // from the first change to the last one that was received
		CPU                 float64 // CPUs of bridge serve
		P50, P99, Max       float64 // from before a change is written to the bus until a watcher has it
		Memory, MemoryPeak  int64
	} `json:"watch"`
	Missed []string `json:"limitsNotMet"`
}

// A copy of many pods is complete and fast to start from, to list and to watch: no watcher misses a change or receives one twice or out of order.
func TestScale(t *testing.T) {
	if *listed >= *objects || *namespaces < 1 || *watchers < 1 || *rate < 1 {
		t.Fatal("-scale.listed must be lower than -scale.objects, and the other numbers at least 1")
	}
	m := &measurement{TB: t, pods: newPods(t, *listed, *namespaces)}
	dir := t.TempDir()
	m.bus = newBus(t, dir, m.pods)
	m.serve = newServed(t, dir, m.bus.server.ClientURL(), "--max-connections", fmt.Sprint(2**watchers+64))
	r := &m.result
	r.Commit, r.Time, r.CPUs = *commit, time.Now().UTC().Truncate(time.Second), runtime.NumCPU()
	r.Load.Objects, r.Load.Namespaces, r.Load.Watchers, r.Load.Rate, r.Load.Seconds = *objects, *namespaces, *watchers, *rate, watchFor.Seconds()
	r.Load.ListedObjects = *listed
	for _, step := range []func(){m.read, m.restart, m.list, m.listByLabel, m.watch, m.judge} {
		step()
		if t.Failed() {
			return
		}
	}
}

// measurement is one run of the test.
type measurement struct {
	testing.TB
	pods   *pods
	bus    *bus
	serve  *served
	result result
}

func (m *measurement) must(err error) {
	if err != nil {
		m.Helper()
		m.Fatal(err)
	}
}

// read publishes all pods and lets serve read them for the first time.
func (m *measurement) read() {
	r := &m.result
	step := *objects
	if *slice > 0 {
		step = min(*slice, *objects)
	}
	m.bus.gap()
	var took, cpu time.Duration
	for from := 0; from < *objects; from += step {
		to := min(from+step, *objects)
		m.bus.list(from, to)
		if to == *objects {
			m.bus.sync()
		}
		if from > 0 {
			m.serve.kill()
		}
		began := m.serve.start()
		m.serve.ready()
		took += time.Since(began)
		cpu += m.serve.cpu()
		_, peak := m.serve.memory()
		r.FirstRead.MemoryPeak = max(r.FirstRead.MemoryPeak, peak)
		r.BusBytes = diskBytes(m.bus.dir)
		m.Logf("read %d pods in %s: %.0f events/s, peak of memory %s, bus %s, copy %s", to, took.Round(time.Millisecond), float64(m.bus.events)/took.Seconds(),
			mega(peak), mega(r.BusBytes), mega(diskBytes(m.serve.data)))
		if *slice > 0 {
			m.bus.purge()
		}
	}
	r.FirstRead.Seconds, r.FirstRead.CPU = took.Seconds(), cpu.Seconds()
	r.FirstRead.EventsPerSecond = float64(m.bus.events) / took.Seconds()
	r.FirstRead.HoursFor100M = busLimit / r.FirstRead.EventsPerSecond / 3600
	r.CopyBytes = diskBytes(m.serve.data)
	r.Load.ObjectBytes = m.bus.bytes / int64(m.bus.events)
}

const allPods = "/api/v1/pods"

func podsOf(namespace string) string { return "/api/v1/namespaces/" + namespace + "/pods" }

// restart measures how long it takes after kill -9 until lists are answered.
func (m *measurement) restart() {
	m.serve.kill()
	began := m.serve.start()
	m.serve.until("the first list", func() error {
		_, err := m.serve.get(allPods + "?limit=1")
		return err
	})
	m.result.Start.FirstAnswer = time.Since(began).Seconds()
	m.serve.ready()
	m.result.Start.Ready = time.Since(began).Seconds()
	m.result.Start.CPU = m.serve.cpu().Seconds()
	m.result.Start.Memory, _ = m.serve.memory()
}

// pages reads a list in pages, and returns its items and bytes.
func (m *measurement) pages(path string, query url.Values) (items int, size int64) {
	m.Helper()
	query.Set("limit", fmt.Sprint(pageSize))
	var memory bytes.Buffer
	for {
		text, err := m.serve.getInto(&memory, path+"?"+query.Encode())
		m.must(err)
		size += int64(len(text))
		items += bytes.Count(text, []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":`))
		end := text[max(0, len(text)-1024):] // of the list
		end = end[bytes.LastIndex(end, []byte(`"metadata":`)):]
		var list struct{ Metadata struct{ Continue string } }
		m.must(json.Unmarshal(append([]byte{'{'}, end...), &list))
		if list.Metadata.Continue == "" {
			return items, size
		}
		query.Set("continue", list.Metadata.Continue)
	}
}

func (m *measurement) list() {
	var all []time.Duration
	cpu := m.serve.cpu()
	for range listTimes {
		began := time.Now()
		n, size := m.pages(podsOf(podListed), url.Values{})
		all = append(all, time.Since(began))
		if n != *listed {
			m.Fatalf("a list has %d pods, want %d", n, *listed)
		}
		m.result.List.Bytes = size
	}
	m.result.List.CPU = (m.serve.cpu() - cpu).Seconds() / listTimes
	m.result.List.Median, m.result.List.Slowest = quantile(all, 0.5).Seconds(), quantile(all, 1).Seconds()
}

func (m *measurement) listByLabel() {
	want := min(teamPods, *objects)
	began := time.Now()
	n, _ := m.pages(allPods, url.Values{"labelSelector": {"team=" + m.pods.team(0)}})
	m.result.List.Label, m.result.List.LabelObjects = time.Since(began).Seconds(), n
	if n != want {
		m.Fatalf("a list by label has %d pods, want %d", n, want)
	}
}

// watch opens the watches and changes pods of the watched namespaces at the rate.
func (m *measurement) watch() {
	r := &m.result.Watch
	all := make([]*changes, *namespaces)
	for i := range all {
		all[i] = &changes{}
	}
	ctx, cancel := context.WithCancel(m.Context())
	var opened, ended sync.WaitGroup
	defer ended.Wait()
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: time.Minute}).DialContext, DisableCompression: true}}
	defer client.CloseIdleConnections()
	var received atomic.Int64
	list := make([]*watcher, *watchers)
	failed := make(chan error, *watchers)
	opening := make(chan struct{}, 64)
	from := m.bus.version
	began := time.Now()
	for i := range list {
		list[i] = &watcher{namespace: namespaceOf(i % *namespaces), changes: all[i%*namespaces]}
		opened.Add(1)
		opening <- struct{}{}
		ended.Go(func() {
			done := sync.OnceFunc(func() { opened.Done(); <-opening })
			defer done()
			err := list[i].run(ctx, client, fmt.Sprintf("%s%s?watch=true&resourceVersion=%d", m.serve.url, podsOf(list[i].namespace), from), done, func() { received.Add(1) })
			if ctx.Err() == nil {
				failed <- err
			}
		})
	}
	opened.Wait()
	r.Opened = time.Since(began).Seconds()
	cpu := m.serve.cpu()
	began = time.Now()
	m.change(all, began)
	expected := 0
	for i := range list {
		expected += list[i].changes.len()
	}
	m.await(&received, int64(expected), failed)
	took := time.Since(began)
	r.CPU = (m.serve.cpu() - cpu).Seconds() / took.Seconds()
	r.Memory, r.MemoryPeak = m.serve.memory()
	cancel()
	ended.Wait()
	var latencies []time.Duration
	for _, w := range list {
		if w.received != w.changes.len() && !m.Failed() {
			m.Errorf("a watch of %s has received %d changes of %d", w.namespace, w.received, w.changes.len())
		}
		latencies = append(latencies, w.latencies...)
	}
	r.Received, r.Seconds = len(latencies), took.Seconds()
	r.P50, r.P99, r.Max = quantile(latencies, 0.5).Seconds(), quantile(latencies, 0.99).Seconds(), quantile(latencies, 1).Seconds()
}

// change publishes changes at the rate, in the order in which watchers must see them.
func (m *measurement) change(all []*changes, began time.Time) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	chosen := rand.New(rand.NewPCG(1, 2))
	total := int(float64(*rate) * watchFor.Seconds())
	for published := 0; published < total; {
		<-tick.C
		due := min(total, int(time.Since(began).Seconds()*float64(*rate)))
		var records []event.Record
		for now := time.Now(); published < due; published++ {
			i := *listed + chosen.IntN(*objects-*listed)
			records = append(records, m.bus.pod(i, event.Modified, event.Watch))
			all[i%*namespaces].add(m.bus.version, now)
			if len(records) == batchEvents {
				m.bus.write(records)
				records = nil
			}
		}
		if len(records) > 0 {
			m.bus.write(records)
		}
	}
	m.result.Watch.Published = total
}

// await waits until so many changes were received. It fails if a watch ends, or none is received for a while.
func (m *measurement) await(received *atomic.Int64, expected int64, failed <-chan error) {
	m.Helper()
	tick, before, since := time.NewTicker(5*time.Millisecond), received.Load(), time.Now()
	defer tick.Stop()
	for now := before; now < expected; now = received.Load() {
		if now > before {
			before, since = now, time.Now()
		}
		if time.Since(since) > idleLimit {
			m.Errorf("watches have received %d changes of %d, and none for %s", now, expected, idleLimit)
			return
		}
		select {
		case err := <-failed:
			m.Fatalf("a watch has ended: %v", err)
		case <-tick.C:
		}
	}
}

// judge prints what was measured, and which limits are not met.
func (m *measurement) judge() {
	r := &m.result
	miss := func(is bool, format string, args ...any) {
		if is {
			r.Missed = append(r.Missed, fmt.Sprintf(format, args...))
		}
	}
	peak := max(r.FirstRead.MemoryPeak, r.Watch.MemoryPeak)
	miss(r.Start.Ready > startLimit.Seconds(), "start: %.1f s, limit %s", r.Start.Ready, startLimit)
	miss(peak > memoryLimit, "memory: %s at most, limit %s", mega(peak), mega(memoryLimit))
	miss(r.List.Median > listLimit.Seconds(), "list: %.2f s, limit %s", r.List.Median, listLimit)
	line := func(what, format string, args ...any) { m.Logf("%-34s %s", what, fmt.Sprintf(format, args...)) }
	line("objects", "%d, %d bytes each", r.Load.Objects, r.Load.ObjectBytes)
	line("on disk", "copy %s, bus %s", mega(r.CopyBytes), mega(r.BusBytes))
	line("first read", "%.1f s, %.0f events/s, %.2f ms of CPU each, at most %s of memory", r.FirstRead.Seconds, r.FirstRead.EventsPerSecond,
		1000*r.FirstRead.CPU/float64(r.Load.Objects), mega(r.FirstRead.MemoryPeak))
	line("first read of 100 million events", "%.1f hours, at this rate", r.FirstRead.HoursFor100M)
	line("start after kill -9", "first list after %.2f s, ready after %.2f s, %.2f s of CPU, %s of memory", r.Start.FirstAnswer, r.Start.Ready, r.Start.CPU, mega(r.Start.Memory))
	line(fmt.Sprintf("list of %d in pages of %d", r.Load.ListedObjects, pageSize), "median %.2f s, slowest of %d %.2f s, %.2f s of CPU, %s", r.List.Median, listTimes, r.List.Slowest, r.List.CPU, mega(r.List.Bytes))
	line(fmt.Sprintf("the same by label, %d objects", r.List.LabelObjects), "%.2f s", r.List.Label)
	line(fmt.Sprintf("%d watches", r.Load.Watchers), "open after %.1f s, %s of memory, at most %s", r.Watch.Opened, mega(r.Watch.Memory), mega(r.Watch.MemoryPeak))
	line(fmt.Sprintf("%d changes at %d/s", r.Watch.Published, r.Load.Rate), "%d received in %.1f s, none missed, repeated or out of order", r.Watch.Received, r.Watch.Seconds)
	line("from bus to watcher", "median %.2f s, 99%% %.2f s, at most %.2f s", r.Watch.P50, r.Watch.P99, r.Watch.Max)
	line("CPUs of bridge serve meanwhile", "%.2f", r.Watch.CPU)
	for _, text := range r.Missed {
		line("LIMIT NOT MET", "%s", text)
	}
	if *out == "" {
		return
	}
	text, err := json.MarshalIndent(r, "", "  ")
	m.must(err)
	m.must(os.MkdirAll(filepath.Dir(*out), 0o755))
	m.must(os.WriteFile(*out, append(text, '\n'), 0o644))
}

func mega(n int64) string { return fmt.Sprintf("%.0f MB", float64(n)/1e6) }
