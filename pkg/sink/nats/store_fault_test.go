package nats

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// A replicated bucket whose leader steps down, is killed and comes back while it is
// written to: everything for which a commit returned is there, whichever server leads.
func TestClusterBucket(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three servers")
	}
	t.Parallel()
	nodes := startCluster(t)
	o := storeOptions(testIdentity, Config{URL: urls(nodes), Stream: Stream{Replicas: 3}})
	var s *Store
	wait(t, "the bucket", func() bool {
		opened, err := openStore(o)
		s = opened
		return err == nil
	})
	t.Cleanup(func() { _ = s.Close() }) // the error of an unsuccessful last write is logged
	stream, _ := bucketStream(BucketName(testIdentity))
	leader := func() *bus { return leaderOf(nodes, stream) }
	js := client(t, urls(nodes))
	var all []event.KV
	n := 0
	write := func() {
		t.Helper()
		for range 3 {
			all = all[:0]
			for i := range 50 {
				all = append(all, kv(fmt.Sprintf("e/%03d", (n*17+i)%200), fmt.Sprint(n)))
			}
			n++
			all = append(all, kv("p/pods", fmt.Sprint(n)))
			wait(t, "a commit", func() bool { return s.Commit(t.Context(), all) == nil })
		}
	}
	write()
	for range 2 {
		stepDown(t, js, stream)
		write() // while there may be no leader
	}
	wait(t, "a leader", func() bool { return leader() != nil })
	dead := leader()
	dead.stop()
	write()
	dead.start(t)
	write()
	want := append(all, event.KV{Key: checkpoint.ResetKey()})
	crash(s)
	wait(t, "the successor to load", func() bool {
		next, err := openStore(o)
		if err != nil {
			return false
		}
		wantKeys(t, next, want...)
		return next.Close() == nil
	})
}

// If the bridge's user may not write to the bucket, the error names the subject in one
// line, and the bridge continues when the permission is granted.
func TestDeniedBucket(t *testing.T) {
	t.Parallel()
	users := func(deny ...string) []*server.User {
		return []*server.User{{Username: "bridge", Password: "b", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: deny}}}}
	}
	denied := "$KV." + BucketName(testIdentity) + ".p=2Fpods"
	b := startBus(t, func(o *server.Options) { o.Users = users("$KV.>") })
	o := options("nats://bridge:b@" + strings.TrimPrefix(b.url(), "nats://"))
	allow := func(users []*server.User) {
		t.Helper()
		reloaded := b.opts
		reloaded.Users = users
		if err := b.srv.ReloadOptions(&reloaded); err != nil {
			t.Fatal(err)
		}
	}
	says := func(err error, subject string) {
		t.Helper()
		if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), subject) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want one line that names %s", err, subject)
		}
		if errors.Is(err, checkpoint.ErrForeign) || errors.Is(err, checkpoint.ErrCorrupt) || errors.Is(err, checkpoint.ErrFenced) {
			t.Errorf("%v cannot be tried again", err)
		}
	}
	s := NewStore(o)
	t.Cleanup(func() { _ = s.Close() }) // the error of an unsuccessful last write is logged
	says(s.Load(t.Context()), "$KV."+BucketName(testIdentity))
	allow(users(denied))
	wait(t, "the checkpoint to load", func() bool { return s.Load(t.Context()) == nil })
	commit(t, s, kv("e/a", "1"))
	says(s.Commit(t.Context(), []event.KV{kv("p/pods", "at 1 7"), kv("e/a", "2")}), denied)
	allow(users("nothing"))
	wait(t, "a commit", func() bool { return s.Commit(t.Context(), []event.KV{kv("e/b", "3")}) == nil })
	crash(s)
	wantKeys(t, mustOpenStore(t, o), kv("p/pods", "at 1 7"), kv("e/a", "2"), kv("e/b", "3"), event.KV{Key: checkpoint.ResetKey()})
}

// If the server's disk is full, the checkpoint returns an error, and has all commits once there is
// room, without a reset.
func TestStoreNoRoom(t *testing.T) {
	t.Parallel()
	b := startBus(t, func(o *server.Options) { o.JetStreamMaxStore = 1 << 20 })
	js := b.client(t)
	s := mustOpenStore(t, options(b.url()))
	hog(t, js, 3)
	var all []event.KV
	for i := range 40 {
		all = append(all, kv(fmt.Sprintf("e/%02d", i), strings.Repeat("x", 10<<10)))
	}
	for range 2 {
		if err := s.Commit(t.Context(), all); err == nil {
			t.Fatal("the commit succeeded on a full disk")
		} else if errors.Is(err, checkpoint.ErrFenced) || errors.Is(err, checkpoint.ErrCorrupt) {
			t.Fatalf("%v cannot be tried again", err)
		}
	}
	if err := s.Commit(t.Context(), all); err == nil || !strings.Contains(err.Error(), "insufficient resources") {
		t.Errorf("a full disk: %v", err)
	}
	freeHog(t, js)
	wait(t, "a commit", func() bool { return s.Commit(t.Context(), []event.KV{kv("e/last", "1")}) == nil })
	crash(s)
	wantKeys(t, mustOpenStore(t, options(b.url())), append(all, kv("e/last", "1"), event.KV{Key: checkpoint.ResetKey()})...)
}
