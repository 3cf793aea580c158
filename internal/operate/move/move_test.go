package move_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kubebridge/kubebridge/internal/operate/move"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
)

var identity = event.Identity{Bridge: "bridge", Cluster: "test", ClusterUID: "uid-1", Sink: "live"}

// bus opens stores on a real bus.
type bus struct {
	read, claim func(context.Context) (move.Opened, error)
}

func (b bus) Read(ctx context.Context, _ string) (move.Opened, error)  { return b.read(ctx) }
func (b bus) Claim(ctx context.Context, _ string) (move.Opened, error) { return b.claim(ctx) }

var buses = map[string]func(t *testing.T) bus{
	"Kafka": func(t *testing.T) bus {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
		must(t, err)
		t.Cleanup(cluster.Close)
		o := kafka.StoreOptions{Options: kafka.Options{Config: kafka.Config{Brokers: cluster.ListenAddrs()}, Identity: identity}, StandAlone: true}
		return bus{
			func(ctx context.Context) (move.Opened, error) {
				s, _, err := kafka.ReadStore(ctx, o)
				return s, err
			},
			func(ctx context.Context) (move.Opened, error) {
				s, err := kafka.NewStore(o)
				must(t, err)
				return s, s.Load(ctx)
			},
		}
	},
	"NATS": func(t *testing.T) bus {
		srv, err := server.NewServer(&server.Options{
			Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true, DisableJetStreamBanner: true,
		})
		must(t, err)
		srv.Start()
		t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
		if !srv.ReadyForConnections(time.Minute) {
			t.Fatal("the NATS server is not ready")
		}
		options := func() nats.StoreOptions {
			s, err := nats.New(nats.Options{Config: nats.Config{URL: srv.ClientURL()}, Identity: identity})
			must(t, err)
			return nats.StoreOptions{Sink: s.(*nats.Sink)}
		}
		return bus{
			func(ctx context.Context) (move.Opened, error) {
				s, _, err := nats.ReadStore(ctx, options())
				return s, err
			},
			func(ctx context.Context) (move.Opened, error) { return nats.ClaimStore(ctx, options()) },
		}
	},
}

var errKilled = errors.New("killed")

// killer kills the process before its nth write.
type killer struct {
	left int
	dead bool
}

func (k *killer) write(do func() error) error {
	if k.left--; k.left > 0 && !k.dead {
		return do()
	}
	k.dead = true
	return errKilled
}

// mortal is a store of a process that is killed.
type mortal struct {
	move.Opened
	by *killer
}

func (m mortal) Commit(ctx context.Context, changes []event.KV) error {
	return m.by.write(func() error { return m.Opened.Commit(ctx, changes) })
}

// under returns a bus whose writers are killed.
func (b bus) under(k *killer) bus {
	return bus{b.read, func(ctx context.Context) (s move.Opened, err error) {
		err = k.write(func() (err error) {
			s, err = b.claim(ctx)
			return err
		})
		if err != nil && s != nil {
			_ = s.Close()
		}
		return mortal{s, k}, err
	}}
}

// world is a directory and a bus, each of which can have the checkpoint.
type world struct {
	t    *testing.T
	bus  bus
	path string
}

const busName = "the bus"

func (w world) directory() *file.Store {
	s, err := file.Open(w.path, identity, file.Options{})
	must(w.t, err)
	return s
}

// move runs a move as a process that k kills.
func (w world) move(toBus bool, k *killer) error {
	dir := w.directory()
	local := move.End{Store: mortal{dir, k}, Name: "the directory"}
	var err error
	if toBus {
		err = move.ToBus(w.t.Context(), local, w.bus.under(k), busName)
	} else {
		err = move.ToDirectory(w.t.Context(), w.bus.under(k), busName, local)
	}
	must(w.t, dir.Close())
	return err
}

// startOnDirectory returns the content that a bridge finds which starts with the directory; nil: the bridge refuses to
// start.
func (w world) startOnDirectory() map[string]string {
	s := w.directory()
	defer s.Close()
	err := move.Settle(w.t.Context(), move.End{Store: s, Name: "the directory"}, w.bus)
	return w.content(s, err)
}

// startOnBus is startOnDirectory for a bridge that starts with the store on the bus.
func (w world) startOnBus() map[string]string {
	look, err := w.bus.read(w.t.Context())
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}
	}
	must(w.t, err)
	must(w.t, look.Close())
	s, err := w.bus.claim(w.t.Context())
	must(w.t, err)
	defer s.Close()
	return w.content(s, checkpoint.CheckMove(s))
}

func (w world) content(s checkpoint.Store, err error) map[string]string {
	w.t.Helper()
	if errors.Is(err, checkpoint.ErrMoved) {
		return nil
	}
	must(w.t, err)
	all := map[string]string{}
	must(w.t, s.Scan(nil, func(key, value []byte) error {
		if !bytes.HasPrefix(key, []byte("!")) || bytes.Equal(key, checkpoint.MarkKey()) {
			all[string(key)] = string(value)
		}
		return nil
	}))
	return all
}

// original returns the content of a checkpoint that takes several commits to copy.
func original() (changes []event.KV, content map[string]string) {
	content = map[string]string{"n/empty": "", "n/\x00\xff/": "\x00", string(checkpoint.MarkKey()): "where the bus ends", "b/large": strings.Repeat("b", 500<<10)}
	for i := range 2100 {
		content[fmt.Sprintf("o/pods/shop/web-%d", i)] = fmt.Sprint(i)
	}
	for key, value := range content {
		changes = append(changes, event.KV{Key: []byte(key), Value: []byte(value)})
	}
	return changes, content
}

// newWorld returns a world whose checkpoint is in the directory or on the bus.
func newWorld(t *testing.T, start func(*testing.T) bus, onBus bool) (world, map[string]string) {
	w := world{t, start(t), filepath.Join(t.TempDir(), "checkpoint")}
	changes, content := original()
	if !onBus {
		s := w.directory()
		must(t, s.Commit(t.Context(), changes))
		must(t, s.Close())
		return w, content
	}
	s, err := w.bus.claim(t.Context())
	must(t, err)
	must(t, s.Commit(t.Context(), changes))
	must(t, s.Commit(t.Context(), []event.KV{{Key: checkpoint.RunningKey()}}))
	must(t, s.Close())
	return w, content
}

// A move that is killed at any write leaves exactly one of the two stores in force, with the whole content of the
// checkpoint. This does not depend on which store a bridge tries first. The same move completes when it is run again.
func TestKilled(t *testing.T) {
	for name, start := range buses {
		for _, toBus := range []bool{true, false} {
			for _, busFirst := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, to the bus %t, which starts first %t", name, toBus, busFirst), func(t *testing.T) {
					t.Parallel()
					writes := 0
					for dead := true; dead; writes++ {
						k := &killer{left: writes + 1}
						killedMove(t, start, toBus, busFirst, k)
						dead = k.dead
					}
					if writes < 6 {
						t.Errorf("a move has %d writes: it is not what this test is about", writes)
					}
				})
			}
		}
	}
}

func killedMove(t *testing.T, start func(*testing.T) bus, toBus, busFirst bool, k *killer) {
	at := k.left
	w, want := newWorld(t, start, !toBus)
	if err := w.move(toBus, k); errors.Is(err, errKilled) != k.dead || !k.dead && err != nil {
		t.Fatalf("killed at write %d: %v", at, err)
	}
	var onDirectory, onBus map[string]string
	if busFirst {
		onBus, onDirectory = w.startOnBus(), w.startOnDirectory()
	} else {
		onDirectory, onBus = w.startOnDirectory(), w.startOnBus()
	}
	inForce := 0
	for name, got := range map[string]map[string]string{"directory": onDirectory, "bus": onBus} {
		if len(got) == 0 { // the bridge refuses to start, or the store was never used
			continue
		}
		inForce++
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("killed at write %d, the %s (-want +got):\n%.1000s", at, name, diff)
		}
	}
	if inForce != 1 {
		t.Errorf("killed at write %d, the bus first %t: %d stores are in force", at, busFirst, inForce)
	}
	must(t, w.move(toBus, &killer{left: 1000}))
	from, to := w.startOnDirectory(), w.startOnBus()
	if !toBus {
		from, to = to, from
	}
	if diff := cmp.Diff(want, to); diff != "" || from != nil {
		t.Errorf("killed at write %d, run again, refuses at the former place %t (-want +got):\n%.1000s", at, from == nil, diff)
	}
}

// The checkpoint is moved there and back, twice. What was deleted in between does not come back.
func TestBack(t *testing.T) {
	for name, start := range buses {
		t.Run(name, func(t *testing.T) {
			w, want := newWorld(t, start, false)
			for i := range 2 {
				must(t, w.move(true, &killer{left: 1000}))
				gone := fmt.Sprintf("o/pods/shop/web-%d", i)
				delete(want, gone)
				s, err := w.bus.claim(t.Context())
				must(t, err)
				must(t, s.Commit(t.Context(), []event.KV{{Key: []byte(gone)}}))
				must(t, s.Close())
				must(t, w.move(false, &killer{left: 1000}))
			}
			if diff := cmp.Diff(want, w.startOnDirectory()); diff != "" || w.startOnBus() != nil {
				t.Errorf("(-want +got):\n%.1000s", diff)
			}
		})
	}
}

// A store that has another checkpoint is not replaced.
func TestNotVacant(t *testing.T) {
	for name, start := range buses {
		for _, toBus := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, to the bus %t", name, toBus), func(t *testing.T) {
				w, want := newWorld(t, start, true)
				s := w.directory()
				must(t, s.Commit(t.Context(), []event.KV{{Key: []byte("c/pods"), Value: []byte("another")}}))
				must(t, s.Close())
				if err := w.move(toBus, &killer{left: 1000}); err == nil || !strings.Contains(err.Error(), "has a checkpoint already") {
					t.Errorf("the move ends with %v", err)
				}
				if diff := cmp.Diff(want, w.startOnBus()); diff != "" || w.startOnDirectory()["c/pods"] != "another" {
					t.Errorf("it changed something (-want +got):\n%.1000s", diff)
				}
			})
		}
	}
}

// A late write of a killed move is refused after a bridge has started with the directory.
func TestLateWrite(t *testing.T) {
	for name, start := range buses {
		t.Run(name, func(t *testing.T) {
			w, want := newWorld(t, start, false)
			var killed move.Opened // its connection outlives the move
			b := w.bus
			b.claim = func(ctx context.Context) (s move.Opened, err error) {
				killed, err = w.bus.claim(ctx)
				return unclosed{killed}, err
			}
			dir := w.directory()
			err := move.ToBus(t.Context(), move.End{Store: diesLeaving{dir}, Name: "the directory"}, b, busName)
			if !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			must(t, dir.Close())
			arriving, err := checkpoint.ReadMove(killed)
			must(t, err)
			if diff := cmp.Diff(want, w.startOnDirectory()); diff != "" {
				t.Errorf("(-want +got):\n%.1000s", diff)
			}
			arriving.State = checkpoint.Arrived
			if err := killed.Commit(t.Context(), []event.KV{arriving.Change()}); !errors.Is(err, checkpoint.ErrFenced) {
				if err = killed.Commit(t.Context(), []event.KV{arriving.Change()}); !errors.Is(err, checkpoint.ErrFenced) {
					t.Errorf("the late write ends with %v", err)
				}
			}
			if w.startOnBus() != nil {
				t.Error("both are in force")
			}
			_ = killed.Close()
		})
	}
}

type unclosed struct{ move.Opened }

func (unclosed) Close() error { return nil }

// diesLeaving is a directory whose process is killed after it has recorded that the checkpoint is leaving.
type diesLeaving struct{ checkpoint.Store }

func (d diesLeaving) Commit(ctx context.Context, changes []event.KV) error {
	return errors.Join(d.Store.Commit(ctx, changes), errKilled)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
