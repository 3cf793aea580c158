package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

const (
	redoBytes = 256 << 10 // size of one message of a redo
	// maxRedo bounds a redo, which must be one publish. Servers hold at most 128 MB of all
	// clients' unstored messages.
	maxRedo = 48 << 20
	// fastMessages bounds a fast batch, so that the client has room for the server's answers during the batch.
	fastMessages = 10_000
)

// bucket is the stream behind a key-value bucket, with what is known of its content. Its methods
// are called one at a time.
type bucket struct {
	appender
	id     event.Identity // the owner's identity; the link's identity may lack the cluster's UID
	prefix string         // prefix of the subjects of keys

	cleanFrom  int
	purgeDelay time.Duration
	cleaning   cleaning

	redo        int    // number of messages of a redo whose write is not known to be complete
	pass        uint64 // number of the present cleaning pass, which all new messages carry: see store_clean.go
	valid       uint64 // messages of lower passes are dead
	headUnknown bool   // the stream's end must be read before the next write, as at every look
	// damaged has the keys, as tokens, whose messages were replaced by foreign ones and are not written again yet.
	damaged  map[string]bool
	fast     bool  // the stream accepts fast batches
	breached bool  // its settings may have removed messages
	fenced   error // set once another writer has taken over
}

// newBucket returns the bucket of a pipeline. It connects as the pipeline's sink does.
func newBucket(e *endpoint) bucket {
	b := bucket{
		appender: appender{
			link:   link{endpoint: e, log: zap.NewNop(), lookEvery: lookEvery}, // no log: the sink logs when the connection is lost
			writer: nuid.Next(), most: chunkMessages, patience: apiTimeout,
		},
		cleanFrom: cleanFrom, purgeDelay: defaultPurgeDelay, damaged: map[string]bool{},
	}
	b.setName(BucketName(e.id), e.id)
	return b
}

// setName makes b the bucket of that name.
func (b *bucket) setName(name string, id event.Identity) {
	b.id = id
	b.name, b.prefix = bucketStream(name)
	clear(b.damaged)
}

// bucketName returns the bucket's name, without the prefix of its stream.
func (b *bucket) bucketName() string { return strings.TrimPrefix(b.name, bucketPrefix) }

// find looks the stream up, and creates it if it is missing.
func (b *bucket) find(ctx context.Context) (stream, error) {
	found, err := b.lookUp(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		config := bucketDefinition(b.name, b.prefix, b.id, b.config.Stream.Replicas)
		config.AllowBatchPublish = b.conn.knowsFastBatches()
		found, err = b.change(ctx, "create", config, b.conn.js.CreateStream)
	}
	if err != nil {
		return stream{}, err
	}
	if _, err = b.inspectBucket(found.config); err != nil {
		b.breached = true
		return stream{}, err
	}
	b.fast, b.stream = found.config.AllowBatchPublish, found
	return found, nil
}

// inspectBucket returns an error for a stream that cannot hold a checkpoint. weak has the settings that work but are not
// as recommended.
func (b *bucket) inspectBucket(c jetstream.StreamConfig) (weak []finding, err error) {
	breaks, weak := divide(settings(c, b.config.Stream.Replicas, true), []finding{
		{wrong: !c.AllowAtomicPublish, breaks: true, found: "its stream has allow_atomic false", want: "true (NATS 2.12 or newer)"},
		{wrong: c.MaxMsgsPerSubject != 1, breaks: true, found: fmt.Sprintf("it keeps %d values of a key", c.MaxMsgsPerSubject), want: "1"},
		{wrong: c.MaxAge > 0, breaks: true, found: fmt.Sprintf("it forgets values after %v", c.MaxAge), want: "never"},
	})
	if len(breaks) == 0 {
		return weak, nil
	}
	var all []string
	for _, f := range breaks {
		all = append(all, f.mismatch())
	}
	return weak, fmt.Errorf("%w: %s", checkpoint.ErrUnusable, strings.Join(all, "; "))
}

// value returns the message of a key; nil if there is none that a bridge wrote.
func (b *bucket) value(ctx context.Context, token string) (*nats.RawStreamMsg, error) {
	m, err := b.lastOf(ctx, b.prefix+token)
	if m == nil || err != nil || b.wrote(m.Header, m.Sequence) {
		return m, err
	}
	if m.Header.Get(headerPass) != "" && m.Header.Get(headerPlace) == "" {
		return nil, fmt.Errorf("%w: its messages do not say where they stand", checkpoint.ErrOlder)
	}
	b.noteForeign(m.Subject, m.Sequence)
	return nil, nil
}

// wrote reports whether a bridge wrote a message, at this sequence.
func (b *bucket) wrote(h nats.Header, seq uint64) bool {
	return h.Get(headerPlace) == b.stream.place(seq)
}

// noteForeign records a foreign message, and the key whose message it replaces. Messages that JetStream copies from another
// stream keep their own subjects, and replace no key.
func (b *bucket) noteForeign(subject string, seq uint64) {
	b.foreign.found(b.name, seq, subject)
	if token, found := strings.CutPrefix(subject, b.prefix); found && !strings.Contains(token, ".") {
		b.damaged[token] = true
	}
}

// readAfter reads the messages after a sequence, to the last one that the stream's leader has, and reports whether this writer, or another
// bridge, wrote any of them.
func (b *bucket) readAfter(ctx context.Context, seq, last uint64) (mine, others bool, err error) {
	which := sequences(seq+1, 0)
	which.before = last + 1
	which.config.HeadersOnly = true
	err = b.read(ctx, which, func(m jetstream.Msg, seq uint64) error {
		switch {
		case !b.wrote(m.Headers(), seq):
			b.noteForeign(m.Subject(), seq)
		case m.Headers().Get(headerWriter) == b.writer:
			mine = true
		default:
			others = true
		}
		return nil
	})
	return mine, others, err
}

// ready connects, and finds the stream's end if it is not known. lost is true if the stream has lost
// data, so that everything must be written again.
func (b *bucket) ready(ctx context.Context) (lost bool, err error) {
	if b.fenced != nil {
		return false, b.fenced
	}
	if err := b.dialUnlessOpen(); err != nil {
		return false, err
	}
	if !b.headUnknown && !b.lookDue(&b.stream) {
		return false, nil
	}
	found, err := b.find(ctx)
	if errors.Is(err, checkpoint.ErrUnusable) { // final only in Load: drop the type
		err = errors.New(err.Error())
	}
	if err != nil {
		return false, err
	}
	if found.state.LastSeq > b.head {
		if _, others, err := b.readAfter(ctx, b.head, found.state.LastSeq); others || err != nil {
			if others {
				b.fenced, err = checkpoint.ErrFenced, checkpoint.ErrFenced
			}
			return false, err
		}
	}
	m, err := b.value(ctx, headToken)
	if err != nil {
		return false, err
	}
	if m != nil {
		h, err := decodeHead(m.Data)
		if err != nil {
			return false, err
		}
		if h.Writer != b.writer {
			b.fenced = checkpoint.ErrFenced
			return false, b.fenced
		}
		b.redo = h.Redo
	}
	lost = m == nil || b.breached || found.state.LastSeq < b.head
	if lost {
		if err := b.purge(ctx, found); err != nil {
			return false, err // head shows the loss again to the next call
		}
		b.redo, b.breached = 0, false
	}
	b.head, b.headUnknown = found.state.LastSeq, false
	return lost, nil
}

// purge removes all messages, or those that opts select. The stream continues its sequence.
func (b *bucket) purge(ctx context.Context, found stream, opts ...jetstream.StreamPurgeOpt) error {
	if found.state.Msgs == 0 {
		return nil
	}
	err := b.conn.do(ctx, func(ctx context.Context) error { return found.handle.Purge(ctx, opts...) })
	if err != nil {
		return b.explain("purge", err)
	}
	return nil
}

// write makes all changes durable, or none.
func (b *bucket) write(ctx context.Context, changes map[string][]byte) error {
	msgs, err := b.messages(changes)
	if err != nil {
		return err
	}
	deleted := 0
	for _, value := range changes {
		if value == nil {
			deleted++
		}
	}
	msgs = append(msgs, b.repairs(changes)...)
	if chunks := divideMessages(append(msgs, b.headMessage(0)), b.most, chunkBytes); len(chunks) == 1 && b.redo == 0 {
		b.cleaning.addTombstones(deleted)
		if err := b.publish(ctx, chunks[0], false); err != nil {
			return err
		}
		clear(b.damaged)
		return nil
	}
	redo, err := b.pack(changes)
	if err != nil {
		return err
	}
	n := len(redo)
	chunks := divideMessages(append(redo, b.headMessage(n)), b.most, maxRedo)
	if len(chunks) != 1 {
		return fmt.Errorf("%d changes are more than the server takes at once", len(changes))
	}
	if err := b.publish(ctx, chunks[0], false); err != nil {
		return err
	}
	for i := range max(n, b.redo) {
		m := &nats.Msg{Subject: b.prefix + redoKey(i), Header: nats.Header{}}
		remove(m)
		msgs = append(msgs, m)
	}
	b.cleaning.addTombstones(deleted + max(n, b.redo))
	b.redo = n
	if err := b.publishAll(ctx, append(msgs, b.headMessage(0))); err != nil {
		return err
	}
	b.redo = 0
	clear(b.damaged)
	return nil
}

// repairs returns messages that replace the foreign messages whose keys are not among the changes.
func (b *bucket) repairs(changes map[string][]byte) (msgs []*nats.Msg) {
	left := maps.Clone(b.damaged)
	delete(left, headToken) // every write ends with a head
	for key := range changes {
		t, _ := token(key)
		delete(left, t)
	}
	for _, t := range slices.Sorted(maps.Keys(left)) {
		m := &nats.Msg{Subject: b.prefix + t, Header: nats.Header{}}
		if remove(m); t == identityToken() {
			m = put(b.prefix, string(checkpoint.IdentityKey()), checkpoint.EncodeIdentity(b.id))
		}
		msgs = append(msgs, m)
	}
	b.cleaning.addTombstones(len(msgs))
	return msgs
}

// fill writes the whole checkpoint to a stream whose content is not needed. It need not be atomic, because a stream without a head at its
// end is no checkpoint.
func (b *bucket) fill(ctx context.Context, all map[string][]byte) error {
	all[string(checkpoint.IdentityKey())] = checkpoint.EncodeIdentity(b.id)
	msgs, err := b.messages(all)
	if err != nil {
		return err
	}
	b.cleaning = cleaning{}
	err = b.publishAll(ctx, append(msgs, b.headMessage(0)))
	if err == nil {
		b.redo = 0
		clear(b.damaged)
	}
	return err
}

func (b *bucket) headMessage(redo int) *nats.Msg {
	return &nats.Msg{
		Subject: b.prefix + headToken, Header: nats.Header{},
		Data: head{Version: checkpoint.Version, Writer: b.writer, Redo: redo, Pass: b.pass, Valid: b.valid}.encode(),
	}
}

// messages returns the messages of the changes, in the order of their keys, so that the identity comes first.
func (b *bucket) messages(changes map[string][]byte) ([]*nats.Msg, error) {
	var msgs []*nats.Msg
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		m := put(b.prefix, key, changes[key])
		if limit := b.conn.nc.MaxPayload(); int64(m.Size()) > limit {
			return nil, fmt.Errorf("the value of %q has %d bytes, the server takes %d in all (max_payload): raise it", key, len(m.Data), limit)
		}
		msgs = append(msgs, m)
	}
	return msgs, nil
}

// pack returns the messages of a redo: the changes in packed form.
func (b *bucket) pack(changes map[string][]byte) ([]*nats.Msg, error) {
	var (
		msgs []*nats.Msg
		all  []packed
		size int
	)
	end := func() error {
		data, err := json.Marshal(all)
		msgs = append(msgs, &nats.Msg{Subject: b.prefix + redoKey(len(msgs)), Data: data, Header: nats.Header{}})
		all, size = nil, 0
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		all = append(all, packed{[]byte(key), changes[key]})
		if size += len(key) + len(changes[key]); size > redoBytes {
			if err := end(); err != nil {
				return nil, err
			}
		}
	}
	return msgs, end()
}

// divideMessages divides messages into chunks of at most the given number of messages and bytes.
func divideMessages(msgs []*nats.Msg, most, limit int) (chunks [][]*nats.Msg) {
	bytes := 0
	for _, m := range msgs {
		size := m.Size() + 150 // for the headers that publishing adds
		if n := len(chunks); n == 0 || len(chunks[n-1]) == most || bytes+size > limit {
			chunks, bytes = append(chunks, nil), 0
		}
		n := len(chunks) - 1
		chunks[n] = append(chunks[n], m)
		bytes += size
	}
	return chunks
}

// publishAll appends messages to the stream. After an error the first ones may be stored. It uses fast batches if it can,
// because the server does not stage them as it does an atomic publish.
func (b *bucket) publishAll(ctx context.Context, msgs []*nats.Msg) error {
	most := b.most
	if b.fast {
		most = fastMessages
	}
	for _, chunk := range divideMessages(msgs, most, chunkBytes) {
		if err := b.publish(ctx, chunk, b.fast); err != nil {
			return err
		}
	}
	return nil
}

// publish appends messages to the stream. A fast batch may be stored in part, an atomic publish is stored completely or not at all.
// After an error it is not known what is stored.
func (b *bucket) publish(ctx context.Context, msgs []*nats.Msg, fast bool) error {
	c := b.newChunk(msgs)
	pass, writer := []string{strconv.FormatUint(b.pass, 10)}, []string{b.writer}
	for _, m := range msgs {
		m.Header[headerPass], m.Header[headerWriter] = pass, writer
		m.Subject = b.config.keyPrefix() + m.Subject
	}
	b.expect(c, fast)
	err := b.appendChunk(ctx, c)
	b.headUnknown = b.headUnknown || err != nil
	return err
}

// wrap adds the sink, the bucket and the remedy to an error.
func (b *bucket) wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	hint := ""
	reset := "give it up with `bridge checkpoint reset --sink " + b.id.Sink + "`"
	switch {
	case errors.Is(err, checkpoint.ErrForeign):
		hint = ": give this bridge or sink another name, or delete the bucket"
	case errors.Is(err, checkpoint.ErrUnusable):
		hint = ": correct it with `nats stream edit`, or give this bridge or sink another name"
	case errors.Is(err, checkpoint.ErrCorrupt), errors.Is(err, checkpoint.ErrOlder):
		hint = ": " + reset
	case errors.Is(err, checkpoint.ErrNewer):
		hint = ": run the newer version, or " + reset
	}
	return fmt.Errorf("%s checkpoint of sink %q in bucket %q: %w%s", verb, b.id.Sink, b.bucketName(), err, hint)
}
