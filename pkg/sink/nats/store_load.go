package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

const (
	copyBatch = 2000 // keys per commit of the working copy
	takeovers = 20   // attempts to take the bucket over while a predecessor continues to write
)

// leftover is what Load found in a bucket beside complete keys.
type leftover struct {
	redo []event.KV // a packed write that must be completed
	torn bool       // the stream ended with messages of an incomplete write, or was emptied
}

// open takes the bucket over and passes its content to commit. overtaken returns an error if a later writer is at work, from which the bucket
// must not be taken.
func (b *bucket) open(ctx context.Context, overtaken func(context.Context) error, commit func(context.Context, []event.KV) error) (leftover, error) {
	if err := b.dialUnlessOpen(); err != nil {
		return leftover{}, err
	}
	var (
		last head
		torn bool
		err  error
	)
	for range takeovers {
		if last, torn, err = b.takeOver(ctx, overtaken); err == nil || !lostRace(err) {
			break
		}
	}
	if err != nil {
		return leftover{}, err
	}
	redo, err := b.readAll(ctx, last.Redo, commit)
	if err != nil || len(b.damaged) == 0 {
		return leftover{redo, torn}, err
	}
	// The values that the foreign messages have replaced are lost, so request a reset.
	reset := event.KV{Key: checkpoint.ResetKey(), Value: checkpoint.ResetRequested()}
	if err := b.write(ctx, map[string][]byte{string(reset.Key): reset.Value}); err != nil {
		return leftover{}, err
	}
	return leftover{redo, true}, commit(ctx, []event.KV{reset})
}

func lostRace(err error) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence
}

// takeOver writes this writer's head at the stream's end. Writes of earlier writers fail from then on.
func (b *bucket) takeOver(ctx context.Context, overtaken func(context.Context) error) (last head, torn bool, err error) {
	found, err := b.find(ctx)
	if err != nil {
		return head{}, false, err
	}
	// After the bucket's end is known: if a later writer takes the bucket over from here on, this writer's head is refused.
	if err := overtaken(ctx); err != nil {
		return head{}, false, err
	}
	b.head = found.state.LastSeq
	clear(b.damaged)
	mine, err := b.value(ctx, identityToken())
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
	case m != nil && found.state.Msgs == 1: // ResetStore has emptied it
		return head{}, true, b.begin(ctx, true)
	case found.state.Msgs > 0 && !b.overwritten():
		return head{}, false, fmt.Errorf("%w: it holds %d values, and does not say whose it is", checkpoint.ErrForeign, found.state.Msgs)
	}
	if m == nil { // the stream is new, or fill was interrupted
		if err := b.purge(ctx, found); err != nil {
			return head{}, false, err
		}
		torn = found.state.LastSeq > 0 // also if a user has emptied it
		return head{}, torn, b.begin(ctx, torn)
	}
	if last, err = decodeHead(m.Data); err != nil {
		return head{}, false, err
	}
	if last.Redo == 0 && m.Sequence < found.state.LastSeq {
		mine, others, err := b.readAfter(ctx, m.Sequence, found.state.LastSeq)
		if err != nil {
			return head{}, false, err
		}
		torn = mine || others
	}
	delete(b.damaged, identityToken()) // it is written below
	b.redo, b.headUnknown = last.Redo, false
	b.pass, b.valid = last.Pass, last.Valid
	msgs := []*nats.Msg{put(b.prefix, string(checkpoint.IdentityKey()), checkpoint.EncodeIdentity(b.id))}
	if torn { // in the same write, because the next start would not notice it
		msgs = append(msgs, put(b.prefix, string(checkpoint.ResetKey()), checkpoint.ResetRequested()))
	}
	return last, torn, b.publish(ctx, append(msgs, b.headMessage(last.Redo)), false)
}

// overwritten reports whether foreign messages may have replaced the identity in the bucket, while its description still names this
// pipeline.
func (b *bucket) overwritten() bool {
	return len(b.damaged) > 0 && strings.HasPrefix(b.stream.config.Description, bucketDescription(b.id))
}

// begin writes an empty checkpoint, with a request for a reset if reset is true.
func (b *bucket) begin(ctx context.Context, reset bool) error {
	b.redo, b.headUnknown = 0, false
	content := map[string][]byte{}
	if reset {
		content[string(checkpoint.ResetKey())] = checkpoint.ResetRequested()
	}
	return b.fill(ctx, content)
}

// readAll passes every key to commit, and returns the changes of the redo, which has n messages.
func (b *bucket) readAll(ctx context.Context, n int, commit func(context.Context, []event.KV) error) ([]event.KV, error) {
	b.cleaning = cleaning{}
	redo := make([][]byte, n)
	removed := make([]bool, n) // parts of the redo, which are removed when all keys are written
	var changes []event.KV
	flush := func() error {
		full := changes
		changes = nil
		return commit(ctx, full)
	}
	err := b.read(ctx, sequences(1, b.head), func(m jetstream.Msg, seq uint64) error { // up to the head that takeOver has written
		t := strings.TrimPrefix(m.Subject(), b.prefix)
		switch i, isRedo := redoIndex(t); {
		case !b.wrote(m.Headers(), seq):
			b.noteForeign(m.Subject(), seq)
		case m.Headers().Get(headerOperation) != "":
			b.cleaning.addTombstones(1)
			if isRedo && i < n {
				removed[i] = true
			}
			// A replica that lags may have returned the value that was deleted. A token that is no key is of a foreign message that was removed.
			if key, err := keyOf(t, m.Headers()); err == nil && !isRedo {
				changes = append(changes, event.KV{Key: key})
			}
		case passOf(m.Headers()) < b.valid:
			b.cleaning.addTombstones(1)
		case t == headToken:
		case isRedo && i < n:
			redo[i], removed[i] = m.Data(), false
		case isRedo: // it belongs to a write that never became valid
		default:
			key, err := keyOf(t, m.Headers())
			if err != nil {
				return err
			}
			if string(key) != string(checkpoint.IdentityKey()) { // the working copy has an identity of its own
				changes = append(changes, event.KV{Key: key, Value: append([]byte{}, m.Data()...)})
			}
		}
		if len(changes) < copyBatch {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if err != nil {
		return nil, err
	}
	if slices.Contains(removed, true) {
		return nil, nil // the write only lacks its head
	}
	for i, data := range redo {
		if data == nil && len(b.damaged) > 0 {
			return nil, nil // open requests a reset
		}
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
