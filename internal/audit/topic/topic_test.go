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

	"github.com/kubebridge/kubebridge/internal/audit"
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

func (b *bus) open(from Position) *Reader {
	b.t.Helper()
	r, err := Open(Options{Client: append(slices.Clone(b.options), kgo.MetadataMinAge(10*time.Millisecond)), Topic: name, Parser: audit.NewParser(audit.Options{}), Refresh: 200 * time.Millisecond}, from)
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
	b.send(1, `{"records":[{"category":"kube-audit","properties":{"log":`+strconv.Quote(event(4))+`}}]}`)
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
	if _, err := r.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
