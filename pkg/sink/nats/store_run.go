package nats

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

const (
	// runMessages bounds a run, so that what the server tells meanwhile fits ackRoom.
	runMessages = 10_000
	ackRoom     = 64
)

// mayRun reports whether the server knows runs; an older one refuses a stream that
// allows them.
func (b *bucket) mayRun() bool {
	var major, minor int
	_, err := fmt.Sscanf(b.nc.ConnectedServerVersion(), "%d.%d", &major, &minor)
	return err == nil && (major > 2 || major == 2 && minor >= 14)
}

// publishRuns stores messages as they come, each only if the stream then ends where
// this writer knows it to; the first that is refused or missing ends the run (what
// NATS calls a fast batch that fails at a gap, 2.14, ADR-50). Unlike an atomic publish
// the server does not stage it. After an error it is not known how many are stored.
func (b *bucket) publishRuns(ctx context.Context, msgs []*nats.Msg) (err error) {
	defer func() { b.unsure = b.unsure || err != nil }()
	inbox := b.nc.NewInbox()
	acks := make(chan *nats.Msg, ackRoom)
	sub, err := b.nc.ChanSubscribe(inbox+".>", acks)
	if err != nil {
		return b.explain(err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only where there is no connection
	for len(msgs) > 0 {
		n, bytes := 0, 0
		for ; n < min(len(msgs), runMessages) && (n == 0 || bytes+msgs[n].Size() < chunkBytes); n++ {
			bytes += msgs[n].Size()
		}
		if err := b.publishRun(ctx, inbox+"."+nuid.Next(), msgs[:n], acks); err != nil {
			return err
		}
		msgs = msgs[n:]
	}
	return nil
}

func (b *bucket) publishRun(ctx context.Context, reply string, msgs []*nats.Msg, acks <-chan *nats.Msg) error {
	for i, m := range msgs {
		op := runAppend
		if i == 0 {
			op = runStart
		}
		if i == len(msgs)-1 {
			op = runCommit
		}
		m.Reply = reply + runMode + strconv.Itoa(i+1) + op
		m.Header[headerExpected] = []string{strconv.FormatUint(b.last+uint64(i), 10)}
		m.Header[headerPass] = []string{strconv.FormatUint(b.pass, 10)}
		if err := b.nc.PublishMsg(m); err != nil {
			return b.explain(err)
		}
	}
	ctx, cancel := b.bound(ctx)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return b.explain(context.Cause(ctx))
		case m := <-acks:
			if !strings.HasPrefix(m.Subject, reply+".") {
				continue // of the run before
			}
			if end, err := b.stored(m, len(msgs)); end {
				return err
			}
		}
	}
}
