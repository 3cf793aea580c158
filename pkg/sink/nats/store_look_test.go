package nats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

var resetDue = event.KV{Key: checkpoint.ResetKey(), Value: checkpoint.ResetRequested()}

// unknownCluster returns the options of a pipeline whose cluster's UID is not known, as on the command line.
func unknownCluster(url string) StoreOptions {
	id := testIdentity
	id.ClusterUID = ""
	return storeOptions(id, Config{URL: url})
}

// ReadStore does not disturb a running bridge, and reads writes that are only stored in packed form.
func TestLook(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	if _, _, err := ReadStore(t.Context(), unknownCluster(b.url())); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no bucket: %v", err)
	}
	s := mustOpenStore(t, options(b.url()), smallChunks)
	commit(t, s, kv("e/a", "1"), kv("p/pods", "at 1 7"))
	see := func(want ...event.KV) {
		t.Helper()
		seen, id, err := ReadStore(t.Context(), unknownCluster(b.url()))
		if err != nil {
			t.Fatal(err)
		}
		if id != testIdentity || seen.Name() != BucketName(testIdentity) {
			t.Errorf("%s is of %+v", seen.Name(), id)
		}
		wantKeys(t, seen, want...)
		if err := seen.Close(); err != nil {
			t.Error(err)
		}
	}
	see(kv("e/a", "1"), kv("p/pods", "at 1 7"))
	commit(t, s, kv("e/a", "2"))

	changes := map[string][]byte{"p/pods": nil}
	for i := range 30 {
		changes[fmt.Sprintf("e/%02d", i)] = []byte("new")
	}
	redo, err := s.bucket.pack(changes)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.bucket.publish(t.Context(), append(redo, s.bucket.headMessage(len(redo))), false); err != nil {
		t.Fatal(err)
	}
	see(kv("e/a", "2"), kv("e/29", "new"), event.KV{Key: []byte("p/pods")})
}

// A bucket has the identity of its owner: the bucket of another pipeline with a similar name, or of
// another cluster, is neither shown nor reset.
func TestOthersBucketsAreLeftAlone(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	for _, other := range []func(*event.Identity){
		func(id *event.Identity) { id.Cluster, id.ClusterUID = "prod", "uid-of-prod" },
		func(id *event.Identity) { id.Bridge, id.ClusterUID = "bridge.uid-1", "x" },
		func(id *event.Identity) { id.Sink, id.ClusterUID = "x.live", "y" },
	} {
		id := testIdentity
		other(&id)
		commit(t, mustOpenStore(t, storeOptions(id, Config{URL: b.url()})), kv("e/a", "theirs"))
	}
	for name, err := range map[string]error{
		"look":  func() error { _, _, err := ReadStore(t.Context(), unknownCluster(b.url())); return err }(),
		"reset": func() error { return ResetStore(t.Context(), unknownCluster(b.url()), true) }(),
	} {
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "cluster prod (uid-of-prod)") {
			t.Errorf("%s: %v", name, err)
		}
	}
	commit(t, mustOpenStore(t, options(b.url())), kv("e/a", "mine"))
	seen, _, err := ReadStore(t.Context(), unknownCluster(b.url()))
	if err != nil {
		t.Fatal(err)
	}
	wantKeys(t, seen, kv("e/a", "mine"))
	if err := seen.Close(); err != nil {
		t.Error(err)
	}

	twice := testIdentity
	twice.ClusterUID = "rebuilt"
	mustOpenStore(t, storeOptions(twice, Config{URL: b.url()}))
	if err := ResetStore(t.Context(), unknownCluster(b.url()), false); err == nil || !strings.Contains(err.Error(), BucketName(testIdentity)) || !strings.Contains(err.Error(), BucketName(twice)) {
		t.Errorf("two that fit: %v", err)
	}
}

// A reset fences a running bridge, whether or not the content is kept: otherwise a later write of the
// bridge could overwrite the request.
func TestReset(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		damage string // of the head
		empty  bool
		want   error // of Reset without empty
	}{
		{name: "kept"},
		{name: "emptied", empty: true},
		{name: "damaged", damage: "x", empty: true, want: checkpoint.ErrCorrupt},
		{name: "of a newer version", damage: `{"version":99}`, empty: true, want: checkpoint.ErrNewer},
		{name: "of an older version", damage: `{"version":1}`, empty: true, want: checkpoint.ErrOlder},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := startBus(t, nil)
			running := mustOpenStore(t, options(b.url()))
			commit(t, running, kv("e/a", "1"))
			if c.damage != "" {
				b.putKey(t, headToken, c.damage)
			}
			if c.want != nil {
				if err := ResetStore(t.Context(), unknownCluster(b.url()), false); !errors.Is(err, c.want) || !strings.Contains(err.Error(), "`bridge checkpoint reset --sink live`") {
					t.Errorf("Reset of what cannot be read: %v, want %v with the command", err, c.want)
				}
			}
			if err := ResetStore(t.Context(), unknownCluster(b.url()), c.empty); err != nil {
				t.Fatal(err)
			}
			wait(t, "the running bridge to be fenced", func() bool {
				err := running.Commit(context.Background(), []event.KV{kv("e/a", "2")})
				if err == nil {
					t.Fatal("the running bridge could still write")
				}
				return errors.Is(err, checkpoint.ErrFenced)
			})
			want := kv("e/a", "1")
			if c.empty {
				want.Value = nil
			}
			for range 2 { // also after a crash right after the start
				next := mustOpenStore(t, options(b.url()))
				wantKeys(t, next, want, resetDue)
				crash(next)
			}
		})
	}
}
