package kafka_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

// A cluster of three brokers, of which one at a time fails.
func TestThreeBrokers(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 3})

	// A leader that moves reports that it has written nothing. So no record is repeated, and one retry is enough.
	t.Run("leader moves", func(t *testing.T) {
		topic := newTopic(t, c, 3, 0, nil)
		s, l := openSink(t, config(c)), newWriter(t, c, topic)
		for i := range int32(9) {
			if _, err := c.MoveLeader(t.Context(), topic, i%3); err != nil {
				t.Fatal(err)
			}
			errs := l.write(s, l.batch(200, 1000))
			if len(errs) > 1 {
				t.Errorf("move %d: Write failed %d times, want at most one retry: %v", i, len(errs), errs)
			}
			for _, err := range errs {
				wantError(t, err, topic, "leader")
			}
		}
		l.check(0)
	})

	t.Run("leaders move while it writes", func(t *testing.T) {
		topic := newTopic(t, c, 3, 0, nil)
		s, l := openSink(t, config(c)), newWriter(t, c, topic)
		errs := l.during(s, 300, func() (err error) {
			for i := range int32(9) {
				_, e := c.MoveLeader(t.Context(), topic, i%3)
				err = errors.Join(err, e)
			}
			return err
		})
		// A broker that loses the leadership while replicas confirm reports that it is not the leader, although the records may be written.
		l.check(300 * len(errs))
	})

	// Every broker is restarted in turn, as during an upgrade.
	t.Run("rolling restart", func(t *testing.T) {
		topic := newTopic(t, c, 3, 0, nil)
		s, l := openSink(t, config(c)), newWriter(t, c, topic)
		errs := l.during(s, 100, func() (err error) {
			for _, b := range c.Brokers() {
				err = errors.Join(err, b.Stop(), b.Start(t.Context()))
			}
			return err
		})
		must(t, c.Settle(t.Context()))
		l.check(100 * len(errs))
	})

	for name, fault := range map[string]struct{ down, up func(*kafkatest.Broker) error }{
		"leader killed": {(*kafkatest.Broker).Kill, func(b *kafkatest.Broker) error { return b.Start(context.Background()) }},
		"leader paused": {(*kafkatest.Broker).Pause, (*kafkatest.Broker).Resume}, // after the pause it does not know that it is not the leader any more
	} {
		t.Run(name, func(t *testing.T) {
			topic := newTopic(t, c, 3, 0, map[string]string{"min.insync.replicas": "2"})
			s, l := openSink(t, config(c)), newWriter(t, c, topic)
			l.write(s, l.batch(200, 100))
			id, err := c.Leader(t.Context(), topic, 0)
			must(t, err)
			leader := c.Broker(id)
			must(t, fault.down(leader))
			t.Cleanup(func() { must(t, fault.up(leader)) })
			l.write(s, l.batch(200, 100)) // without it
			if now, err := c.Leader(t.Context(), topic, 0); err != nil || now == id {
				t.Errorf("the leader is still broker %d (%v)", now, err)
			}
			must(t, fault.up(leader))
			l.write(s, l.batch(200, 100))
			must(t, c.Settle(t.Context())) // otherwise the reader may get old answers from a broker that was away
			l.check(400)                   // the records in flight
		})
	}

	t.Run("no leader", func(t *testing.T) {
		topic := newTopic(t, c, 1, 1, nil)
		s, l := openSink(t, config(c)), newWriter(t, c, topic)
		l.write(s, l.batch(20, 0))
		id, err := c.Leader(t.Context(), topic, 0)
		must(t, err)
		must(t, c.Broker(id).Kill())
		awaitLeader(t, c, topic, -1)
		batch := l.batch(20, 0)
		var last error
		for range 3 { // the first attempt may still use the old leader
			_, last = s.Write(t.Context(), batch)
		}
		wantError(t, last, topic, "partition 0", "leader", "check the brokers")
		must(t, c.Broker(id).Start(t.Context()))
		l.write(s, batch)
		l.check(0)
	})

	t.Run("too few replicas", func(t *testing.T) {
		topic := newTopic(t, c, 1, 0, map[string]string{"min.insync.replicas": "3"})
		s, l := openSink(t, config(c)), newWriter(t, c, topic)
		l.write(s, l.batch(20, 0))
		id, err := c.Leader(t.Context(), topic, 0)
		must(t, err)
		other := c.Broker(id%3 + 1)
		must(t, other.Stop()) // a clean stop: the broker leaves the in-sync replicas at once
		batch := l.batch(20, 0)
		_, err = s.Write(t.Context(), batch)
		wantError(t, err, topic, "partition 0", "min.insync.replicas")
		must(t, other.Start(t.Context()))
		l.write(s, batch)
		l.check(0)
	})
}

func awaitLeader(t *testing.T, c *kafkatest.Cluster, topic string, want int32) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		leader, err := c.Leader(t.Context(), topic, 0)
		if err == nil && leader == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the leader is %d (%v), want %d", leader, err, want)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// If a broker is down at the start, the error names it and is temporary.
func TestBrokerDownAtStart(t *testing.T) {
	b := own(t).Broker(1)
	l := newWriter(t, shared, newTopic(t, shared, 3, 0, nil))
	s := newSink(t, config(shared))
	must(t, b.Stop())
	t.Cleanup(func() { must(t, b.Start(context.Background())) })
	for range 2 {
		wantError(t, s.Open(t.Context(), nil), b.Addr(), "connection refused")
	}
	must(t, b.Start(t.Context()))
	must(t, s.Open(t.Context(), nil))
	l.write(s, l.batch(100, 0))
	l.check(0)
}

// own returns the shared Kafka, and skips the test if its brokers must not be stopped.
func own(t *testing.T) *kafkatest.Cluster {
	t.Helper()
	if !shared.Owned() {
		t.Skipf("would stop brokers, and %s names others'", kafkatest.Env)
	}
	return shared
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{Proxy: true})
	proxy := c.Broker(1).Proxy()

	// Kafka has written the records, but the acknowledgement is lost: exactly one request is repeated.
	t.Run("acknowledgement lost", func(t *testing.T) {
		const produce = 0
		l := newWriter(t, c, newTopic(t, c, 3, 0, nil))
		s := openSink(t, config(c))
		l.write(s, l.batch(100, 0))
		for range 5 {
			lost := proxy.LoseAnswer(produce)
			errs := l.write(s, l.batch(100, 0))
			select {
			case <-lost:
			default:
				t.Fatal("no acknowledgement was lost")
			}
			if len(errs) != 1 {
				t.Errorf("Write failed %d times, want once: %v", len(errs), errs)
			}
			for _, err := range errs {
				wantError(t, err, l.topic, "partition ")
			}
		}
		l.check(5 * 100)
		if n := len(read(t, c, l.topic)); n <= 6*100 {
			t.Errorf("the topic holds %d records: nothing was repeated, so nothing was lost", n)
		}
	})

	t.Run("flaps", func(t *testing.T) {
		l := newWriter(t, c, newTopic(t, c, 3, 0, nil))
		s := openSink(t, config(c))
		for range 20 {
			l.write(s, l.batch(50, 0))
			proxy.Cut()
			l.write(s, l.batch(50, 0))
			proxy.Refuse()
			batch := l.batch(50, 0)
			if _, err := s.Write(t.Context(), batch); err == nil {
				t.Error("Write passed a network that refuses")
			}
			proxy.Pass()
			l.write(s, batch)
		}
		l.check(0) // no request was in flight when the connections were cut
	})
}

// A broker throttles clients that exceed their quota. This only slows the pipeline down.
func TestQuota(t *testing.T) {
	c := own(t)
	l := newWriter(t, c, newTopic(t, c, 1, 0, nil))
	s := openSink(t, config(c))
	const client, rate, records, each = "kubebridge.test.audit", 150_000, 40, 50_000
	must(t, c.Quota(t.Context(), client, rate))
	t.Cleanup(func() { must(t, c.Quota(context.Background(), client, 0)) })
	// A quota takes effect a short time after the brokers have acknowledged it.
	for began := time.Now(); ; {
		first := time.Now()
		for range 2 {
			if errs := l.write(s, l.batch(records/2, each)); errs != nil {
				t.Errorf("Write over the quota: %v, want patience", errs)
			}
		}
		l.write(s, l.batch(1, 0))
		took := time.Since(first)
		if took >= 500*time.Millisecond {
			break
		}
		if time.Since(began) > time.Minute {
			t.Errorf("%d bytes took %s at %d a second: the quota does not hold", records*each, took, rate)
			break
		}
	}
	l.check(0)
}

// Kafka takes a disk offline if it cannot write to it, and ends if it has no other. After an operator has made room, all acknowledged
// records are there, and the pipeline continues.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	own(t)
	c := kafkatest.Start(t, kafkatest.Options{}) // not the shared one, because the broker ends
	b := c.Broker(1)
	l := newWriter(t, c, newTopic(t, c, 1, 0, nil))
	s := openSink(t, config(c))
	l.write(s, l.batch(100, 0))
	if err := b.LimitFiles(4 << 20); err != nil {
		t.Skip(err)
	}
	batch := l.batch(100, 1000)
	_, err := s.Write(t.Context(), batch)
	for range 100 { // twice as much as the disk can take
		if err != nil {
			break
		}
		batch = l.batch(100, 1000)
		_, err = s.Write(t.Context(), batch)
	}
	wantError(t, err, l.topic, "partition 0") // the error may name the disk, unless the broker ends before it answers
	must(t, b.Wait(t.Context()))
	must(t, b.Start(t.Context())) // there is room now
	l.write(s, batch)
	l.check(len(batch.Records))
}
