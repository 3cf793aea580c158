// Package topic reads audit events from a topic of Kafka or of Azure Event Hubs: what a log shipper or Azure Monitor writes there.
//
// The position is the caller's: a reader begins where it is asked to and commits nothing, and there is no consumer group. Only committed
// records are read. What was removed before it was read is reported by a [GapError].
package topic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
)

const (
	maxPoll        = 1000
	fetchBytes     = 8 << 20
	refreshDefault = 10 * time.Second
)

// Options of a [Reader]. Client, Topic and Parser are required.
type Options struct {
	// Client has the brokers, TLS and SASL.
	Client []kgo.Opt
	Topic  string
	Parser *audit.Parser
	// Refresh is the interval at which new partitions and the ends of all are looked for. 0 means 10 seconds.
	Refresh time.Duration
}

// Position is a place in a topic. The zero value is its start.
type Position struct {
	TopicID string          `json:"topicID,omitzero"` // "": the brokers do not have one
	Next    map[int32]int64 `json:"next,omitzero"`    // the next offset by partition; partitions that are not there begin at their start
}

// Chunk is what some messages have, and the position behind them.
type Chunk struct {
	audit.Batch
	Position Position
	// Caught says that the messages that had been written before this time are in former chunks. Zero: it is not known whether they are.
	Caught time.Time
}

// GapError is returned where messages may be missing in a partition. The reader continues behind them.
type GapError struct {
	Partition int32
	From, To  int64 // the first offset that is missing, and that behind the last one; 0 and 0 if the topic is another one
	Why       string
}

func (e *GapError) Error() string {
	return fmt.Sprintf("audit topic: partition %d: messages from offset %d up to %d may be missing: %s", e.Partition, e.From, e.To, e.Why)
}

// Reader reads a topic. It is for one goroutine.
type Reader struct {
	options   Options
	client    *kgo.Client
	admin     *kadm.Client
	position  Position
	reading   map[int32]bool
	refreshed time.Time
	asked     time.Time       // when ends were asked for; zero: they were reached
	ends      map[int32]int64 // of the partitions
	gaps      []*GapError
}

// Open returns a reader from a position on. It does not connect yet.
func Open(o Options, from Position) (*Reader, error) {
	if o.Refresh == 0 {
		o.Refresh = refreshDefault
	}
	client, err := kgo.NewClient(append(slices.Clone(o.Client),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{}), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.FetchMaxBytes(fetchBytes), kgo.KeepRetryableFetchErrors())...)
	if err != nil {
		return nil, fmt.Errorf("audit topic %s: %w", o.Topic, err)
	}
	next := maps.Clone(from.Next)
	if next == nil {
		next = map[int32]int64{}
	}
	return &Reader{
		options: o, client: client, admin: kadm.NewClient(client), position: Position{from.TopicID, next}, reading: map[int32]bool{},
	}, nil
}

// Check asks the brokers whether the topic can be read. It reads no messages.
func Check(ctx context.Context, o Options) error {
	r, err := Open(o, Position{})
	if err != nil {
		return err
	}
	defer r.Close()
	if _, _, _, err := r.lookUp(ctx); err != nil {
		return fmt.Errorf("audit topic %s: %w", o.Topic, err)
	}
	return nil
}

// Close ends the reader.
func (r *Reader) Close() { r.client.Close() }

// Next waits for messages and returns what they have, or that the end of the topic was reached. Its errors are a *[GapError], those of ctx, and those of Kafka, after which it can be
// called again.
func (r *Reader) Next(ctx context.Context) (Chunk, error) {
	for {
		if len(r.gaps) > 0 {
			gap := r.gaps[0]
			r.gaps = r.gaps[1:]
			return Chunk{}, gap
		}
		if at := r.caughtUp(); !at.IsZero() {
			return Chunk{Position: r.present(), Caught: at}, nil
		}
		if time.Since(r.refreshed) >= r.options.Refresh {
			if err := r.refresh(ctx); err != nil {
				return Chunk{}, fmt.Errorf("audit topic %s: %w", r.options.Topic, err)
			}
			continue
		}
		poll, cancel := context.WithDeadline(ctx, r.refreshed.Add(r.options.Refresh))
		fetches := r.client.PollRecords(poll, maxPoll)
		cancel()
		if ctx.Err() != nil {
			return Chunk{}, ctx.Err()
		}
		err := r.failed(fetches)
		if c, ok := r.take(fetches); ok {
			return c, nil // what has failed fails again
		}
		if err != nil {
			return Chunk{}, fmt.Errorf("audit topic %s: %w", r.options.Topic, err)
		}
	}
}

// take parses the messages.
func (r *Reader) take(fetches kgo.Fetches) (c Chunk, ok bool) {
	fetches.EachRecord(func(m *kgo.Record) {
		ok = true
		r.position.Next[m.Partition] = m.Offset + 1
		if len(m.Value) > 0 && !m.Attrs.IsControl() { // the end of a transaction has an offset
			r.options.Parser.Message(m.Value, &c.Batch)
		}
	})
	if ok {
		c.Position = r.present()
	}
	return c, ok
}

// present returns a copy of the position.
func (r *Reader) present() Position { return Position{r.position.TopicID, maps.Clone(r.position.Next)} }

// caughtUp returns once for each look at the ends of the partitions when that was, as soon as all up to there is read; zero: it is not.
func (r *Reader) caughtUp() time.Time {
	for partition, end := range r.ends {
		if r.position.Next[partition] < end {
			return time.Time{}
		}
	}
	at := r.asked
	r.asked = time.Time{}
	return at
}

// failed handles the errors of fetches. A partition whose offset is not there is looked up again.
func (r *Reader) failed(fetches kgo.Fetches) (err error) {
	fetches.EachError(func(_ string, partition int32, e error) {
		var loss *kgo.ErrDataLoss
		switch {
		case errors.Is(e, context.DeadlineExceeded) || errors.Is(e, context.Canceled): // of the poll
		case errors.As(e, &loss):
			r.gaps = append(r.gaps, &GapError{partition, loss.ResetTo, loss.ConsumedTo, "the partition has lost acknowledged messages"})
		case errors.Is(e, kerr.OffsetOutOfRange), errors.Is(e, kerr.UnknownTopicOrPartition), errors.Is(e, kerr.UnknownTopicID), errors.Is(e, kerr.InconsistentTopicID):
			r.client.RemoveConsumePartitions(map[string][]int32{r.options.Topic: {partition}})
			delete(r.reading, partition)
			r.refreshed = time.Time{}
		default:
			err = errors.Join(err, e)
		}
	})
	return err
}

// refresh begins to read partitions that are not read yet, and notes where all end.
func (r *Reader) refresh(ctx context.Context) error {
	topic, begun := r.options.Topic, time.Now()
	id, starts, ends, err := r.lookUp(ctx)
	if err != nil {
		return err
	}
	r.checkID(id)
	add := map[int32]kgo.Offset{}
	starts.Each(func(start kadm.ListedOffset) {
		end, ok := ends.Lookup(topic, start.Partition)
		if ok && !r.reading[start.Partition] {
			add[start.Partition] = kgo.NewOffset().At(r.begin(start.Partition, start.Offset, end.Offset))
			r.reading[start.Partition] = true
		}
	})
	r.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: add})
	r.refreshed, r.asked, r.ends = time.Now(), begun, map[int32]int64{}
	ends.Each(func(end kadm.ListedOffset) { r.ends[end.Partition] = end.Offset })
	return nil
}

// lookUp asks the brokers for the topic's ID, and where its partitions begin and end.
func (r *Reader) lookUp(ctx context.Context) (id kadm.TopicID, starts, ends kadm.ListedOffsets, err error) {
	topic := r.options.Topic
	details, err := r.admin.ListTopics(ctx, topic)
	if err == nil {
		err = details.Error()
	}
	if err == nil {
		starts, err = r.admin.ListStartOffsets(ctx, topic)
	}
	if err == nil {
		err = starts.Error()
	}
	if err == nil {
		ends, err = r.admin.ListEndOffsets(ctx, topic)
	}
	if err == nil {
		err = ends.Error()
	}
	return details[topic].ID, starts, ends, err
}

// checkID begins again if the topic is another one of the same name.
func (r *Reader) checkID(id kadm.TopicID) {
	if id == (kadm.TopicID{}) {
		return
	}
	known := r.position.TopicID
	r.position.TopicID = id.String()
	if known == "" || known == r.position.TopicID {
		return
	}
	r.client.PurgeTopicsFromConsuming(r.options.Topic)
	clear(r.position.Next)
	clear(r.reading)
	r.gaps = append(r.gaps, &GapError{Why: "the topic was created again"})
}

// begin returns the offset to begin with in a partition.
func (r *Reader) begin(partition int32, start, end int64) int64 {
	next, known := r.position.Next[partition]
	switch {
	case !known:
	case next < start:
		r.gaps = append(r.gaps, &GapError{partition, next, start, "they were removed before they were read"})
	case next > end:
		r.gaps = append(r.gaps, &GapError{partition, end, next, "the partition has fewer messages than were read"})
	default:
		return next
	}
	r.position.Next[partition] = start
	return start
}
