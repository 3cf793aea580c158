package nats

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/kubebridge/kubebridge/pkg/checkpoint/checkpointtest"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/sinktest"
)

// serverEnv makes this program a NATS server. Its value is the port and, behind a comma, the data directory.
const serverEnv = "KUBEBRIDGE_TEST_NATS_SERVER"

func TestMain(m *testing.M) {
	if where := os.Getenv(serverEnv); where != "" {
		port, dir, _ := strings.Cut(where, ",")
		serve(port, dir)
	}
	checkpointtest.Main(m, open, serverGoroutines()...)
}

// serverGoroutines lists the server's goroutines that may be left: while it shuts down, the server ignores a stream that is
// being created.
func serverGoroutines() []goleak.Option {
	const server = "github.com/nats-io/nats-server/v2/server"
	return []goleak.Option{goleak.IgnoreAnyFunction(server + ".(*fileStore).flushStreamStateLoop"), goleak.IgnoreAnyFunction(server + "/ats.Register.func1")}
}

// serve runs a server until it is killed.
func serve(port, dir string) {
	number, err := strconv.Atoi(port)
	if err == nil {
		var srv *server.Server
		srv, err = server.NewServer(&server.Options{
			Host: "127.0.0.1", Port: number, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true, DisableJetStreamBanner: true,
		})
		if err == nil {
			srv.Start()
			srv.WaitForShutdown()
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// process is a server in its own process, which can be paused and killed.
type process struct {
	dir string
	bus bus // for its url, client and read
	cmd *exec.Cmd
}

func startProcess(t *testing.T) *process {
	t.Helper()
	p := &process{dir: t.TempDir()}
	p.bus.opts.Port = freePort(t)
	p.start(t)
	t.Cleanup(p.kill)
	return p
}

func (p *process) start(t *testing.T) {
	t.Helper()
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d,%s", serverEnv, p.bus.opts.Port, p.dir))
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wait(t, "the server's process", func() bool {
		nc, err := nats.Connect(p.bus.url())
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // it was killed
}

// A server is killed and started again repeatedly while the bridge writes. It has everything that it acknowledged, and nothing
// twice.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	for _, delivery := range []string{exactlyOnce, atLeastOnce} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel()
			p := startProcess(t)
			s := newAny(t, testIdentity, Config{URL: p.bus.url(), Delivery: delivery})
			mustOpen(t, s, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var acked atomic.Uint64
			ended := make(chan error, 1)
			go func() { ended <- writeAll(ctx, s, &acked) }()
			for range 3 {
				before := acked.Load()
				wait(t, "batches to be acknowledged", func() bool { return acked.Load() > before+2 || len(ended) > 0 })
				p.kill()
				p.start(t)
			}
			before := acked.Load()
			wait(t, "batches to be acknowledged", func() bool { return acked.Load() > before+2 || len(ended) > 0 })
			cancel()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			var all []*event.Batch
			for seq := range acked.Load() {
				all = append(all, spread(seq+1, 300, 50))
			}
			msgs := p.bus.read(t)
			// The batch that was being written at the end may be there as well.
			next := fmt.Sprintf("%d/", len(all)+1)
			msgs = slices.DeleteFunc(msgs, func(m sinktest.Message) bool { return strings.HasPrefix(values([]sinktest.Message{m}), next) })
			if n := perSubject(t, msgs, all...); n > 0 {
				t.Errorf("%d messages are there twice", n)
			}
			_ = s.Close()
		})
	}
}

// writeAll writes batches like a pipeline, until ctx ends.
func writeAll(ctx context.Context, s sink.Sink, acked *atomic.Uint64) error {
	for seq := uint64(1); ; seq++ {
		if err := writeUntilDone(ctx, s, spread(seq, 300, 50)); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		acked.Store(seq)
	}
}
