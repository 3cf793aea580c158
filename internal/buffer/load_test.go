package buffer

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/internal/base/spool"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// What of the buffer cannot be read at a start is in the log, with the cause: otherwise nobody knows why an outage has cost a gap.
func TestLossesAreLogged(t *testing.T) {
	key := []byte("the key of the first start of it")
	cut := func(keep func(size int) int) func(*rig) {
		return func(g *rig) {
			file := g.spool.List()[0].File
			f, err := g.fs.Open(file)
			g.must(err)
			content, err := io.ReadAll(f)
			g.must(err)
			g.must(f.Close())
			f, err = g.fs.Create(file, vfs.WriteCategoryUnspecified)
			g.must(err)
			_, err = f.Write(content[:keep(len(content))])
			g.must(err)
			g.must(f.Close())
		}
	}
	for name, c := range map[string]struct {
		change func(*rig)
		want   string
		stays  bool
	}{
		"another key":     {func(g *rig) { g.o.Key = []byte("the key of the next start, other") }, "written with another hash key", false},
		"no key any more": {func(g *rig) { g.o.Key = nil }, "written with another hash key", false},
		"torn segment":    {cut(func(size int) int { return size - 60 }), "cannot be read", true},
		"headless":        {cut(func(int) int { return 7 }), "header is not whole", false},
		"whole":           {func(*rig) {}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, "10", spool.Options{Key: key})
			g.r.Target.Collection.Resource = "things"
			g.record("added a@11 resume 10")
			g.must(g.r.stream.Flush(true))
			g.must(g.spool.Close())
			c.change(g)
			g.open()
			core, seen := observer.New(zapcore.WarnLevel)
			client, err := source.NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
			g.must(err)
			defer client.Close()
			b := New(Options{Cluster: "a", Spool: g.spool, Client: client, Slots: func() source.Slots { return noSlots{} }, Sinks: []string{"audit"}, Log: zap.New(core)})
			ctx, stop := context.WithCancel(t.Context())
			stop() // nothing is recorded
			b.Load(ctx)
			b.running.Wait()
			var all []string
			for _, e := range seen.All() {
				line := e.Message
				for _, f := range e.Context {
					if err, ok := f.Interface.(error); ok {
						line += ": " + err.Error()
					}
				}
				all = append(all, line)
			}
			text := strings.Join(all, "\n")
			if (c.want == "") != (text == "") || !strings.Contains(text, c.want) || strings.Contains(text, "no frames") {
				t.Errorf("the log says %q, want %q", text, c.want)
			}
			if n := b.State().Targets; (n == 1) != c.stays {
				t.Errorf("%d recordings go on", n)
			}
		})
	}
}

// A start with another hash key deletes only what needs the key: recordings of collections with hidden values.
func TestAnotherKeyKeepsWhatHidesNothing(t *testing.T) {
	g := newRig(t, "10", spool.Options{Key: []byte("the key of the first start of it"), Local: true})
	client, err := source.NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	g.must(err)
	defer client.Close()
	load := func() *Buffer {
		b := New(Options{Cluster: "a", Spool: g.spool, Client: client, Slots: func() source.Slots { return noSlots{} }, Sinks: []string{"audit"}, Log: zaptest.NewLogger(t)})
		ctx, stop := context.WithCancel(t.Context())
		stop() // nothing is recorded
		b.Load(ctx)
		b.running.Wait()
		return b
	}
	b := load()
	targets := map[string]source.Target{}
	for _, name := range []string{"open", "hides", "unknown"} {
		target := things
		target.Collection.Resource = name
		targets[name] = target
		if name != "unknown" {
			b.Hide("audit", target.Collection.ID(), name == "hides")
		}
		_, err := b.Begin("audit", target, Position{Committed: "10", Epoch: 1, Read: "10"})
		g.must(err)
		g.r = b.of("audit", target)[0]
		g.record("added a@11 resume 10")
		g.must(g.r.stream.Flush(true))
	}
	b.running.Wait()
	g.must(g.spool.Close())
	g.o.Key = []byte("the key of the next start, other")
	g.open()
	b = load()
	for name, want := range map[string]int{"open": 1, "hides": 0, "unknown": 0} {
		if n := len(b.of("audit", targets[name])); n != want {
			t.Errorf("%s: %d recordings after a start with another key, want %d", name, n, want)
		}
	}
}
