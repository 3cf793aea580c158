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
	mine, err := b.value(ctx, identityToken())
	if err == nil && mine != nil {
		err = checkpoint.CheckIdentity(mine.Data, b.id)
	}
	if err != nil {
		return weak, err
	}
	last, err := b.value(ctx, headToken)
	if err == nil && last != nil {
		_, err = decodeHead(last.Data)
	}
	if len(b.damaged) > 0 {
		weak = append(weak, fmt.Sprintf("bucket %q: somebody else wrote over records of the checkpoint: the bridge mends them, or declares a reset, when it starts", b.bucketName()))
	}
	return weak, err
}
