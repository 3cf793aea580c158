package kafka

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
)

func lines(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

// say fails the test unless got has exactly one line for each item of want, with its words.
func say(t *testing.T, what string, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d %s, want %d:\n%s", len(got), what, len(want), strings.Join(got, "\n"))
		return
	}
	for i, words := range want {
		for word := range strings.SplitSeq(words, "|") {
			if !strings.Contains(got[i], word) {
				t.Errorf("%q does not say %q", got[i], word)
			}
		}
	}
}

// An operator learns at the start, and from the check, which features of the brokers `exactly-once` has to do without.
func TestWeakBrokers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options []kfake.Opt
		change  func(*testing.T, *bus)
		want    []string
	}{
		"as recommended":         {nil, func(*testing.T, *bus) {}, nil},
		"older transactions":     {nil, olderTransactions, []string{"transaction.version is 1|KIP-890"}},
		"no topic ids":           {[]kfake.Opt{kfake.MaxVersions(kversion.V2_7_0())}, func(*testing.T, *bus) {}, []string{"no topic ids|KIP-516", "transaction.version is 0"}},
		"features are not known": {nil, hideFeatures, []string{"ask the brokers for their features: UNKNOWN_SERVER_ERROR|unknown whether"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := startBus(t, c.options...)
			c.change(t, b)
			for delivery, want := range map[string][]string{exactlyOnce: c.want, atLeastOnce: nil} {
				config := Config{Brokers: b.brokers, Delivery: delivery}
				weak, err := Check(t.Context(), Options{Config: config, Identity: identity}, []string{"missing"})
				if err != nil {
					t.Fatal(err)
				}
				say(t, "warnings", weak, want)
			}
			say(t, "warnings at the start", warningsAtStart(t, b), c.want)
		})
	}
}

func warningsAtStart(t *testing.T, b *bus) (warnings []string) {
	t.Helper()
	log := zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel), zaptest.WrapOptions(zap.Hooks(func(entry zapcore.Entry) error {
		warnings = append(warnings, entry.Message)
		return nil
	})))
	s, err := NewStore(StoreOptions{Options: Options{Config: Config{Brokers: b.brokers, Delivery: exactlyOnce}, Identity: identity, Logger: log}})
	if err != nil {
		t.Fatal(err)
	}
	x := &owned{NewTransactional(s), s}
	if err := errors.Join(x.Open(t.Context(), nil), x.Close()); err != nil {
		t.Fatal(err)
	}
	return warnings
}

// olderTransactions is a safe downgrade of the brokers.
func olderTransactions(t *testing.T, b *bus) {
	t.Helper()
	update := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	update.Feature, update.MaxVersionLevel, update.UpgradeType = "transaction.version", 1, 2
	req := kmsg.NewPtrUpdateFeaturesRequest()
	req.FeatureUpdates = append(req.FeatureUpdates, update)
	resp, err := req.RequestWith(t.Context(), brokerClient(t, b))
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// hideFeatures makes the brokers refuse the sink's request for features. The client's own request is answered.
func hideFeatures(_ *testing.T, b *bus) {
	b.ControlKey(kmsg.ApiVersions.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		ask := req.(*kmsg.ApiVersionsRequest)
		if ask.ClientSoftwareName != "kubebridge" {
			return nil, nil, false
		}
		resp := ask.ResponseKind().(*kmsg.ApiVersionsResponse)
		resp.ErrorCode = kerr.UnknownServerError.Code
		return resp, nil, true
	})
}

// Each mismatch of a topic is reported in one line, and the check creates nothing.
func TestCheckTopics(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	admin := brokerAdmin(t, b)
	for topic, configs := range map[string]map[string]string{
		"good": {}, "compacted": {cleanupPolicy: "compact"},
		"small": {maxMessageBytes: "1000", retentionMS: "60000"},
	} {
		values := map[string]*string{}
		for k, v := range configs {
			values[k] = &v
		}
		if _, err := admin.CreateTopic(t.Context(), 3, 1, values, topic); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		config    Config
		topics    []string
		weak, bad []string
	}{
		"good":            {Config{}, []string{"good"}, nil, nil},
		"to be created":   {Config{}, []string{"missing"}, nil, nil},
		"not created":     {Config{Create: Create{Enabled: new(false)}}, []string{"good", "missing", "too"}, nil, []string{`"missing" does not exist`, `"too" does not exist`}},
		"compacted":       {Config{}, []string{"compacted"}, []string{`cleanup.policy is "compact"|tombstones`}, nil},
		"not compacted":   {Config{Tombstones: true}, []string{"good"}, []string{`cleanup.policy is "delete"|tombstones`}, nil},
		"small and short": {Config{}, []string{"small"}, []string{"max.message.bytes is 1000", "retention.ms is 60000 (1m0s)"}, nil},
		"too few copies":  {Config{Create: Create{ReplicationFactor: 3}}, []string{"good"}, []string{"1 replicas|replicationFactor is 3", "min.insync.replicas is 1"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.Brokers = b.brokers
			weak, err := Check(t.Context(), Options{Config: c.config, Identity: identity}, c.topics)
			say(t, "warnings", weak, c.weak)
			say(t, "errors", lines(err), c.bad)
		})
	}
	all, err := admin.ListTopics(t.Context())
	if err != nil || len(all) != 3 {
		t.Errorf("%d topics afterwards, want 3 (%v)", len(all), err)
	}
	_, err = Check(t.Context(), Options{Config: Config{Brokers: []string{"127.0.0.1:1"}}, Identity: identity}, []string{"good"})
	say(t, "errors", lines(err), []string{"127.0.0.1:1|refused"})
}

func brokerAdmin(t *testing.T, b *bus) *kadm.Client {
	t.Helper()
	return kadm.NewClient(brokerClient(t, b))
}

func brokerClient(t *testing.T, b *bus) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// A validation beside a running bridge reads its checkpoint without fencing it, and names every topic that has more partitions
// than before.
func TestCheckCheckpoint(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	config := Config{Brokers: b.brokers, Create: Create{Partitions: 2}}
	x := openExact(t, config)
	n := number("one")
	if _, err := x.Write(t.Context(), n.batch(3, 0)); err != nil {
		t.Fatal(err)
	}
	m := number("two")
	second := m.batch(3, 0)
	second.Seq = 2
	if _, err := x.Write(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	look := func(change func(*StoreOptions)) (weak []string, err error) {
		o := StoreOptions{Options: Options{Config: config, Identity: identity}}
		change(&o)
		s, weak, err := CheckStore(t.Context(), o)
		if s == nil {
			return weak, err
		}
		defer s.Close()
		more, err := CheckPins(t.Context(), Options{Config: config, Identity: identity}, nil, s.Scan)
		return append(weak, more...), err
	}
	same := func(*StoreOptions) {}
	weak, err := look(same)
	say(t, "warnings", weak, nil)
	say(t, "errors", lines(err), nil)
	own := CheckpointTopic("", identity)
	for what, other := range map[string]func(*StoreOptions){
		"cluster UID": func(o *StoreOptions) { o.Identity.ClusterUID = "other" },
		"bridge":      func(o *StoreOptions) { o.Identity.Bridge = "other" },
		"sink":        func(o *StoreOptions) { o.Identity.Sink = "other" },
	} {
		_, err := look(func(o *StoreOptions) { other(o); o.Topic = own })
		say(t, "errors", lines(err), []string{own + "|" + what + "|other"})
	}
	_, err = look(func(o *StoreOptions) { o.Topic = "none-yet" })
	say(t, "errors", lines(err), nil)
	if _, err := brokerAdmin(t, b).CreatePartitions(t.Context(), 1, "one", "two"); err != nil {
		t.Fatal(err)
	}
	_, err = look(same)
	say(t, "errors", lines(err), []string{`"one"|has 3 partitions and had 2`, `"two"|has 3 partitions and had 2`})
	if err := b.DeleteTopic("two"); err != nil {
		t.Fatal(err)
	}
	weak, err = look(same)
	say(t, "warnings", weak, []string{`"two"|no longer exists|consumers`})
	say(t, "errors", lines(err), []string{`"one"|has 3 partitions and had 2`})
	if _, err := brokerAdmin(t, b).AlterTopicConfigs(context.Background(), []kadm.AlterConfig{{Name: cleanupPolicy, Value: new("delete")}}, own); err != nil {
		t.Fatal(err)
	}
	_, err = look(same)
	say(t, "errors", lines(err), []string{own + `|cleanup.policy is "delete"`})
}
