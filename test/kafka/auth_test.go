package kafka_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

const password = `pencil-"hunter2"`

func as(c kafka.Config, mechanism, user, password string) kafka.Config {
	c.SASL = kafka.SASL{Mechanism: mechanism, Username: user, Password: password}
	return c
}

var mechanisms = []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}

func TestCredentials(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{Users: map[string]string{"writer": password}, Proxy: true})
	b := c.Broker(1)
	proxy := b.Proxy()
	reconnect := map[string]func(){ // so that the broker authenticates again
		"PLAIN":         func() { must(t, b.Stop()); must(t, b.Start(t.Context())) },
		"SCRAM-SHA-256": proxy.Cut,
		"SCRAM-SHA-512": proxy.Cut,
	}
	for _, mechanism := range mechanisms {
		t.Run(mechanism, func(t *testing.T) {
			l := newWriter(t, c, newTopic(t, c, 1, 0, nil))
			s := openSink(t, as(config(c), mechanism, "writer", password))
			l.write(s, l.batch(10, 0))

			wantRefused(t, as(config(c), mechanism, "writer", "wrong"), proxy.Addr(), "sasl.password", "writer")
			wantRefused(t, as(config(c), mechanism, "nobody", password), proxy.Addr(), "sasl.username (nobody)")

			// The password is changed while the pipeline runs: open connections stay open, the next one is refused. The error is temporary.
			must(t, c.SetPassword(t.Context(), "writer", ""))
			l.write(s, l.batch(10, 0))
			reconnect[mechanism]()
			batch := l.batch(10, 0)
			var err error
			for range 2 { // the first attempt finds its connection cut
				_, err = s.Write(t.Context(), batch)
			}
			wantError(t, err, l.topic, "sasl.password")
			must(t, c.SetPassword(t.Context(), "writer", password))
			reconnect[mechanism]()
			l.write(s, batch)
			l.check(0)
		})
	}
	t.Run("none", func(t *testing.T) {
		err := newSink(t, config(c)).Open(t.Context(), nil)
		wantError(t, err, proxy.Addr(), "SASL")
	})
	t.Run("a mechanism that is not offered", func(t *testing.T) {
		scram := kafkatest.Start(t, kafkatest.Options{
			Users: map[string]string{"writer": password},
			Props: map[string]string{"listener.name.client.sasl.enabled.mechanisms": "SCRAM-SHA-256"},
		})
		wantRefused(t, as(config(scram), "PLAIN", "writer", password), scram.Addrs()[0], "sasl.mechanism (PLAIN)")
	})
}

func TestTLS(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{TLS: true, Users: map[string]string{"writer": password}})
	trusting := config(c)
	trusting.TLS = kafka.TLS{Enabled: true, CA: c.CA()}
	for _, mechanism := range mechanisms {
		l := newWriter(t, c, newTopic(t, c, 1, 0, nil))
		s := openSink(t, as(trusting, mechanism, "writer", password))
		l.write(s, l.batch(10, 0))
		l.check(0)
	}
	wantRefused(t, as(trusting, "SCRAM-SHA-512", "writer", "wrong"), c.Addrs()[0], "sasl.password")

	untrusting := as(config(c), "PLAIN", "writer", password)
	untrusting.TLS.Enabled = true
	wantRefused(t, untrusting, c.Addrs()[0], "certificate", "check tls.ca")
	plain := as(config(c), "PLAIN", "writer", password)
	if err := newSink(t, plain).Open(t.Context(), nil); err == nil {
		t.Error("Open without TLS of a listener with TLS: no error")
	} else {
		wantWords(t, err, c.Addrs()[0], "TLS")
	}
}

// A missing permission on one topic does not affect other topics, and the sink notices when it is granted.
func TestNotAllowed(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{Users: map[string]string{"writer": password, "seer": password}, ACLs: true})
	must(t, c.Allow(t.Context(), "writer", "kubebridge-test-", kadm.OpWrite, kadm.OpDescribe, kadm.OpDescribeConfigs))
	writer := as(config(c), "SCRAM-SHA-512", "writer", password)
	one := func(seq uint64, topic string) *event.Batch {
		return &event.Batch{Seq: seq, Records: []event.Record{record(topic, "k", "1")}}
	}

	t.Run("to write", func(t *testing.T) {
		forbidden, other := newTopic(t, c, 3, 0, nil), newTopic(t, c, 3, 0, nil)
		s := openSink(t, writer)
		must(t, c.Deny(t.Context(), "writer", forbidden, kadm.OpWrite))
		_, err := s.Write(t.Context(), one(1, forbidden))
		wantError(t, err, forbidden, "partition ", `allow user "writer" WRITE`)
		_, err = s.Write(t.Context(), one(2, other))
		must(t, err)
		must(t, c.Forget(t.Context(), "writer", forbidden))
		_, err = s.Write(t.Context(), one(3, forbidden))
		must(t, err)
		for _, topic := range []string{forbidden, other} {
			if n := len(read(t, c, topic)); n != 1 {
				t.Errorf("topic %q holds %d records, want one", topic, n)
			}
		}
	})

	t.Run("to create", func(t *testing.T) {
		topic := topicName(t, c)
		s := openSink(t, writer)
		_, err := s.Write(t.Context(), one(1, topic))
		wantError(t, err, topic, "does not exist", `let user "writer" create topics`)
		must(t, c.AllowCluster(t.Context(), "writer", kadm.OpCreate))
		l := newWriter(t, c, topic)
		l.write(s, one(1, topic))
		if n := len(read(t, c, topic)); n != 1 {
			t.Errorf("the topic holds %d records, want one", n)
		}
	})

	t.Run("exactly once", func(t *testing.T) { testExactNotAllowed(t, c) })

	t.Run("to see", func(t *testing.T) {
		topic := newTopic(t, c, 1, 0, nil)
		s := openSink(t, as(config(c), "PLAIN", "seer", password))
		_, err := s.Write(t.Context(), one(1, topic))
		wantError(t, err, topic, `allow user "seer" WRITE and DESCRIBE`)
	})

	// Without permission to read the limit, the sink assumes Kafka's default, and finds records that the broker rejects nevertheless.
	t.Run("to read the limit", func(t *testing.T) {
		topic := newTopic(t, c, 1, 0, map[string]string{"max.message.bytes": "50000"})
		must(t, c.Deny(t.Context(), "writer", topic, kadm.OpDescribeConfigs))
		s := openSink(t, writer)
		large := record(topic, "k", string(make([]byte, 60_000)))
		batch := &event.Batch{Seq: 1, Records: []event.Record{record(topic, "k", "1"), large, record(topic, "k", "2")}}
		_, err := s.Write(t.Context(), batch)
		if e := wantRecordError(t, err, 1); e.Size < 60_000 || e.Limit >= e.Size {
			t.Errorf("RecordError has size %d and limit %d", e.Size, e.Limit)
		}
		if n := len(read(t, c, topic)); n != 1 {
			t.Errorf("the topic holds %d records, want the one before the one that is too large", n)
		}
	})
}

// refused writes a batch of 20 records and one more for a topic that refuses writes, until the sink names the topic. Then it writes the batch
// without that record, as a pipeline does.
func (l *writer) refused(s sink.Sink, topic string) {
	l.t.Helper()
	batch := l.batch(20, 0)
	batch.Records = append(batch.Records, record(topic, "k", "1"))
	err := trying(l.t, func(ctx context.Context) error {
		_, err := s.Write(ctx, batch)
		if errors.As(err, new(*sink.RouteError)) {
			return &sink.RefusedError{What: "stop trying", Err: err}
		}
		return err
	})
	var route *sink.RouteError
	if !errors.As(err, &route) || route.Route != topic || route.Index != 20 {
		l.t.Fatalf("Write: %v, want a RouteError about record 20", err)
	}
	wantWords(l.t, route, topic, `user "writer"`, "DESCRIBE")
	if strings.Contains(route.Error(), l.topic) {
		l.t.Errorf("%q names a topic that is fine", route)
	}
	batch.Records = batch.Records[:20]
	l.write(s, batch)
}

// A topic that the user may not describe is refused by its name, and others are not affected: if the permission is missing from the
// start, if it is withdrawn later, and at a restart. When the permission is granted, the topic is written to.
func TestOneTopicMayNotBeDescribed(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{Users: map[string]string{"writer": password}, ACLs: true, Proxy: true})
	must(t, c.Allow(t.Context(), "writer", "kubebridge-test-", kadm.OpWrite, kadm.OpRead, kadm.OpDescribe, kadm.OpDescribeConfigs, kadm.OpCreate))
	must(t, c.AllowTransactions(t.Context(), "writer", "kubebridge.", kadm.OpWrite, kadm.OpDescribe))
	eachDelivery(t, c, func(t *testing.T, conf kafka.Config) {
		conf = as(conf, "SCRAM-SHA-512", "writer", password)
		hidden := newTopic(t, c, 1, 0, nil)
		l := newWriter(t, c, newTopic(t, c, 3, 0, nil))
		must(t, c.Deny(t.Context(), "writer", hidden, kadm.OpDescribe))
		s, err := opening(t, conf)
		must(t, err)
		l.passes(s)
		l.refused(s, hidden)
		must(t, c.Forget(t.Context(), "writer", hidden))
		healed := func() {
			t.Helper()
			l.seq++
			b := &event.Batch{Seq: l.seq, Records: []event.Record{record(hidden, "k", "1")}}
			must(t, trying(t, func(ctx context.Context) error { _, err := s.Write(ctx, b); return err }))
		}
		healed()

		must(t, c.Deny(t.Context(), "writer", hidden, kadm.OpDescribe))
		// The sink reads the topics again after a failed write, or after a minute.
		c.Broker(1).Proxy().Refuse()
		batch := l.batch(10, 0)
		attempt, end := context.WithTimeout(t.Context(), 2*time.Second)
		_, err = s.Write(attempt, batch)
		end()
		if err == nil {
			t.Fatal("Write passed a network that refuses")
		}
		c.Broker(1).Proxy().Pass()
		l.write(s, batch)
		l.refused(s, hidden)
		l.passes(s)
		must(t, s.Close())
		must(t, trying(t, func(ctx context.Context) error { return s.Open(ctx, nil) }))
		l.refused(s, hidden)
		l.passes(s)
		must(t, c.Forget(t.Context(), "writer", hidden))
		healed()
		if n := len(read(t, c, hidden)); n != 2 {
			t.Errorf("topic %q holds %d records, want 2", hidden, n)
		}
		l.check(0)
	})
}

// Before Kafka 4.0 a client adds all topics of a transaction in one request, which fails completely if one of them may not
// be written to. Only that topic is refused.
func TestOneTopicMayNotBeWrittenBeforeKafka4(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{Users: map[string]string{"writer": password}, ACLs: true})
	must(t, c.Allow(t.Context(), "writer", "kubebridge-test-", kadm.OpWrite, kadm.OpRead, kadm.OpDescribe, kadm.OpDescribeConfigs, kadm.OpCreate))
	must(t, c.AllowTransactions(t.Context(), "writer", "kubebridge.", kadm.OpWrite, kadm.OpDescribe))
	conf := as(config(c), "SCRAM-SHA-512", "writer", password)
	conf.Delivery = "exactly-once"
	store, err := kafka.NewStore(kafka.StoreOptions{
		Options: kafka.Options{Config: conf, Identity: identity, Client: []kgo.Opt{kgo.MaxVersions(kversion.V3_9_0())}},
		Topic:   "kubebridge-test-checkpoint",
	})
	must(t, err)
	s := kafka.NewTransactional(store)
	t.Cleanup(func() { must(t, errors.Join(s.Close(), store.Close())) })
	must(t, trying(t, func(ctx context.Context) error { return s.Open(ctx, nil) }))
	l, forbidden := newWriter(t, c, newTopic(t, c, 3, 0, nil)), newTopic(t, c, 1, 0, nil)
	l.passes(s)
	must(t, c.Deny(t.Context(), "writer", forbidden, kadm.OpWrite))
	l.refused(s, forbidden)
	l.passes(s)
	l.check(0)
}
