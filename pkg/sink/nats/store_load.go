package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

const (
	copyAtOne = 2000 // keys per commit of the working copy
	takeovers = 20   // attempts, against a predecessor that goes on writing
)

// found is what a bucket held beside its keys.
type found struct {
	redo []event.KV // a write that is not complete
	torn bool       // it ended with what belongs to no whole write, or had been emptied
}

// open takes the bucket over and gives its content to commit.
func (b *bucket) open(ctx context.Context, commit func(context.Context, []event.KV) error) (found, error) {
	if err := b.dial(); err != nil {
		return found{}, err
	}
	var (
		last head
		torn bool
		err  error
	)
	for range takeovers {
		if last, torn, err = b.takeOver(ctx); err == nil || !lostRace(err) {
			break
		}
	}
	if err != nil {
		return found{}, err
	}
	redo, err := b.read(ctx, last.Redo, commit)
	return found{redo, torn}, err
}

func lostRace(err error) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence
}

// takeOver puts this writer's head at the end: whoever wrote before fails from then on.
func (b *bucket) takeOver(ctx context.Context) (last head, torn bool, err error) {
	info, handle, err := b.find(ctx)
	if err != nil {
		return head{}, false, err
	}
	b.last = info.State.LastSeq
	identity, _ := token(string(checkpoint.IdentityKey()))
	mine, err := b.value(ctx, identity)
	if err != nil {
		return head{}, false, err
	}
	m, err := b.value(ctx, headToken)
	switch {
	case err != nil:
		return head{}, false, err
	case mine != nil:
		if err := checkpoint.CheckIdentity(mine.Data, b.id); err != nil {
			return head{}, false, err
		}
	case m != nil && info.State.Msgs == 1: // emptied by ResetStore
		return head{}, true, b.begin(ctx, true)
	case info.State.Msgs > 0:
		return head{}, false, fmt.Errorf("%w: it holds %d values, and does not say whose it is", checkpoint.ErrForeign, info.State.Msgs)
	}
	if m == nil { // new, or filling it was cut short
		if err := b.purge(ctx, handle); err != nil {
			return head{}, false, err
		}
		torn = info.State.LastSeq > 0 // also where somebody emptied it
		return head{}, torn, b.begin(ctx, torn)
	}
	if last, err = decodeHead(m.Data); err != nil {
		return head{}, false, err
	}
	torn = last.Redo == 0 && m.Sequence < info.State.LastSeq
	b.redo, b.unsure = last.Redo, false
	b.pass, b.valid = last.Pass, last.Valid
	msgs := []*nats.Msg{put(b.prefix, string(checkpoint.IdentityKey()), checkpoint.EncodeIdentity(b.id))}
	if torn { // in the same write: the next start would not see it
		msgs = append(msgs, put(b.prefix, string(checkpoint.ResetKey()), checkpoint.ResetRequested()))
	}
	return last, torn, b.publish(ctx, append(msgs, b.head(last.Redo)))
}

// begin makes an empty checkpoint.
func (b *bucket) begin(ctx context.Context, reset bool) error {
	b.redo, b.unsure = 0, false
	content := map[string][]byte{}
	if reset {
		content[string(checkpoint.ResetKey())] = checkpoint.ResetRequested()
	}
	return b.fill(ctx, content)
}

// read gives every key to commit, and returns the redo of n messages.
func (b *bucket) read(ctx context.Context, n int, commit func(context.Context, []event.KV) error) ([]event.KV, error) {
	messages, end, err := b.reader(ctx, 1, readAhead)
	if err != nil {
		return nil, err
	}
	defer end()
	b.cleaning = cleaning{}
	redo := make([][]byte, n)
	var changes []event.KV
	flush := func() error {
		full := changes
		changes = nil
		return commit(ctx, full)
	}
	for delivered := uint64(1); ; delivered++ {
		m, meta, err := b.next(ctx, messages)
		if err != nil {
			return nil, err
		}
		if meta.Sequence.Consumer != delivered {
			return nil, errors.New("a message was lost on the way")
		}
		t := strings.TrimPrefix(m.Subject(), b.prefix)
		switch i, isRedo := redoIndex(t); {
		case m.Headers().Get(headerOperation) != "", passOf(m.Headers()) < b.valid:
			b.cleaning.buried(1)
		case t == headToken:
		case isRedo && i < n:
			redo[i] = m.Data()
		case isRedo: // of a write that was never valid
		default:
			key, err := keyOf(t, m.Headers())
			if err != nil {
				return nil, err
			}
			if string(key) != string(checkpoint.IdentityKey()) { // the working copy has its own
				changes = append(changes, event.KV{Key: key, Value: append([]byte{}, m.Data()...)})
			}
		}
		if meta.Sequence.Stream >= b.last { // the head that took it over
			break
		}
		if len(changes) == copyAtOne {
			if err := flush(); err != nil {
				return nil, err
			}
		}
	}
	if err := flush(); err != nil {
		return nil, err
	}
	for i, data := range redo {
		if data == nil {
			return nil, fmt.Errorf("%w: of an incomplete write part %d of %d is missing", checkpoint.ErrCorrupt, i+1, n)
		}
		part, err := unpack(data)
		if err != nil {
			return nil, err
		}
		changes = append(changes, part...)
	}
	return changes, nil
}

func redoIndex(t string) (i int, ok bool) {
	number, ok := strings.CutPrefix(t, redoToken)
	i, err := strconv.Atoi(number)
	return i, ok && err == nil
}

// reader reads the stream from a sequence on, ahead messages at a time; end releases it.
func (b *bucket) reader(ctx context.Context, from uint64, ahead int) (messages jetstream.MessagesContext, end func(), err error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	consumer, err := b.js.CreateConsumer(ctx, b.stream, jetstream.ConsumerConfig{
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       max(from, 1),
		AckPolicy:         jetstream.AckNonePolicy,
		InactiveThreshold: readerTTL,
		Replicas:          1,
		MemoryStorage:     true,
	})
	if err != nil {
		return nil, nil, b.explain(err)
	}
	if messages, err = consumer.Messages(jetstream.PullMaxMessages(ahead)); err != nil {
		return nil, nil, b.explain(err)
	}
	return messages, func() {
		messages.Stop()
		ctx, cancel := b.bound(context.Background())
		defer cancel()
		// One that is left behind ends by itself.
		_ = b.js.DeleteConsumer(ctx, b.stream, consumer.CachedInfo().Name)
	}, nil
}

func (b *bucket) next(ctx context.Context, messages jetstream.MessagesContext) (jetstream.Msg, *jetstream.MsgMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, readIdle)
	defer cancel()
	m, err := messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		return nil, nil, b.explain(err)
	}
	meta, err := m.Metadata()
	return m, meta, err
}
