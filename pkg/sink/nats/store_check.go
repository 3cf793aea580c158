package nats

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
)

// check checks the bucket as Load does, but writes nothing and fences no writer. A
// missing bucket is no error, because Load creates it. weak has settings that work, but are
// not as recommended.
func (b *bucket) check(ctx context.Context) (weak []string, err error) {
	found, err := b.lookUp(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b.stream = found
	findings, err := b.inspectBucket(found.config)
	for _, f := range findings {
		weak = append(weak, fmt.Sprintf("stream %q: %s", b.name, f))
	}
	if err != nil {
		return weak, err
	}
	err = b.continuable(ctx)
	if len(b.damaged) > 0 {
		weak = append(weak, fmt.Sprintf("bucket %q: somebody else wrote over records of the checkpoint: the bridge mends them, or declares a reset, when it starts", b.bucketName()))
	}
	return weak, err
}

// continuable returns an error for a checkpoint that is of another pipeline, in another format, or not in force.
func (b *bucket) continuable(ctx context.Context) error {
	moveToken, _ := token(string(checkpoint.MoveKey()))
	for _, part := range []struct {
		token string
		check func(value []byte) error
	}{
		{identityToken(), func(v []byte) error { return checkpoint.CheckIdentity(v, b.id) }},
		{headToken, func(v []byte) error { _, err := decodeHead(v); return err }},
		{moveToken, checkpoint.CheckMoveRecord},
	} {
		m, err := b.value(ctx, part.token)
		if err == nil && m != nil && m.Header.Get(headerOperation) == "" {
			err = part.check(m.Data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// refused returns an error for a bucket that the sink must not be opened with. It writes nothing.
func (s *Store) refused(ctx context.Context, c *conn) error {
	b := newBucket(s.o.Sink.endpoint)
	b.conn = c
	found, err := b.lookUp(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil // Load creates it
	}
	if err == nil {
		b.stream = found
		err = b.continuable(ctx)
	}
	return b.wrap("read", err)
}
