package kafka

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// untilLost commits, together with more, until the loss is reported. It returns the errors before that.
func untilLost(t *testing.T, s *Store, more ...event.KV) (before []error) {
	t.Helper()
	for range 10 {
		err := s.Commit(t.Context(), append(more, kv("e/b", "2")))
		switch {
		case err == nil:
			t.Fatalf("the loss went unnoticed, after %v", before)
		case errors.Is(err, checkpoint.ErrCorrupt):
			if strings.Contains(err.Error(), "OFFSET_OUT_OF_RANGE") {
				t.Errorf("the loss is reported as %q: consumers have no use for Kafka's word for it", err)
			}
			return before
		}
		before = append(before, err)
	}
	t.Fatalf("the loss is never reported: %v", before)
	return nil
}

// wantReset checks that a process that starts now gets the request for a reset.
func wantReset(t *testing.T, o StoreOptions) {
	t.Helper()
	again := loadStore(t, o)
	expect(t, again, string(checkpoint.ResetKey()), string(checkpoint.ResetRequested()))
	expect(t, again, "e/a", "")
}

// The deletion of the checkpoint topic under a running bridge leads to a declared reset, even if the bridge then crashes:
// consumers must drop objects that no checkpoint has.
func TestDeletedWhileRunning(t *testing.T) {
	t.Parallel()
	for name, recreate := range map[string]bool{"deleted": false, "created again": true} {
		t.Run(name, func(t *testing.T) {
			for release, opts := range map[string][]kfake.Opt{"now": nil, "before topics had ids": {kfake.MaxVersions(kversion.V2_7_0())}} {
				t.Run(release, func(t *testing.T) {
					b := startBus(t, opts...)
					s := loadStore(t, storeOptions(t, b))
					for range 3 {
						if err := s.Commit(t.Context(), []event.KV{kv("e/a", "1")}); err != nil {
							t.Fatal(err)
						}
					}
					if err := b.DeleteTopic("checkpoint"); err != nil {
						t.Fatal(err)
					}
					if recreate {
						if err := b.CreateTopic("checkpoint", 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
							t.Fatal(err)
						}
					}
					untilLost(t, s)
					wantReset(t, storeOptions(t, b))
				})
			}
		})
	}
}

// Brokers from before topics had ids do not show that a topic was recreated. Writing more records to the new topic than were
// lost must not hide the loss.
func TestMadeAnewAndOutgrown(t *testing.T) {
	t.Parallel()
	b := startBus(t, kfake.MaxVersions(kversion.V2_7_0()))
	s := loadStore(t, storeOptions(t, b))
	if err := s.Commit(t.Context(), []event.KV{kv("e/a", "1")}); err != nil {
		t.Fatal(err)
	}
	if err := b.DeleteTopic("checkpoint"); err != nil {
		t.Fatal(err)
	}
	if err := b.CreateTopic("checkpoint", 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
		t.Fatal(err)
	}
	var many []event.KV
	for i := range 50 {
		many = append(many, kv(fmt.Sprint("e/", i), "2"))
	}
	untilLost(t, s, many...)
	wantReset(t, storeOptions(t, b))
}

// If the topic must not be created again, the error says it until somebody creates it.
func TestDeletedAndNotAllowed(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	s := loadStore(t, storeOptions(t, b))
	if err := s.Commit(t.Context(), []event.KV{kv("e/a", "1")}); err != nil {
		t.Fatal(err)
	}
	denied := b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	if err := b.DeleteTopic("checkpoint"); err != nil {
		t.Fatal(err)
	}
	var err error
	for range 3 {
		err = s.Commit(t.Context(), []event.KV{kv("e/b", "2")})
	}
	if err == nil || errors.Is(err, checkpoint.ErrCorrupt) || !strings.Contains(err.Error(), "create it with one partition and cleanup.policy=compact, or allow CREATE") {
		t.Errorf("Commit: %v, want what to do", err)
	}
	denied.Remove()
	untilLost(t, s)
	wantReset(t, storeOptions(t, b))
}

// A broker that does not know the topic yet, or no longer knows it, proves nothing.
func TestNotKnownIsNotDeleted(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	s := loadStore(t, storeOptions(t, b))
	if err := s.Commit(t.Context(), []event.KV{kv("e/a", "1")}); err != nil {
		t.Fatal(err)
	}
	lagging := b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.UnknownTopicOrPartition, Count: -1})
	s.Release() // as after a failure
	if err := s.Commit(t.Context(), []event.KV{kv("e/b", "2")}); err == nil || errors.Is(err, checkpoint.ErrCorrupt) {
		t.Errorf("Commit: %v, want one to be tried again", err)
	}
	lagging.Remove()
	if err := s.Commit(t.Context(), []event.KV{kv("e/b", "2")}); err != nil {
		t.Error(err)
	}
	again := loadStore(t, storeOptions(t, b))
	expect(t, again, "e/a", "1")
	expect(t, again, string(checkpoint.ResetKey()), "")
}
