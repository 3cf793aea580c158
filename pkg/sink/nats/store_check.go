package nats

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
)

// CheckStore looks at the bucket as Load does, but writes nothing and shuts out nobody. A
// bucket that is missing is none to complain of: Load creates it. weak is what is legal,
// but less than it could be.
func CheckStore(ctx context.Context, o StoreOptions) (weak []string, err error) {
	s := NewStore(o)
	b := &s.bucket
	if err := b.dial(); err != nil {
		return nil, s.wrap("check", err)
	}
	defer b.close()
	weak, err = b.check(ctx)
	return weak, s.wrap("check", err)
}

func (b *bucket) check(ctx context.Context) (weak []string, err error) {
	asking, cancel := b.bound(ctx)
	handle, err := b.js.Stream(asking, b.stream)
	cancel()
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, b.explain(err)
	}
	config := handle.CachedInfo().Config
	if config.Replicas < b.replicas {
		weak = append(weak, fmt.Sprintf("stream %q: its num_replicas is %d, want %d: raise it with `nats stream edit`", b.stream, config.Replicas, b.replicas))
	}
	if err := fits(config); err != nil {
		return weak, err
	}
	identity, _ := token(string(checkpoint.IdentityKey()))
	mine, err := b.value(ctx, identity)
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
	return weak, err
}
