package kafka_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/kubebridge/kubebridge/pkg/event"
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
	c := kafkatest.Start(t, kafkatest.Options{Users: map[string]string{"writer": password}, Proxy: true})
	b := c.Broker(1)
	proxy := b.Proxy()
	reconnect := map[string]func(){ // so that the broker looks again
		"PLAIN":         func() { must(t, b.Stop()); must(t, b.Start(t.Context())) },
		"SCRAM-SHA-256": proxy.Cut,
		"SCRAM-SHA-512": proxy.Cut,
	}
	for _, mechanism := range mechanisms {
		t.Run(mechanism, func(t *testing.T) {
			l := newLane(t, c, newTopic(t, c, 1, 0, nil))
			s := openSink(t, as(config(c), mechanism, "writer", password))
			l.write(s, l.batch(10, 0))

			wantRefused(t, as(config(c), mechanism, "writer", "wrong"), proxy.Addr(), "sasl.password", "writer")
			wantRefused(t, as(config(c), mechanism, "nobody", password), proxy.Addr(), "sasl.username (nobody)")

			// Revoked while the lane runs: what is open stays open, the next connection is refused. That may be put right.
			must(t, c.SetPassword(t.Context(), "writer", ""))
			l.write(s, l.batch(10, 0))
			reconnect[mechanism]()
			batch := l.batch(10, 0)
			var err error
			for range 2 { // the first finds its connection cut
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
	c := kafkatest.Start(t, kafkatest.Options{TLS: true, Users: map[string]string{"writer": password}})
	trusting := config(c)
	trusting.TLS = kafka.TLS{Enabled: true, CA: c.CA()}
	for _, mechanism := range mechanisms {
		l := newLane(t, c, newTopic(t, c, 1, 0, nil))
		s := openSink(t, as(trusting, mechanism, "writer", password))
		l.write(s, l.batch(10, 0))
		l.check(0)
	}
	wantRefused(t, as(trusting, "SCRAM-SHA-512", "writer", "wrong"), c.Addrs()[0], "sasl.password")

	untrusting := as(config(c), "PLAIN", "writer", password)
	untrusting.TLS.Enabled = true
	wantError(t, newSink(t, untrusting).Open(t.Context(), nil), c.Addrs()[0], "certificate")
	plain := as(config(c), "PLAIN", "writer", password)
	if err := newSink(t, plain).Open(t.Context(), nil); err == nil {
		t.Error("Open without TLS of a listener with TLS: no error")
	} else {
		wantWords(t, err, c.Addrs()[0], "TLS")
	}
}

// What one topic forbids is no matter of the others; that it is allowed again is noticed.
func TestNotAllowed(t *testing.T) {
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
		l := newLane(t, c, topic)
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
		wantError(t, err, topic, "not to be seen", `user "seer"`)
	})

	// Without the right to read the limit Kafka's default is taken, and what the broker rejects nevertheless is found.
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
