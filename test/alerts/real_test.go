package alerts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
)

// scraped is what a bridge exports, by series as written.
type scraped struct {
	at     float64
	values map[string]float64
}

// look scrapes /metrics. Names and labels are checked against the documentation.
func look(t *testing.T, address string, known map[string][]string) scraped {
	t.Helper()
	res, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	out := scraped{at: float64(time.Now().UnixMilli()) / 1000, values: map[string]float64{}}
	decoder := expfmt.SampleDecoder{Dec: expfmt.NewDecoder(res.Body, expfmt.ResponseFormat(res.Header)), Opts: &expfmt.DecodeOptions{}}
	for {
		var samples model.Vector
		if decoder.Decode(&samples) != nil {
			break
		}
		for _, s := range samples {
			name := string(s.Metric["__name__"])
			own, documented := known[name]
			if strings.HasPrefix(name, "kubebridge_") && !documented {
				t.Errorf("%s is exported and not documented", name)
			}
			if !documented {
				continue
			}
			var labels, names []string
			for l, v := range s.Metric {
				if l != "__name__" {
					names = append(names, string(l))
					labels = append(labels, string(l)+"="+strconv.Quote(string(v)))
				}
			}
			slices.Sort(labels)
			slices.Sort(names)
			want := slices.DeleteFunc(slices.Clone(own), func(l string) bool { return l == "" })
			slices.Sort(want)
			if !slices.Equal(names, want) {
				t.Errorf("%s has labels %q, documented are %q", name, names, want)
			}
			out.values[name+"{"+with(strings.Join(labels, ","))+"}"] = float64(s.Value)
		}
	}
	if len(out.values) == 0 {
		t.Fatal("nothing is exported")
	}
	return out
}

// lasting returns an hour of scrapes like the first one, in which ages are constant, followed by half an hour of scrapes like
// the second one, in which timestamps are constant.
func lasting(before, after scraped) []string {
	all := maps.Clone(before.values)
	maps.Copy(all, after.values)
	const turn = 3600
	var out []string
	for s := range all {
		moment := strings.Contains(s, "_timestamp_seconds") || strings.HasPrefix(s, "process_start")
		values := ""
		switch v, ok := before.values[s]; {
		case !ok:
			values = "_x121"
		case moment && !strings.HasPrefix(s, "process_start"):
			values = fmt.Sprintf("%.3f+30x120", v-before.at)
		case math.IsInf(v, 0) || math.IsNaN(v):
			continue
		default:
			values = fmt.Sprintf("%gx120", v)
		}
		switch v, ok := after.values[s]; {
		case !ok:
			values += " _x60"
		case moment && !strings.HasPrefix(s, "process_start"):
			values += fmt.Sprintf(" %.3fx60", turn+v-after.at)
		default:
			values += fmt.Sprintf(" %gx60", v)
		}
		out = append(out, s+" "+values)
	}
	return out
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for: %s", what)
		}
	}
}

// A real bridge that leads exports the metrics that the alerts use, and fires none of them. When its bus is down, it fires
// exactly the alerts about the bus.
func TestRealBridge(t *testing.T) {
	known := exported(t)
	cluster := clustertest.Start(t, clustertest.Options{})
	dir := t.TempDir()
	bus, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: filepath.Join(dir, "nats"), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	bus.Start()
	stopBus := func() { bus.Shutdown(); bus.WaitForShutdown() }
	t.Cleanup(stopBus)
	if !bus.ReadyForConnections(30 * time.Second) {
		t.Fatal("NATS does not start")
	}
	binary := filepath.Join(dir, "bridge")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/bridge")
	build.Dir = filepath.Join("..", "..")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	config := fmt.Sprintf(`{name: audit, cluster: test, kubernetes: {kubeconfig: %q}, resources: [configmaps, namespaces],
  sinks: [{name: live, nats: {url: %q}}], leaderElection: {enabled: true, namespace: default},
  status: {listen: "127.0.0.1:0"}, admin: {socket: %q}, secrets: {values: redact}, log: {format: json}}`,
		cluster.Kubeconfig(), bus.ClientURL(), filepath.Join(dir, "admin"))
	file := filepath.Join(dir, "bridge.yaml")
	logFile := filepath.Join(dir, "log")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(logFile)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	bridge := exec.CommandContext(ctx, binary, "run", "-c", file)
	bridge.Stderr = log
	bridge.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := bridge.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		if err := bridge.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(read(t, logFile))
		}
		http.DefaultClient.CloseIdleConnections()
	})
	address := ""
	await(t, "the status's address", func() bool {
		m := regexp.MustCompile(`"msg":"status listens".*"address":"([^"]+)"`).FindStringSubmatch(read(t, logFile))
		if m != nil {
			address = m[1]
		}
		return m != nil
	})
	sum := func(s scraped, name, label string) (total float64) {
		for series, v := range s.values {
			if strings.HasPrefix(series, name+"{") && strings.Contains(series, label) {
				total += v
			}
		}
		return total
	}
	var well, broken scraped
	await(t, "two collections that watch", func() bool {
		well = look(t, address, known)
		return sum(well, "kubebridge_source_collections", `state="watching"`) == 2 && sum(well, "kubebridge_queue_events", "") == 0 &&
			sum(well, "kubebridge_ready", "") == 1 && sum(well, "kubebridge_leader", "") == 1 && sum(well, "kubebridge_checkpoint_last_commit_timestamp_seconds", "") > 0
	})
	for _, name := range []string{"process_resident_memory_bytes", "process_start_time_seconds", "go_gc_gomemlimit_bytes", "process_cpu_seconds_total", "process_open_fds", "go_goroutines", "go_memstats_heap_inuse_bytes"} {
		if sum(well, name, "") == 0 {
			t.Errorf("%s, of the process, is not exported", name)
		}
	}
	stopBus()
	client, err := rest.HTTPClientFor(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	res, err := client.Post(cluster.RESTConfig().Host+"/api/v1/namespaces", "application/json",
		strings.NewReader(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"waits"}}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusCreated {
		t.Fatalf("a namespace: %s", res.Status)
	}
	await(t, "an event that waits for the bus", func() bool {
		broken = look(t, address, known)
		return sum(broken, "kubebridge_ready", "") == 0 && sum(broken, "kubebridge_sink_up", "") == 0 && sum(broken, "kubebridge_queue_events", "") > 0
	})
	moments := evaluate(t, lasting(well, broken), 59*time.Minute, 85*time.Minute)
	for _, f := range moments[0] {
		t.Errorf("a bridge that is well: %v", f.labels)
	}
	var fires []string
	for _, f := range moments[1] {
		fires = append(fires, f.labels["alertname"])
	}
	slices.Sort(fires)
	if want := []string{"KubebridgeCheckpointOld", "KubebridgeLag", "KubebridgeNotReady", "KubebridgeSinkFailing"}; !slices.Equal(fires, want) {
		t.Errorf("without its bus: %q fire, want %q", fires, want)
	}
}
