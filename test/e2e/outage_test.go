package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubebridge/kubebridge/internal/base/spool"
	"github.com/kubebridge/kubebridge/internal/buffer"
	"github.com/kubebridge/kubebridge/pkg/source"
	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// The forms of TestOutage. The defaults are the short form of make test-all; make outage runs the long ones.
var (
	outageFor      = flag.Duration("outage.for", time.Minute, "how long Kafka is stopped, at least")
	outageWrites   = flag.Int("outage.writes", 3000, "writes while Kafka is stopped")
	outageKills    = flag.Int("outage.kills", 3, "times that the bridge is killed, at least 3; the last time while it publishes what was buffered")
	outageRestarts = flag.Int("outage.restarts", 0, "times that an API server restarts and loses its history, fewer than the kills")
	outageServers  = flag.Int("outage.servers", 1, "API servers behind a load balancer, 1 or 2, of which one restarts")
	outageBuffer   = flag.Bool("outage.buffer", true, "the bridge has a disk buffer")
)

// compactEvery is how often etcd is compacted: it keeps the changes of 20 to 40 seconds.
const compactEvery = 20 * time.Second

// Apache Kafka is away for longer than the API server keeps its history, and the bridge is killed again and again. With a disk buffer, every
// change is on the bus in the end, once and in order, and there is no gap. If the API server loses its history meanwhile, what the bridge had
// received is published, and a gap covers the rest, exactly. Without a buffer, a gap covers what was lost.
//
// Core events have no watch cache, so the API server reads their history from etcd. Widgets have one, which a restart of the API server empties. A
// restart is also the end of etcd's history, unless there is another API server, which needs it: then nothing is lost.
func TestOutage(t *testing.T) {
	if *outageServers < 1 || *outageServers > 2 {
		t.Fatalf("-outage.servers=%d: want 1 or 2", *outageServers)
	}
	if *outageKills < 3 || *outageRestarts >= *outageKills-1 {
		t.Fatalf("-outage.kills=%d -outage.restarts=%d: want at least 3 kills, and fewer restarts than kills before the last two", *outageKills, *outageRestarts)
	}
	t.Parallel()
	own := clustertest.Start(t, clustertest.Options{})
	o := &outageRun{world: newWorld(t, options{cluster: own, bus: busApacheKafka}), recorders: map[string]*kube.Recorder{}, restarting: own}
	if *outageServers == 2 {
		o.restarting = clustertest.Start(t, clustertest.Options{Beside: own})
		o.proxyToCluster(o.restarting)
		o.kubeconfig(func(*api.Config) {})
	}
	o.install()
	o.types = []kube.Type{o.widgets, kube.Events}
	o.bridges(o.types...)
	o.config.Resources[1].Types = []string{"added", "modified", "deleted"} // without it, deletions of core Events are not published
	if *outageBuffer {
		o.buffers()
	}
	o.record()
	o.start()
	o.load = o.startLoad(max(1, int(float64(*outageWrites)/outageFor.Seconds())), 1, o.types...)
	o.compact()
	o.load.await(t, int64(*outageWrites/20), o.time())

	began, before := time.Now(), o.load.made.Load()
	o.stopKafka()
	o.logf("Kafka is stopped after %d writes", before)
	o.failing()
	for i := range *outageKills - 1 {
		o.load.await(t, before+int64(*outageWrites*(i+1)/(*outageKills)), o.time())
		if n := *outageRestarts; n > 0 && i*n/(*outageKills-2) != (i+1)*n/(*outageKills-2) && i < *outageKills-2 {
			o.restartAPI()
		} else {
			o.kill(func() { o.write(*outageWrites / *outageKills / 10) })
		}
	}
	o.load.await(t, before+int64(*outageWrites), o.time())
	for !time.Now().After(began.Add(*outageFor)) {
		o.write(1)
	}
	during := o.load.made.Load() - before
	o.startKafka()
	o.logf("Kafka was stopped for %s, with %d writes", time.Since(began).Round(time.Second), during)
	back, had := time.Now(), o.count()
	o.arrived("the first of what was buffered", func(all []bus.Message) bool { return len(all) > had })
	o.logf("%d events are on the bus, of at least %d", o.count(), o.load.made.Load())
	o.kill(func() {})
	o.watching()
	o.logf("watching %s after Kafka's return", time.Since(back).Round(time.Second))
	o.write(*outageWrites / 20)
	o.must(o.load.stop())
	o.judge()
}

// outageRun is one run of TestOutage.
type outageRun struct {
	*world
	types     []kube.Type
	recorders map[string]*kube.Recorder // by collection
	load      *load
	// history is held while the bridge may not have read what the API server has: etcd is not compacted then. Otherwise a bridge that takes
	// long to start on a busy machine would have a gap that is no defect.
	history    sync.Mutex
	oldest     int64                // the revision of the last compaction; guarded by history
	compacted  []string             // when, and at which revision; guarded by history
	restarting *clustertest.Cluster // the API server that restarts
	restarted  int
	away       bool                    // Kafka is stopped
	received   map[string][]kube.Frame // by collection: what was buffered at the last kill before Kafka's return
	ends       map[string][]string     // by collection: where the feed ended, of what was buffered
}

// time bounds each wait that depends on the load.
func (o *outageRun) time() time.Duration { return 3**outageFor + time.Minute }

// await waits until the bridge's status is as wanted.
func (o *outageRun) await(wanted func(bridge.Status) bool) {
	o.t.Helper()
	o.must(o.bridge.Await(o.within(o.time()), wanted))
}

// logf logs with the time of day.
func (o *outageRun) logf(format string, args ...any) {
	o.t.Helper()
	o.t.Logf("%s  %s", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// write waits until the load has made so many more writes.
func (o *outageRun) write(n int) {
	o.t.Helper()
	o.load.await(o.t, o.load.made.Load()+int64(n), o.time())
}

// record starts a recorder for each type.
func (o *outageRun) record() {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, typ := range o.types {
		r := kube.NewRecorder(o.kube, typ)
		o.recorders[o.collection(typ)] = r
		running.Go(func() { r.Run(ctx) })
	}
	o.t.Cleanup(func() { stop(); running.Wait() })
}

// mark writes an object of each type, and waits until the recorders have seen it.
func (o *outageRun) mark() {
	o.t.Helper()
	for _, typ := range o.types {
		_, rv := o.create(typ, fmt.Sprintf("mark-%x", time.Now().UnixNano()))
		o.must(o.recorders[o.collection(typ)].Await(o.soon(), rv))
	}
}

// compact compacts etcd at the revision of 20 seconds before, every 20 seconds.
func (o *outageRun) compact() {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(compactEvery)
		defer tick.Stop()
		var last int64 // the revision of the tick before
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			o.history.Lock()
			now, err := o.cluster.Revision(ctx)
			if err == nil && last > o.oldest {
				err = o.cluster.CompactEtcdAt(ctx, last)
				o.hasCompacted(last)
			}
			o.history.Unlock()
			if err != nil && ctx.Err() == nil {
				o.t.Errorf("compact etcd: %v", err)
			}
			last = now
		}
	})
	o.t.Cleanup(func() { stop(); running.Wait() })
}

// stopKafka cuts the bridge off, waits until Kafka has written the end of every transaction that has ended, and stops the broker. Without
// that order, a single broker may forget the end of a transaction: see [kafkatest.Cluster.Resolved].
func (o *outageRun) stopKafka() {
	o.t.Helper()
	broker := o.apacheKafka.Broker(1)
	broker.Proxy().Refuse()
	for _, typ := range o.types {
		o.must(o.apacheKafka.Resolved(o.soon(), o.topic(typ)))
	}
	o.must(broker.Stop())
	o.away = true
}

func (o *outageRun) startKafka() {
	o.t.Helper()
	broker := o.apacheKafka.Broker(1)
	o.must(broker.Start(o.t.Context()))
	broker.Proxy().Pass()
	o.away = false
}

// topic returns the topic of a type's events.
func (o *outageRun) topic(typ kube.Type) string {
	group := typ.Group
	if group == "" {
		group = "core"
	}
	return "k8s." + o.config.Cluster + "." + group + "." + typ.Resource
}

// hasCompacted notes a compaction. o.history is held.
func (o *outageRun) hasCompacted(revision int64) {
	o.oldest = revision
	o.compacted = append(o.compacted, fmt.Sprintf("%s at %d", time.Now().Format(time.TimeOnly), revision))
}

// failing waits until the bridge has noticed the outage, and buffers what it receives.
func (o *outageRun) failing() {
	o.t.Helper()
	o.history.Lock()
	defer o.history.Unlock()
	o.await(func(s bridge.Status) bool {
		return len(s.Sinks) == 1 && s.Sinks[0].Failing != "" && (!*outageBuffer || o.all(s, "buffered"))
	})
}

// all reports whether every collection has a state.
func (o *outageRun) all(s bridge.Status, state string) bool {
	for _, typ := range o.types {
		if s.Find(o.collection(typ)).State != state {
			return false
		}
	}
	return true
}

// recorded returns how many frames the recorders have seen.
func (o *outageRun) recorded() (n uint64) {
	for _, r := range o.recorders {
		n += uint64(r.Count())
	}
	return n
}

// kill kills the bridge, and starts it again after meanwhile. It returns when the bridge has received what it missed.
func (o *outageRun) kill(meanwhile func()) {
	o.t.Helper()
	o.history.Lock()
	defer o.history.Unlock()
	killed, before := time.Now(), o.recorded()
	o.bridge.Kill()
	if *outageBuffer && o.away {
		o.readBuffer()
	}
	meanwhile()
	started := time.Now()
	o.run()
	missed := o.recorded() - before
	o.await(func(s bridge.Status) bool {
		return !*outageBuffer || s.Buffer != nil && (s.Buffer.Targets == len(o.types) && s.Buffer.Frames >= missed || o.all(s, "watching"))
	})
	o.logf("killed: off for %s; %d frames came meanwhile; the bridge is back after another %s",
		started.Sub(killed).Round(time.Millisecond), missed, time.Since(started).Round(time.Millisecond))
}

// restartAPI restarts an API server, which loses its history. The first time, and every second time after it, the bridge is off meanwhile,
// and some seconds earlier, while objects change: these changes are lost, unless another server has them.
func (o *outageRun) restartAPI() {
	o.t.Helper()
	o.restarted++
	restart := func() {
		if o.restarting != o.cluster {
			o.must(o.restarting.Stop())
			o.write(*outageWrites / *outageKills / 10)
			o.must(o.restarting.Restart(o.t.Context()))
			return
		}
		o.load.pause.Lock()
		defer o.load.pause.Unlock()
		o.must(o.cluster.Stop())
		o.must(o.cluster.Restart(o.t.Context()))
		revision, err := o.cluster.CompactEtcd(o.soon())
		o.must(err)
		o.hasCompacted(revision)
		o.mark()
	}
	o.logf("an API server restarts")
	if o.restarted%2 == 1 {
		o.kill(func() {
			o.write(*outageWrites / *outageKills / 10)
			restart()
		})
		return
	}
	func() {
		o.history.Lock()
		defer o.history.Unlock()
		restart()
	}()
	o.kill(func() {})
}

// watching waits until the sink is in step.
func (o *outageRun) watching() {
	o.t.Helper()
	o.await(func(s bridge.Status) bool {
		return s.Ready && o.all(s, "watching") && s.Sinks[0].Failing == ""
	})
}

// arrived waits until done returns true for the messages on the bus.
func (o *outageRun) arrived(what string, done func([]bus.Message) bool) []bus.Message {
	o.t.Helper()
	all, err := o.log.Wait(o.within(o.time()), done)
	if err != nil {
		o.t.Fatalf("waiting for %s on the bus: %v", what, err)
	}
	return all
}

// readBuffer reads what a bridge that was killed had buffered.
func (o *outageRun) readBuffer() {
	o.t.Helper()
	dir := filepath.Join(o.t.TempDir(), "buffer")
	o.must(os.CopyFS(dir, os.DirFS(o.config.Buffer["path"].(string))))
	s, err := spool.Open(dir, spool.Options{Local: true})
	o.must(err)
	defer s.Close()
	streams := map[string]bool{}
	for _, segment := range s.List() {
		streams[segment.Stream] = true
	}
	o.received, o.ends = map[string][]kube.Frame{}, map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(streams)) {
		o.readRecording(s.Stream(name))
	}
	for _, typ := range o.types {
		if len(o.received[o.collection(typ)]) == 0 {
			o.t.Fatalf("nothing of %s was buffered when the bridge was killed", o.collection(typ))
		}
	}
}

// readRecording reads the frames of a recording.
func (o *outageRun) readRecording(stream *spool.Stream) {
	o.t.Helper()
	reader := stream.Reader(stream.Segments()[0].First)
	defer reader.Close()
	var frames []kube.Frame
	var ends []string
	var resume, collection string
	for {
		raw, err := reader.Next()
		if errors.Is(err, io.EOF) {
			o.received[collection] = append(o.received[collection], frames...)
			o.ends[collection] = append(o.ends[collection], ends...)
			return
		}
		o.must(err)
		if len(raw.Data) == 0 {
			continue
		}
		f, err := buffer.Decode(raw.Data)
		o.must(err)
		if f.Object != nil {
			collection = o.collectionOf(f.Object.Kind)
		}
		switch {
		case f.Kind == source.ListBegun:
			ends = append(ends, f.RV, resume)
		case f.Object != nil && f.Resume != "":
			frames = append(frames, kube.Frame{UID: f.Object.UID, RV: f.Object.ResourceVersion, Deleted: f.Kind == source.Deleted})
		}
		if f.Resume != "" {
			resume = f.Resume
		}
	}
}

func (o *outageRun) collectionOf(kind string) string {
	for _, typ := range o.types {
		if typ.Kind == kind {
			return o.collection(typ)
		}
	}
	return ""
}

// judge waits until the last change of each type is on the bus, and judges everything on it.
func (o *outageRun) judge() {
	o.t.Helper()
	for _, typ := range o.types {
		for range 2 { // the first one may be found by a list
			uid, rv := o.create(typ, fmt.Sprintf("end-%x", time.Now().UnixNano()))
			o.must(o.recorders[o.collection(typ)].Await(o.soon(), rv))
			next := 0
			o.arrived("the last change", func(all []bus.Message) bool {
				from := next
				next = len(all)
				return slices.ContainsFunc(all[from:], func(m bus.Message) bool { return m.UID() == uid })
			})
		}
	}
	all, err := o.log.Messages()
	o.must(err)
	for _, typ := range o.types {
		o.judgeType(typ, all)
	}
}

func (o *outageRun) judgeType(typ kube.Type, all []bus.Message) {
	o.t.Helper()
	id := o.collection(typ)
	rec := o.recorders[id].Recording()
	var mine []bus.Message
	for _, m := range all {
		if m.Collection() == id {
			mine = append(mine, m)
		}
	}
	loses := o.restarted > 0 && o.restarting == o.cluster
	options := check.FrameOptions{Received: o.received[id], NoGap: *outageBuffer && !loses}
	if *outageBuffer && loses {
		options.Ends = append(o.ends[id], "none")
	}
	report := check.Frames(rec, mine, options)
	o.logf("%s: the recorder saw %d frames and has %d holes; %d frames judged, %d of them lost in %d gaps; %d events on the bus; %d frames were buffered at the last kill before Kafka's return",
		id, len(rec.Frames), len(rec.Holes)-1, report.Judged, report.Lost, len(report.Gaps), len(mine), len(o.received[id]))
	for _, g := range report.Gaps {
		o.logf("%s", g)
	}
	objects, _, err := o.kube.List(o.soon(), typ, metav1.ListOptions{})
	o.must(err)
	problems := append(report.Problems, check.State(mine, objects, typ.ResourceID())...)
	problems = append(problems, o.recorderMissed(typ, rec)...)
	if loses && len(report.Gaps) == 0 {
		problems = append(problems, "declared: the API server lost its history, and there is no gap")
	}
	if len(problems) > 0 {
		o.history.Lock()
		o.logf("etcd was compacted: %s", strings.Join(o.compacted, ", "))
		o.history.Unlock()
	}
	o.none(problems, mine)
}

// recorderMissed compares the recording with what the API server acknowledged.
func (o *outageRun) recorderMissed(typ kube.Type, rec kube.Recording) (problems []string) {
	seen := map[string]bool{}
	for _, f := range rec.Frames {
		if !f.Deleted {
			seen[f.UID+"@"+f.RV] = true
		}
	}
	for _, object := range o.kube.Ledger.Objects(typ) {
		for _, rv := range object.RVs {
			if !seen[object.UID+"@"+rv] && rec.Sees(rv) {
				problems = append(problems, fmt.Sprintf("the recorder has not seen version %s of %s", rv, object.Key()))
			}
		}
	}
	return problems
}
