package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// readAttempts is how often a bucket is read again if a running bridge is writing to it.
const readAttempts = 5

// ReadStore finds the bucket of a pipeline and returns its content and owner. It
// fences no writer, so the result may contain changes that a running bridge writes meanwhile. The caller may use Get and Scan of the
// store, and must close it. o.Sink must not be open, and its identity need not have a
// ClusterUID. The error wraps fs.ErrNotExist if there is no such bucket.
func ReadStore(ctx context.Context, o StoreOptions) (s *Store, id event.Identity, err error) {
	if s, err = locate(ctx, o); err != nil {
		return nil, id, err
	}
	for range readAttempts {
		// The read may have seen a part of a write. Read again: the writer completes it.
		if err = s.readBucket(ctx); !errors.Is(err, checkpoint.ErrCorrupt) {
			break
		}
	}
	if err != nil {
		return nil, id, errors.Join(s.bucket.wrap("read", err), s.Close())
	}
	return s, s.bucket.id, nil
}

// FindStore returns the name of the bucket that ReadStore reads, with the same errors.
func FindStore(ctx context.Context, o StoreOptions) (bucket string, err error) {
	s, err := locate(ctx, o)
	if err != nil {
		return "", err
	}
	return s.Name(), s.Close()
}

// Name returns the name of the bucket.
func (s *Store) Name() string { return s.bucket.bucketName() }

func (s *Store) readBucket(ctx context.Context) error {
	if err := s.fresh(); err != nil {
		return err
	}
	b := &s.bucket
	found, err := b.existing(ctx)
	if err != nil {
		return err
	}
	m, err := b.value(ctx, headToken)
	if err != nil {
		return err
	}
	switch {
	case m == nil && b.damaged[headToken]:
		return errors.New("somebody else wrote over its head: the bridge declares a reset when it starts")
	case m == nil:
		return fmt.Errorf("it holds no checkpoint: %w", fs.ErrNotExist)
	}
	last, err := decodeHead(m.Data)
	if err != nil {
		return err
	}
	b.head, b.valid = found.state.LastSeq, last.Valid
	redo, err := b.readAll(ctx, last.Redo, s.local.Commit)
	if err != nil {
		return err
	}
	return s.local.Commit(ctx, redo)
}

// ResetStore requests a reset, which the next start executes. With empty it also removes the content of the bucket: then any
// bridge and cluster may take the bucket over, and its content need not be readable.
// A running bridge is fenced. o.Sink must not be open, and its identity need not have a ClusterUID.
// The error wraps fs.ErrNotExist if there is no such bucket.
func ResetStore(ctx context.Context, o StoreOptions, empty bool) error {
	s, err := locate(ctx, o)
	if err != nil {
		return err
	}
	if empty {
		err = s.bucket.wrap("empty", s.bucket.empty(ctx))
	} else if err = s.Load(ctx); err == nil {
		err = s.Commit(ctx, []event.KV{{Key: checkpoint.ResetKey(), Value: checkpoint.ResetRequested()}})
	}
	return errors.Join(err, s.Close())
}

// empty replaces the content by a head, in one message.
func (b *bucket) empty(ctx context.Context) error {
	for range takeovers {
		found, err := b.existing(ctx)
		if err != nil {
			return err
		}
		m := b.headMessage(0)
		m.Header[jetstream.MsgRollup] = []string{jetstream.MsgRollupAll}
		b.head = found.state.LastSeq
		if err := b.publish(ctx, []*nats.Msg{m}, false); err == nil || !lostRace(err) {
			return err
		}
	}
	return errors.New("another process keeps writing to it: stop the bridge")
}

// locate finds the store of a pipeline, whose cluster's UID need not be known, and connects it. If the sink has
// an embedded server, locate runs that server without access for other clients.
func locate(ctx context.Context, o StoreOptions) (*Store, error) {
	want := o.Sink.id
	if err := o.Sink.runAlone(); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no checkpoint of %s in nats.embedded.dir: %w", pipelineName(want), err)
	} else if err != nil {
		return nil, err
	}
	s := NewStore(o)
	s.alone = true
	b := &s.bucket
	err := b.dialUnlessOpen()
	if err == nil {
		err = b.search(ctx, want)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// ClaimStore opens the bucket of a pipeline as its writer, and makes it if there is none. A bridge that is running is fenced. o.Sink must not
// be open, and its identity must be complete. The error wraps fs.ErrNotExist if the directory of an embedded server does not exist.
func ClaimStore(ctx context.Context, o StoreOptions) (*Store, error) {
	if err := o.Sink.runAlone(); err != nil {
		return nil, err
	}
	s := NewStore(o)
	s.alone = true
	if err := s.Load(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func pipelineName(id event.Identity) string {
	return fmt.Sprintf("bridge %s, cluster %s, sink %s", id.Bridge, id.Cluster, id.Sink)
}

// search finds the only bucket of a pipeline, and makes b that bucket.
func (b *bucket) search(ctx context.Context, want event.Identity) error {
	names, err := b.conn.buckets(ctx, want)
	if err != nil {
		return fmt.Errorf("list the NATS buckets: %w", err)
	}
	var (
		fit, others []string
		found       event.Identity
	)
	for _, name := range names {
		id, err := b.owner(ctx, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return fmt.Errorf("bucket %q: %w", name, err)
		case id.Bridge != want.Bridge || id.Sink != want.Sink:
		case id.Cluster != want.Cluster || want.ClusterUID != "" && id.ClusterUID != want.ClusterUID:
			others = append(others, fmt.Sprintf("%q of cluster %s (%s)", name, id.Cluster, id.ClusterUID))
		default:
			fit = append(fit, name)
			found = id
		}
	}
	switch {
	case len(fit) > 1:
		return fmt.Errorf("buckets %s are all of %s: remove those of clusters that are no more, with `nats kv del`", strings.Join(fit, ", "), pipelineName(want))
	case len(fit) == 1:
		b.setName(fit[0], found)
		return nil
	case len(others) > 0:
		return fmt.Errorf("there is no checkpoint of %s on this NATS, only %s: %w", pipelineName(want), strings.Join(others, ", "), fs.ErrNotExist)
	}
	return fmt.Errorf("there is no checkpoint of %s on this NATS: %w", pipelineName(want), fs.ErrNotExist)
}

// buckets returns the names of the buckets that may belong to a pipeline.
func (c *conn) buckets(ctx context.Context, pipeline event.Identity) (fit []string, err error) {
	before, after := aroundUID(pipeline)
	err = c.do(ctx, func(ctx context.Context) error {
		all := c.js.StreamNames(ctx, jetstream.WithStreamListSubject("$KV.*.>"))
		for stream := range all.Name() {
			if name, ok := strings.CutPrefix(stream, bucketPrefix); ok && len(name) > len(before)+len(after) && strings.HasPrefix(name, before) && strings.HasSuffix(name, after) {
				fit = append(fit, name)
			}
		}
		return all.Err()
	})
	slices.Sort(fit)
	return fit, err
}

// owner returns the identity of the pipeline whose checkpoint a bucket holds. The error wraps fs.ErrNotExist if the
// bucket has no identity.
func (b *bucket) owner(ctx context.Context, name string) (event.Identity, error) {
	var record struct {
		Identity event.Identity `json:"identity"`
	}
	b.setName(name, b.id)
	if _, err := b.existing(ctx); err != nil {
		return record.Identity, err
	}
	m, err := b.value(ctx, identityToken())
	switch {
	case err != nil:
		return record.Identity, err
	case m == nil && b.overwritten():
		before, after := aroundUID(b.endpoint.id)
		record.Identity = b.endpoint.id
		record.Identity.ClusterUID = strings.TrimSuffix(strings.TrimPrefix(name, before), after)
		return record.Identity, nil
	case m == nil:
		return record.Identity, fs.ErrNotExist
	}
	if err := json.Unmarshal(m.Data, &record); err != nil {
		return record.Identity, fmt.Errorf("%w: its identity does not parse: remove it with `nats kv del`: the bridge then declares a reset", checkpoint.ErrCorrupt)
	}
	return record.Identity, nil
}

// existing finds the stream, which must exist.
func (b *bucket) existing(ctx context.Context) (stream, error) {
	found, err := b.lookUp(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = fmt.Errorf("there is none: %w", fs.ErrNotExist)
	}
	b.stream = found
	return found, err
}
