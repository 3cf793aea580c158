package topic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
)

const name = "audit"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func event(n int) string {
	return fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"%d","stage":"ResponseComplete","requestURI":"/","verb":"create","user":{"username":"alice"},"objectRef":{"resource":"pods"},"responseStatus":{"code":201}}`, n)
}

// bus is a broker with the topic.
type bus struct {
	t       testing.TB
	options []kgo.Opt
	client  *kgo.Client
	admin   *kadm.Client
}

func newBus(t testing.TB, partitions int32) *bus {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	must(t, err)
	t.Cleanup(cluster.Close)
	b := &bus{t: t, options: []kgo.Opt{kgo.SeedBrokers(cluster.ListenAddrs()...)}}
	b.connect()
	b.create(partitions)
	return b
}

// connect makes a client that knows nothing of the topic.
func (b *bus) connect() {
	b.t.Helper()
	var err error
	b.client, err = kgo.NewClient(append(slices.Clone(b.options), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	must(b.t, err)
	b.t.Cleanup(b.client.Close)
	b.admin = kadm.NewClient(b.client)
}

func (b *bus) create(partitions int32) {
	b.t.Helper()
	_, err := b.admin.CreateTopic(b.t.Context(), partitions, 1, nil, name)
	must(b.t, err)
}

// send writes messages to a partition.
func (b *bus) send(partition int32, values ...string) {
	b.t.Helper()
	for _, v := range values {
		must(b.t, b.client.ProduceSync(b.t.Context(), &kgo.Record{Topic: name, Partition: partition, Value: []byte(v)}).FirstErr())
	}
}

// begin writes messages to a partition in a transaction. The result ends it.
func (b *bus) begin(partition int32, values ...string) (end func(commit bool)) {
	b.t.Helper()
	client, err := kgo.NewClient(append(slices.Clone(b.options), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID(fmt.Sprint("t", partition)))...)
	must(b.t, err)
	b.t.Cleanup(client.Close)
	must(b.t, client.BeginTransaction())
	for _, v := range values {
		must(b.t, client.ProduceSync(b.t.Context(), &kgo.Record{Topic: name, Partition: partition, Value: []byte(v)}).FirstErr())
	}
	return func(commit bool) {
		b.t.Helper()
		must(b.t, client.EndTransaction(b.t.Context(), kgo.TransactionEndTry(commit)))
	}
}

func (b *bus) transaction(partition int32, commit bool, values ...string) {
	b.t.Helper()
	b.begin(partition, values...)(commit)
}

func (b *bus) open(from Position) *Reader {
	b.t.Helper()
	r, err := Open(Options{Client: append(slices.Clone(b.options), kgo.MetadataMinAge(10*time.Millisecond)), Topic: name, Parser: audit.NewParser(audit.Options{AzureResourceID: "/subscriptions/1"}), Refresh: 200 * time.Millisecond}, from)
	must(b.t, err)
	b.t.Cleanup(r.Close)
	return r
}

// want reads until the IDs have come, in any order of partitions, and returns the position behind them. A dash is a gap, an x is unparsable.
func (b *bus) want(r *Reader, ids string) (last Position) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
	defer cancel()
	wanted := strings.Fields(ids)
	slices.Sort(wanted)
	var got []string
	for len(got) < len(wanted) {
		c, err := r.Next(ctx)
		var gap *GapError
		if errors.As(err, &gap) {
			got = append(got, "-")
			continue
		}
		must(b.t, err)
		for range c.Unparsable {
			got = append(got, "x")
		}
		for _, r := range c.Records {
			got = append(got, r.ID)
		}
		last = c.Position
	}
	if slices.Sort(got); !slices.Equal(got, wanted) {
		b.t.Fatalf("read %q, want %q", got, wanted)
	}
	return last
}

func TestContinueFromAPosition(t *testing.T) {
	b := newBus(t, 2)
	b.send(0, event(1), event(2)+"\n"+event(3), "", "no JSON")
	b.send(1, `{"records":[{"category":"kube-audit","resourceId":"/subscriptions/1","properties":{"log":`+strconv.Quote(event(4))+`}}]}`)
	r := b.open(Position{})
	at := b.want(r, "1 2 3 4 x")
	if want := map[int32]int64{0: 4, 1: 1}; !maps.Equal(at.Next, want) || at.TopicID == "" {
		t.Errorf("the position is %+v, want %v", at, want)
	}
	b.send(0, event(5))
	b.send(1, event(6))
	later := b.want(r, "5 6")
	b.send(0, event(7))
	b.want(b.open(at), "5 6 7")
	b.want(b.open(later), "7")
	if at.Next[0] != 4 {
		t.Error("a position that was returned has changed")
	}
}

func TestNewPartitionIsRead(t *testing.T) {
	b := newBus(t, 1)
	b.send(0, event(1))
	r := b.open(Position{})
	b.want(r, "1")
	_, err := b.admin.CreatePartitions(t.Context(), 1, name)
	must(t, err)
	b.connect()
	b.send(1, event(2))
	b.want(r, "2")
}

func TestMissingMessagesAreAGap(t *testing.T) {
	b := newBus(t, 1)
	b.send(0, event(1), event(2), event(3))
	at := b.want(b.open(Position{}), "1 2 3")
	at.Next[0] = 1
	var offsets kadm.Offsets
	offsets.AddOffset(name, 0, 2, -1)
	_, err := b.admin.DeleteRecords(t.Context(), offsets)
	must(t, err)
	b.want(b.open(at), "- 3")

	at.Next[0] = 9
	b.want(b.open(at), "- 3") // fewer than were read
}

func TestTopicIsCreatedAgain(t *testing.T) {
	b := newBus(t, 1)
	b.send(0, event(1), event(2))
	reading := b.open(Position{})
	at := b.want(reading, "1 2")
	_, err := b.admin.DeleteTopic(t.Context(), name)
	must(t, err)
	b.create(1)
	b.connect()
	b.send(0, event(3), event(4), event(5))
	b.want(b.open(at), "- 3 4 5")
	b.want(reading, "- 3 4 5")
}

func TestNextEndsWithItsContext(t *testing.T) {
	b := newBus(t, 1)
	r := b.open(Position{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for {
		c, err := r.Next(ctx)
		if err == nil && !c.Caught.IsZero() { // the end of the topic
			continue
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		return
	}
}

// caught reads until the reader says that it has reached the end of the topic, and returns the IDs that it has read before.
func (b *bus) caught(r *Reader) (ids []string, at time.Time) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
	defer cancel()
	for {
		c, err := r.Next(ctx)
		must(b.t, err)
		for _, one := range c.Records {
			ids = append(ids, one.ID)
		}
		if !c.Caught.IsZero() {
			slices.Sort(ids)
			return ids, c.Caught
		}
	}
}

// Changes wait for their records until the topic is read up to where it ended at a later time. The end can be that of a transaction, which is no message.
func TestEndOfTheTopic(t *testing.T) {
	b := newBus(t, 3)
	b.send(0, event(1), event(2))
	b.send(1, event(3))
	b.transaction(1, true, event(4))
	b.transaction(0, false, event(5))
	written := time.Now()
	r := b.open(Position{})
	ids, first := b.caught(r)
	if want := []string{"1", "2", "3", "4"}; !slices.Equal(ids, want) || first.Before(written) {
		t.Errorf("read %q, all that was written before %s; want %q, after %s", ids, first, want, written)
	}
	ids, second := b.caught(r)
	if len(ids) > 0 || !second.After(first) {
		t.Errorf("without messages: read %q, all that was written before %s; before that %s", ids, second, first)
	}
	b.send(2, event(6))
	written = time.Now()
	var later []string
	for second.Before(written) {
		ids, second = b.caught(r)
		later = append(later, ids...)
	}
	if want := []string{"6"}; !slices.Equal(later, want) {
		t.Errorf("behind the end: read %q, want %q", later, want)
	}
}

// What is in a transaction that is open may still come.
func TestOpenTransactionIsNotTheEnd(t *testing.T) {
	b := newBus(t, 1)
	end := b.begin(0, event(1))
	written := time.Now()
	r := b.open(Position{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if c, err := r.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %+v, %v", c, err)
	}
	end(true)
	if ids, at := b.caught(r); !slices.Equal(ids, []string{"1"}) || at.Before(written) {
		t.Errorf("read %q, all that was written before %s; want 1, after %s", ids, at, written)
	}
}
