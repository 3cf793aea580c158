package buffer

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/zap/zaptest"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/internal/base/spool"
	"github.com/kubebridge/kubebridge/internal/core/feed"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// A collection that may no longer be buffered from the moment in which its recording begins leaves nothing on the disk.
func TestForbiddenWhileItBegins(t *testing.T) {
	files, err := spool.Open("buffer", spool.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	client, err := source.NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	log := zaptest.NewLogger(t)
	b := &backlog{collection: "secrets", Sink: NewSink(New(Options{
		Spool: files, Client: client, Slots: func() source.Slots { return feed.NewLists(1).Slots() }, Log: log,
	}), "audit", log)}
	ctx, cancel := context.WithCancel(t.Context())
	b.buffer.Load(ctx)
	var running sync.WaitGroup
	running.Go(func() { b.buffer.Run(ctx) })
	target := source.Target{Collection: event.Collection{Resource: "secrets"}, Resource: source.Resource{Version: "v1", Name: "secrets", Kind: "Secret"}}
	use, err := b.begin(target, Position{Committed: "10", Read: "10"})
	if use != nil || err != nil {
		t.Errorf("a recording began: %v, %v", use, err)
	}
	if n := b.buffer.State().Targets; n != 0 || len(files.List()) > 0 {
		t.Errorf("%d recordings, and segments %v", n, files.List())
	}
	cancel()
	running.Wait()
	if err := files.Close(); err != nil {
		t.Error(err)
	}
}

// After the API server has forgotten a committed position, a sink that goes on committing does not begin a recording, and cause a list, at each
// of the positions that it commits.
func TestRecordFrom(t *testing.T) {
	for _, c := range []struct{ forgotten, readThen, committed, want string }{
		{"", "", "10", "10"},
		{"10", "50", "10", "60"},
		{"10", "50", "20", "60"}, // the API server may have forgotten this one, too
		{"10", "50", "50", "50"},
		{"10", "50", "55", "55"},
		{"a", "c", "a", "60"},
		{"a", "c", "b", "b"}, // what is no number does not compare
	} {
		b := &backlog{forgotten: c.forgotten, readThen: c.readThen}
		if got := b.recordFrom(Position{Committed: c.committed, Read: "60"}); got != c.want {
			t.Errorf("committed %s, after %s was forgotten with everything up to %s read: from %s, want %s", c.committed, c.forgotten, c.readThen, got, c.want)
		}
	}
}

// A disk that cannot be read for a moment costs no gap: the recording is found, and read, a moment later. A disk that cannot be read at all does not
// keep the sink from reading, and what is on it is not replaced.
func TestDiskThatCannotBeRead(t *testing.T) {
	for _, c := range []struct {
		name  string
		lasts time.Duration
		takes time.Duration
		found bool
		next  error // of a recording that has no frame yet
	}{
		{"for a moment", 2500 * time.Millisecond, 3 * time.Second, true, io.EOF},
		{"for long", time.Hour, readFor, false, ErrEnd},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var until time.Time
				files, err := spool.Open("buffer", spool.Options{FS: errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
					if op.Kind == errorfs.OpOpen && time.Now().Before(until) {
						return syscall.EMFILE
					}
					return nil
				}))})
				if err != nil {
					t.Fatal(err)
				}
				client, err := source.NewClient(&rest.Config{Host: "http://nowhere", Dial: func(context.Context, string, string) (net.Conn, error) {
					return nil, errors.New("there is no API server")
				}})
				if err != nil {
					t.Fatal(err)
				}
				log := zaptest.NewLogger(t)
				var state source.Phase
				b := &backlog{collection: "pods", onState: func(s source.State) { state = s.Phase }, Sink: NewSink(New(Options{
					Spool: files, Client: client, Slots: func() source.Slots { return feed.NewLists(1).Slots() }, Log: log,
				}), "audit", log)}
				ctx, cancel := context.WithCancel(t.Context())
				b.buffer.Load(ctx)
				var running sync.WaitGroup
				running.Go(func() { b.buffer.Run(ctx) })
				target := source.Target{Collection: event.Collection{Resource: "pods"}, Resource: source.Resource{Version: "v1", Name: "pods", Kind: "Pod"}}
				at := Position{Committed: "10", Read: "10"}
				use, err := b.buffer.Begin("audit", target, at)
				if err != nil {
					t.Fatal(err)
				}

				begun := time.Now()
				until = begun.Add(c.lasts)
				_, err = (&replay{backlog: b, use: use}).next(ctx)
				if took := time.Since(begun); !errors.Is(err, c.next) || took != c.takes || state != source.Buffered {
					t.Errorf("next: %v after %s, in phase %q", err, took, state)
				}
				if err := use.Suspend(); err != nil {
					t.Fatal(err)
				}

				begun = time.Now()
				until = begun.Add(c.lasts)
				found, err := b.find(ctx, target, at)
				if took := time.Since(begun); (found != nil) != c.found || err != nil || took != c.takes || b.refused == c.found || state != source.Waiting {
					t.Errorf("found: %t after %s, refused: %t, %v", found != nil, took, b.refused, err)
				}
				if n := b.buffer.State().Targets; n != 1 {
					t.Errorf("there are %d recordings", n)
				}
				if found != nil {
					if err := found.Suspend(); err != nil {
						t.Error(err)
					}
				}
				cancel()
				running.Wait()
				client.Close()
				if err := files.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
