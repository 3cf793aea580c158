package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// looks is how often a bucket is read that a running bridge may be writing to.
const looks = 5

// ReadStore finds the bucket of a pipeline and returns what it holds, and whose it is. It shuts
// out nobody: what a bridge writes meanwhile may be seen or not. Get and Scan of the
// store are then to be used, and Close. Of o.Identity the ClusterUID need not be known.
// The error wraps fs.ErrNotExist when there is no such bucket.
func ReadStore(ctx context.Context, o StoreOptions) (s *Store, id event.Identity, err error) {
	if o, err = locate(ctx, o); err != nil {
		return nil, id, err
	}
	s = NewStore(o)
	for range looks {
		// A writer at work may have completed a write that was half there.
		if err = s.look(ctx); !errors.Is(err, checkpoint.ErrCorrupt) {
			break
		}
	}
	if err != nil {
		return nil, id, errors.Join(s.wrap("read", err), s.Close())
	}
	return s, o.Identity, nil
}

// FindStore returns which bucket ReadStore would look into, and whose it is. Its errors are those
// of ReadStore.
func FindStore(ctx context.Context, o StoreOptions) (bucket string, id event.Identity, err error) {
	o, err = locate(ctx, o)
	return o.Bucket, o.Identity, err
}

// Name is the bucket's.
func (s *Store) Name() string { return s.name }

func (s *Store) look(ctx context.Context) error {
	if err := s.fresh(); err != nil {
		return err
	}
	b := &s.bucket
	if err := b.dial(); err != nil {
		return err
	}
	handle, err := b.lookUp(ctx)
	if err != nil {
		return err
	}
	m, err := b.value(ctx, headToken)
	if err != nil {
		return err
	}
	if m == nil {
		return fmt.Errorf("it holds no checkpoint: %w", fs.ErrNotExist)
	}
	last, err := decodeHead(m.Data)
	if err != nil {
		return err
	}
	b.last, b.valid = handle.CachedInfo().State.LastSeq, last.Valid
	redo, err := b.read(ctx, last.Redo, s.local.Commit)
	if err != nil {
		return err
	}
	return s.local.Commit(ctx, redo)
}

// ResetStore makes the next start a reset. empty also removes everything that the bucket holds: then any
// bridge and cluster may take the bucket over, and it does not matter whether its content can be read.
// A bridge that is running is fenced. Of o.Identity the ClusterUID need not be known. The
// error wraps fs.ErrNotExist when there is no such bucket.
func ResetStore(ctx context.Context, o StoreOptions, empty bool) (err error) {
	if o, err = locate(ctx, o); err != nil {
		return err
	}
	s := NewStore(o)
	defer func() { err = errors.Join(err, s.Close()) }()
	if empty {
		return s.wrap("empty", s.bucket.empty(ctx))
	}
	if err := s.Load(ctx); err != nil {
		return err
	}
	return s.Commit(ctx, []event.KV{{Key: checkpoint.ResetKey(), Value: checkpoint.ResetRequested()}})
}

// empty leaves a head and nothing else, in one message.
func (b *bucket) empty(ctx context.Context) error {
	if err := b.dial(); err != nil {
		return err
	}
	for range takeovers {
		err := b.tryEmpty(ctx)
		if err == nil || !lostRace(err) {
			return b.explain(err)
		}
	}
	return errors.New("somebody writes to it all the time: stop the bridge")
}

func (b *bucket) tryEmpty(ctx context.Context) error {
	handle, err := b.lookUp(ctx)
	if err != nil {
		return err
	}
	m := b.head(0)
	m.Header[jetstream.MsgRollup] = []string{jetstream.MsgRollupAll}
	m.Header[headerExpected] = []string{strconv.FormatUint(handle.CachedInfo().State.LastSeq, 10)}
	ctx, cancel := b.bound(ctx)
	defer cancel()
	_, err = b.js.PublishMsg(ctx, m)
	return err
}

// locate completes o with the bucket of a pipeline whose cluster's UID is not known, and
// with whose it is.
func locate(ctx context.Context, o StoreOptions) (StoreOptions, error) {
	want := o.Identity
	nc, err := o.Connect()
	if err != nil {
		return o, err
	}
	defer nc.Close()
	var b bucket
	if err := b.use(nc); err != nil {
		return o, err
	}
	names, err := b.names(ctx, want)
	if err != nil {
		return o, fmt.Errorf("list the NATS buckets: %w", b.explain(err))
	}
	var fit, others []string
	for _, name := range names {
		id, err := b.owner(ctx, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return o, fmt.Errorf("bucket %q: %w", name, err)
		case id.Bridge != want.Bridge || id.Sink != want.Sink:
		case id.Cluster != want.Cluster || want.ClusterUID != "" && id.ClusterUID != want.ClusterUID:
			others = append(others, fmt.Sprintf("%q of cluster %s (%s)", name, id.Cluster, id.ClusterUID))
		default:
			fit = append(fit, name)
			o.Identity, o.Bucket = id, name
		}
	}
	switch {
	case len(fit) > 1:
		return o, fmt.Errorf("buckets %s are all of bridge %s, cluster %s, sink %s: remove those of clusters that are no more, with `nats kv del`",
			strings.Join(fit, ", "), want.Bridge, want.Cluster, want.Sink)
	case len(fit) == 1:
		return o, nil
	case len(others) > 0:
		return o, fmt.Errorf("there is no checkpoint of bridge %s, cluster %s, sink %s on this NATS, only %s: %w",
			want.Bridge, want.Cluster, want.Sink, strings.Join(others, ", "), fs.ErrNotExist)
	}
	return o, fmt.Errorf("there is no checkpoint of bridge %s, cluster %s, sink %s on this NATS: %w", want.Bridge, want.Cluster, want.Sink, fs.ErrNotExist)
}

// names are the buckets that may be of a pipeline, by their names.
func (b *bucket) names(ctx context.Context, of event.Identity) ([]string, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	before, after := aroundUID(of)
	all := b.js.StreamNames(ctx, jetstream.WithStreamListSubject("$KV.*.>"))
	var fit []string
	for stream := range all.Name() {
		if name, ok := strings.CutPrefix(stream, "KV_"); ok && len(name) > len(before)+len(after) && strings.HasPrefix(name, before) && strings.HasSuffix(name, after) {
			fit = append(fit, name)
		}
	}
	slices.Sort(fit)
	return fit, all.Err()
}

// owner is whose checkpoint a bucket holds. The error wraps fs.ErrNotExist when it
// says nothing of that.
func (b *bucket) owner(ctx context.Context, name string) (event.Identity, error) {
	var record struct {
		Identity event.Identity `json:"identity"`
	}
	b.stream, b.prefix = "KV_"+name, "$KV."+name+"."
	if _, err := b.lookUp(ctx); err != nil {
		return record.Identity, err
	}
	key, _ := token(string(checkpoint.IdentityKey()))
	m, err := b.value(ctx, key)
	switch {
	case err != nil:
		return record.Identity, err
	case m == nil:
		return record.Identity, fs.ErrNotExist
	}
	if err := json.Unmarshal(m.Data, &record); err != nil {
		return record.Identity, fmt.Errorf("%w: its identity does not parse: remove it with `nats kv del`: the bridge then declares a reset", checkpoint.ErrCorrupt)
	}
	return record.Identity, nil
}

// lookUp finds the stream, which must exist.
func (b *bucket) lookUp(ctx context.Context) (jetstream.Stream, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	handle, err := b.js.Stream(ctx, b.stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("there is none: %w", fs.ErrNotExist)
	}
	return handle, b.explain(err)
}
