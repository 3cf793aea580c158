package kafka

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// checked is a sink or a store, and what is due now counts as due: no test waits for a minute.
type checked struct {
	sink.Checker
	due func()
}

// checkedOf returns the sink of each delivery with its store on the bus.
func checkedOf(t *testing.T, b *bus) map[string]checked {
	t.Helper()
	o := storeOptions(t, b)
	alone := loadStore(t, o)
	o.StandAlone, o.Topic, o.Identity.Sink = false, "exactly", "other"
	store, err := NewStore(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	x := NewTransactional(store)
	if err := x.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return map[string]checked{
		o.Topic:      {x, func() { x.state.at = time.Now().Add(-metadataTTL) }},
		"checkpoint": {alone, func() { alone.state.at = time.Now().Add(-metadataTTL) }},
	}
}

func adminOf(t *testing.T, b *bus) *kadm.Client {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return kadm.NewClient(c)
}

func (c checked) check(t *testing.T) error {
	c.due()
	return c.Check(t.Context())
}

// A setting of the checkpoint's topic by which it loses what it has must be noticed while the bridge runs, and the sink must count as
// failing until the setting is right, and not only at the first look.
func TestSettingChangedWhileRunning(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	client := adminOf(t, b)
	for topic, c := range checkedOf(t, b) {
		if err := c.check(t); err != nil {
			t.Errorf("%s: %v", topic, err)
		}
		set := func(policy string) {
			t.Helper()
			got, err := client.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "cleanup.policy", Value: &policy}}, topic)
			if err != nil || got[0].Err != nil {
				t.Fatal(err, got)
			}
		}
		set("delete")
		for range 3 {
			err := c.check(t)
			if err == nil || errors.Is(err, checkpoint.ErrUnusable) || !strings.Contains(err.Error(), `cleanup.policy is "delete"`) {
				t.Errorf("%s: %v, want an error to be tried again, with the setting", topic, err)
			}
			if again := c.Check(t.Context()); again == nil || err == nil || again.Error() != err.Error() {
				t.Errorf("%s: until the next look it is %v, want the same", topic, again)
			}
		}
		set("compact")
		if err := c.check(t); err != nil {
			t.Errorf("%s: after the correction: %v", topic, err)
		}
	}
}

// What the checkpoint's topic has lost leads to a declared reset while the bridge runs, and not at the next start, which may be
// weeks later.
func TestBeginningRemovedWhileRunning(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	client := adminOf(t, b)
	for topic, c := range checkedOf(t, b) {
		if err := c.check(t); err != nil {
			t.Errorf("%s: %v", topic, err)
		}
		end, err := client.ListEndOffsets(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		removed, err := client.DeleteRecords(t.Context(), end.Offsets())
		if err = errors.Join(err, removed.Error()); err != nil {
			t.Fatal(err)
		}
		err = c.check(t)
		if _, stands := c.Checker.(*Store); stands && !errors.Is(err, checkpoint.ErrCorrupt) || !stands && !errors.Is(err, sink.ErrReset) {
			t.Errorf("%s: %v, want the declared loss", topic, err)
		}
		if err == nil || !strings.Contains(err.Error(), "were removed") {
			t.Errorf("%s: %v does not say what happened", topic, err)
		}
		if err := c.check(t); err != nil {
			t.Errorf("%s: it is declared again: %v", topic, err)
		}
		if x, ok := c.Checker.(*Transactional); ok { // the reset
			if err := x.Commit(t.Context(), 0, []event.KV{{Key: checkpoint.ResetKey()}, kv("e/a", "1")}); err != nil {
				t.Errorf("%s: after the loss: %v", topic, err)
			}
		}
	}
}

// A topic of events that is deleted and created again must be noticed without a write.
func TestTopicMadeAgainWhileQuiet(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	b.topic(t, "k8s.test", 1, 0)
	c := checkedOf(t, b)["exactly"]
	x := c.Checker.(*Transactional)
	if _, err := x.Write(t.Context(), number("k8s.test").batch(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := c.check(t); err != nil {
		t.Fatal(err)
	}
	if err := b.DeleteTopic("k8s.test"); err != nil {
		t.Fatal(err)
	}
	b.topic(t, "k8s.test", 1, 0)
	if err := c.check(t); !errors.Is(err, sink.ErrReset) || !strings.Contains(err.Error(), `"k8s.test" was deleted and made again`) {
		t.Errorf("%v, want a reset", err)
	}
}
