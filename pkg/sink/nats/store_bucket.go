package nats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

const (
	redoBytes = 256 << 10 // of one message of a redo
	// mostRedo bounds a redo, which must be one publish. Servers hold 128 MB of all
	// clients' before they have stored it.
	mostRedo = 48 << 20

	requestTimeout = 5 * time.Second
)

// bucket is the stream behind a key-value bucket, and how far it is known. Its methods
// are called one at a time.
type bucket struct {
	connect  func() (*nats.Conn, error)
	stream   string
	prefix   string // of subjects
	id       event.Identity
	replicas int
	writer   string
	most     int // messages at once

	cleanFrom int
	settle    time.Duration
	cleaning  cleaning

	nc     *nats.Conn
	js     jetstream.JetStream
	leader nats.JetStreamContext // reads from the stream's leader alone
	last   uint64                // the stream's last sequence
	redo   int                   // messages of a redo that is not known to be complete
	pass   uint64                // of cleaning: what is written bears it
	valid  uint64                // what bears less is dead
	unsure bool                  // whether last must be asked for
	runs   bool                  // whether the stream takes them: see publishRun
	fenced error                 // final
}

// bound limits a request, and ends it when the connection is lost: no answer will come.
func (b *bucket) bound(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	lost := b.nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-lost:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel()
		<-done
		b.nc.RemoveStatusListener(lost)
	}
}

// dial connects unless there is a connection.
func (b *bucket) dial() error {
	if b.nc != nil && !b.nc.IsClosed() {
		return nil
	}
	nc, err := b.connect()
	if err != nil {
		return err
	}
	b.close()
	return b.use(nc)
}

// use takes a connection over.
func (b *bucket) use(nc *nats.Conn) (err error) {
	b.nc = nc
	if b.js, err = jetstream.New(nc); err != nil {
		return err
	}
	b.leader, err = nc.JetStream()
	return err
}

func (b *bucket) close() {
	if b.nc != nil {
		b.nc.Close()
		b.nc = nil
	}
}

// find looks the stream up, and creates it if it is missing.
func (b *bucket) find(ctx context.Context) (*jetstream.StreamInfo, jetstream.Stream, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	handle, err := b.js.Stream(ctx, b.stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		config := definition(b.stream, b.prefix, b.id, b.replicas)
		config.AllowBatchPublish = b.mayRun()
		handle, err = b.js.CreateStream(ctx, config)
	}
	if err != nil {
		return nil, nil, b.explain(err)
	}
	info := handle.CachedInfo()
	b.runs = info.Config.AllowBatchPublish
	return info, handle, fits(info.Config)
}

// value is the message of a key, nil when there is none. It is asked of the stream's
// leader: package jetstream would ask any replica, and that may lag.
func (b *bucket) value(ctx context.Context, token string) (*nats.RawStreamMsg, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	m, err := b.leader.GetLastMsg(b.stream, b.prefix+token, nats.Context(ctx))
	if errors.Is(err, nats.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, b.explain(err)
	}
	return m, nil
}

// ready finds out where the stream ends when that is not known. anew: it lost
// something, all must be written again.
func (b *bucket) ready(ctx context.Context) (anew bool, err error) {
	if b.fenced != nil {
		return false, b.fenced
	}
	if err := b.dial(); err != nil {
		return false, err
	}
	if !b.unsure {
		return false, nil
	}
	info, handle, err := b.find(ctx)
	if errors.Is(err, checkpoint.ErrUnusable) { // final at the start only
		err = errors.New(err.Error())
	}
	if err != nil {
		return false, err
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
	anew = m == nil || info.State.LastSeq < b.last
	if anew {
		b.redo, err = 0, b.purge(ctx, handle)
	}
	b.last, b.unsure = info.State.LastSeq, err != nil
	return anew, err
}

// purge removes every key; the stream's sequence goes on.
func (b *bucket) purge(ctx context.Context, handle jetstream.Stream) error {
	if handle.CachedInfo().State.Msgs == 0 {
		return nil
	}
	ctx, cancel := b.bound(ctx)
	defer cancel()
	return b.explain(handle.Purge(ctx))
}

// write makes changes durable, all or none.
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
	if chunks := b.chunks(append(msgs, b.head(0)), chunkBytes); len(chunks) == 1 && b.redo == 0 {
		b.cleaning.buried(deleted)
		return b.publish(ctx, chunks[0])
	}
	redo, err := b.pack(changes)
	if err != nil {
		return err
	}
	n := len(redo)
	chunks := b.chunks(append(redo, b.head(n)), mostRedo)
	if len(chunks) != 1 {
		return fmt.Errorf("%d changes are more than the server takes at once", len(changes))
	}
	if err := b.publish(ctx, chunks[0]); err != nil {
		return err
	}
	for i := range max(n, b.redo) {
		m := &nats.Msg{Subject: b.prefix + redoKey(i), Header: nats.Header{}}
		remove(m)
		msgs = append(msgs, m)
	}
	b.cleaning.buried(deleted + max(n, b.redo))
	b.redo = n
	if err := b.publishAll(ctx, append(msgs, b.head(0))); err != nil {
		return err
	}
	b.redo = 0
	return nil
}

// fill writes everything to a stream that holds nothing of worth. Without a head at its
// end it is no checkpoint.
func (b *bucket) fill(ctx context.Context, all map[string][]byte) error {
	all[string(checkpoint.IdentityKey())] = checkpoint.EncodeIdentity(b.id)
	msgs, err := b.messages(all)
	if err != nil {
		return err
	}
	b.cleaning = cleaning{}
	err = b.publishAll(ctx, append(msgs, b.head(0)))
	if err == nil {
		b.redo = 0
	}
	return err
}

func (b *bucket) head(redo int) *nats.Msg {
	return &nats.Msg{
		Subject: b.prefix + headToken, Header: nats.Header{},
		Data: head{Version: checkpoint.Version, Writer: b.writer, Redo: redo, Pass: b.pass, Valid: b.valid}.encode(),
	}
}

// messages are those of the changes, the identity first.
func (b *bucket) messages(changes map[string][]byte) ([]*nats.Msg, error) {
	var msgs []*nats.Msg
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		m := put(b.prefix, key, changes[key])
		if limit := b.nc.MaxPayload(); int64(m.Size()) > limit {
			return nil, fmt.Errorf("the value of %q has %d bytes, the server takes %d in all (max_payload): raise it", key, len(m.Data), limit)
		}
		msgs = append(msgs, m)
	}
	return msgs, nil
}

// pack makes the messages of a redo.
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

// chunks divides messages into what may be published at once.
func (b *bucket) chunks(msgs []*nats.Msg, limit int) (chunks [][]*nats.Msg) {
	bytes := 0
	for _, m := range msgs {
		size := m.Size() + 150 // the batch's own headers
		if n := len(chunks); n == 0 || len(chunks[n-1]) == b.most || bytes+size > limit {
			chunks, bytes = append(chunks, nil), 0
		}
		n := len(chunks) - 1
		chunks[n] = append(chunks[n], m)
		bytes += size
	}
	return chunks
}

// publishAll stores messages at the stream's end, the first ones or all.
func (b *bucket) publishAll(ctx context.Context, msgs []*nats.Msg) error {
	if b.runs {
		return b.publishRuns(ctx, msgs)
	}
	for _, chunk := range b.chunks(msgs, chunkBytes) {
		if err := b.publish(ctx, chunk); err != nil {
			return err
		}
	}
	return nil
}

// publish stores messages at the stream's end, all or none. After an error it is not
// known which.
func (b *bucket) publish(ctx context.Context, msgs []*nats.Msg) (err error) {
	defer func() { b.unsure = b.unsure || err != nil }()
	id := nuid.Next()
	for i, m := range msgs {
		m.Header[headerBatch] = []string{id}
		m.Header[headerBatchSequence] = []string{strconv.Itoa(i + 1)}
		m.Header[headerPass] = []string{strconv.FormatUint(b.pass, 10)}
	}
	msgs[0].Header[headerExpected] = []string{strconv.FormatUint(b.last, 10)}
	final := msgs[len(msgs)-1]
	final.Header[headerBatchCommit] = []string{"1"}
	for _, m := range msgs[:len(msgs)-1] {
		if err := b.nc.PublishMsg(m); err != nil {
			return b.explain(err)
		}
	}
	ctx, cancel := b.bound(ctx)
	defer cancel()
	reply, err := b.nc.RequestMsgWithContext(ctx, final)
	if err != nil {
		return b.explain(err)
	}
	_, err = b.stored(reply, len(msgs))
	return err
}

// stored reads what the server says to n messages that were published; end is false
// when it has more to say.
func (b *bucket) stored(reply *nats.Msg, n int) (end bool, _ error) {
	var ack struct {
		Type     string              `json:"type"` // of what is told while a run is under way
		Error    *jetstream.APIError `json:"error"`
		Sequence uint64              `json:"seq"`
	}
	switch err := json.Unmarshal(reply.Data, &ack); {
	case len(reply.Data) == 0 && reply.Header.Get("Status") == "503":
		return true, b.explain(nats.ErrNoResponders)
	case err != nil:
		return true, fmt.Errorf("the acknowledgement does not parse: %w", err)
	case ack.Error != nil && ack.Error.ErrorCode == codeChunkTooLarge:
		b.most = max(b.most/2, 1)
		return true, ack.Error
	case ack.Error != nil:
		return true, b.explain(ack.Error)
	case ack.Type == "gap":
		return true, b.explain(errors.New("a message was lost on the way"))
	case ack.Type != "":
		return false, nil
	case ack.Sequence != b.last+uint64(n):
		return true, fmt.Errorf("stored up to sequence %d, want %d", ack.Sequence, b.last+uint64(n))
	}
	b.last = ack.Sequence
	return true, nil
}

// explain adds what a server says beside a reply that never comes.
func (b *bucket) explain(err error) error {
	if err == nil {
		return nil
	}
	if last := b.nc.LastError(); errors.Is(last, nats.ErrPermissionViolation) {
		return fmt.Errorf("%w (%w)", err, last)
	}
	if !b.nc.IsConnected() {
		return fmt.Errorf("connection to NATS lost: %w", cmp.Or(b.nc.LastError(), err))
	}
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) {
		return fmt.Errorf("nobody answers for stream %q: is JetStream enabled, and has the cluster a leader? (%w)", b.stream, err)
	}
	return err
}
