package kafka

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/kubebridge/pkg/sink"
)

// TestReader: the reader returns only the requested topics, ranges and times, without records of aborted transactions, and
// leaves nothing behind on the brokers.
func TestReader(t *testing.T) {
	t.Parallel()
	b := startBus(t, kfake.SeedTopics(3, "k8s.c.core.pods", "k8s.c.core.nodes"))
	c, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.TransactionalID("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	start := time.Now().Add(time.Hour).Truncate(time.Second) // later than the markers of transactions
	n := 0
	write := func(end kgo.TransactionEndTry, count int) {
		t.Helper()
		if err := c.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for range count {
			n++
			r := &kgo.Record{
				Topic: "k8s.c.core.pods", Partition: 1, Value: fmt.Append(nil, n), Timestamp: start.Add(time.Duration(n) * time.Second),
				Headers: []kgo.RecordHeader{{Key: "ce_id", Value: fmt.Append(nil, n)}},
			}
			if err := c.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	write(kgo.TryCommit, 3) // offsets 0 to 2, and a marker
	write(kgo.TryAbort, 2)  // offsets 4 and 5
	write(kgo.TryCommit, 2) // offsets 7 and 8
	write(kgo.TryAbort, 1)

	r, err := NewReader(t.Context(), Options{Config: b.config(), Identity: identity}, func(name string) bool { return name == "k8s.c.core.pods" })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	if len(r.Parts()) != 3 {
		t.Fatalf("the parts are %+v", r.Parts())
	}
	read := func(from, to int64, enough string) (got []string) {
		t.Helper()
		err := r.Read(t.Context(), []sink.Range{{}, {From: from, To: to}, {}}, false, func(m *sink.Message) error {
			if m.Part != 1 || len(m.Headers) != 1 || string(m.Headers[0].Value) != string(m.Value) {
				t.Errorf("message %d of part %d has %v", m.Offset, m.Part, m.Headers)
			}
			n, _ := strconv.Atoi(string(m.Value))
			if want := start.Add(time.Duration(n) * time.Second); !m.Time.Equal(want) {
				t.Errorf("message %d was written at %s, want %s", m.Offset, m.Time, want)
			}
			got = append(got, string(m.Value))
			if string(m.Value) == enough {
				return sink.ErrEnough
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	end := r.Parts()[1].End
	for _, c := range []struct {
		from, to int64
		enough   string
		want     []string
	}{
		{0, end, "", []string{"1", "2", "3", "6", "7"}},
		{1, 2, "", []string{"2"}},
		{4, 7, "", nil},
		{0, end, "2", []string{"1", "2"}},
		{5, 5, "", nil},
		{8, end + 3, "", []string{"7"}}, // the part ends before
		{end + 1, end + 3, "", nil},
	} {
		if got := read(c.from, c.to, c.enough); !slices.Equal(got, c.want) {
			t.Errorf("from %d to %d are %v, want %v", c.from, c.to, got, c.want)
		}
	}
	for at, want := range map[time.Time]int64{start: 0, start.Add(6 * time.Second): 7, start.Add(time.Hour): end} {
		if got, err := r.At(t.Context(), at); err != nil || got[1] != want {
			t.Errorf("at %s it is %v (%v), want %d", at, got, err, want)
		}
	}
	broken := errors.New("broken")
	if err := r.Read(t.Context(), []sink.Range{{}, {To: end}, {}}, false, func(*sink.Message) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}

// The messages of several partitions come in the order of their times: a copy that is behind must not read one partition beyond a gap before it has read
// in the others what came before the gap.
func TestReaderMergesPartitions(t *testing.T) {
	t.Parallel()
	b := startBus(t, kfake.SeedTopics(3, "k8s.c.core.pods"))
	c, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic("k8s.c.core.pods"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const each, parts = 4000, 3
	start := time.Now().Truncate(time.Second)
	for part := range int32(parts) {
		var all []*kgo.Record
		for n := range each {
			at := start.Add(time.Duration(parts*n+int(part)) * time.Millisecond)
			all = append(all, &kgo.Record{Partition: part, Value: make([]byte, 1000), Timestamp: at, Headers: []kgo.RecordHeader{{Key: "at", Value: []byte(at.Format(time.RFC3339Nano))}}})
		}
		if err := c.ProduceSync(t.Context(), all...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	r, err := NewReader(t.Context(), Options{Config: b.config(), Identity: identity}, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	for round := range 2 { // the second time with the same client
		n, last := 0, time.Time{}
		err = r.Read(t.Context(), []sink.Range{{To: each}, {To: each}, {To: each}}, false, func(m *sink.Message) error {
			at, err := time.Parse(time.RFC3339Nano, string(m.Headers[0].Value))
			if err != nil || at.Before(last) {
				t.Fatalf("message %d of part %d is of %s (%v), the message before it of %s", m.Offset, m.Part, at, err, last)
			}
			n, last = n+1, at
			return nil
		})
		if err != nil || n != parts*each {
			t.Errorf("round %d: %d messages, %v", round, n, err)
		}
	}
}

// TestReaderRefresh: a reader that goes on sees new records, topics and partitions, leaves a deleted topic out, and ends if a topic was made again.
func TestReaderRefresh(t *testing.T) {
	t.Parallel()
	b := startBus(t, kfake.SeedTopics(1, "k8s.c.core.pods"))
	c, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	admin := kadm.NewClient(c)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	config := b.config()
	config.Delivery = exactlyOnce
	r, err := NewReader(t.Context(), Options{Config: config, Identity: identity}, func(name string) bool { return strings.HasPrefix(name, "k8s.") })
	must(err)
	t.Cleanup(r.Close)
	want := func(parts ...string) {
		t.Helper()
		must(r.Refresh(t.Context()))
		var got []string
		for _, p := range r.Parts() {
			got = append(got, fmt.Sprintf("%s to %d of %d", p.Name, p.End, p.Written))
			if p.ID == "" || !p.Ordered {
				t.Errorf("%s has the id %q, and ordered is %v", p.Name, p.ID, p.Ordered)
			}
		}
		if !slices.Equal(got, parts) {
			t.Errorf("the parts are %q, want %q", got, parts)
		}
	}
	for range 3 {
		must(c.ProduceSync(t.Context(), &kgo.Record{Topic: "k8s.c.core.pods", Value: []byte("1")}).FirstErr())
	}
	want("k8s.c.core.pods/0 to 3 of 3")
	var removed kadm.Offsets
	removed.Add(kadm.Offset{Topic: "k8s.c.core.pods", At: 2})
	_, err = admin.DeleteRecords(t.Context(), removed)
	must(err)
	err = r.Read(t.Context(), []sink.Range{{To: 3}}, false, func(*sink.Message) error { t.Error("a record behind those that were removed is read"); return nil })
	if !errors.Is(err, kerr.OffsetOutOfRange) {
		t.Errorf("records that were removed: %v", err)
	}
	_, err = admin.UpdatePartitions(t.Context(), 2, "k8s.c.core.pods")
	must(err)
	want("k8s.c.core.pods/0 to 3 of 3", "k8s.c.core.pods/1 to 0 of 0")
	_, err = admin.CreateTopic(t.Context(), 1, 1, nil, "k8s.c.core.nodes")
	must(err)
	r.looked = time.Now().Add(-lookAgain)
	want("k8s.c.core.nodes/0 to 0 of 0", "k8s.c.core.pods/0 to 3 of 3", "k8s.c.core.pods/1 to 0 of 0")
	_, err = admin.DeleteTopic(t.Context(), "k8s.c.core.nodes")
	must(err)
	want("k8s.c.core.pods/0 to 3 of 3", "k8s.c.core.pods/1 to 0 of 0")
	_, err = admin.DeleteTopic(t.Context(), "k8s.c.core.pods")
	must(err)
	_, err = admin.CreateTopic(t.Context(), 2, 1, nil, "k8s.c.core.pods")
	must(err)
	if err := r.Refresh(t.Context()); err == nil || !strings.Contains(err.Error(), "created again") {
		t.Errorf("a topic that was made again: %v", err)
	}
}

// TestReaderPolicy: a reader says whether a topic is compacted, or why it does not know it. Otherwise a compacted topic passes for one that
// has all messages.
func TestReaderPolicy(t *testing.T) {
	t.Parallel()
	b, config := allowed(t, kmsg.ACLOperationRead) // implies DESCRIBE, not DESCRIBE_CONFIGS
	b.topic(t, "t", 1, 0)
	check := func(b *bus, config Config, compacted bool, unknown string) {
		t.Helper()
		r, err := NewReader(t.Context(), Options{Config: config, Identity: identity}, func(name string) bool { return name == "t" })
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		p := r.Parts()[0]
		if p.Latest != compacted || (p.LatestErr == nil) != (unknown == "") {
			t.Errorf("it is compacted: %v (%v)", p.Latest, p.LatestErr)
		}
		if p.LatestErr != nil {
			wantError(t, p.LatestErr, unknown)
		}
	}
	check(b, config, false, `allow user "writer" DESCRIBE_CONFIGS on the topic`)
	config.Tombstones = true
	check(b, config, true, `allow user "writer" DESCRIBE_CONFIGS on the topic`)

	for policy, compacted := range map[string]bool{"delete": false, "compact": true, "compact,delete": true} {
		b = startBus(t)
		if err := b.CreateTopic("t", 1, map[string]string{cleanupPolicy: policy}); err != nil {
			t.Fatal(err)
		}
		check(b, b.config(), compacted, "")
	}
	b.ControlKey(int16(kmsg.DescribeConfigs), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		return nil, errors.New("the connection ends"), true
	})
	check(b, b.config(), false, "read its cleanup.policy: ")
}
