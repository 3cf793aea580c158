package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/kubebridge/pkg/sink"
)

// Reader is a [sink.Reader] of a sink's topics. It sees committed records only.
type Reader struct {
	admin *admin
	parts []sink.Part
	spans []span // the whole ranges of parts
}

// NewReader connects and looks up the topics to read, for which topics returns true. For wrong credentials it returns a
// [sink.RefusedError].
func NewReader(ctx context.Context, o Options, topics func(name string) bool) (*Reader, error) {
	a, err := newAccess(o)
	if err != nil {
		return nil, err
	}
	r := &Reader{admin: newAdmin(a)}
	if err := r.admin.open(ctx); err != nil {
		return nil, err
	}
	if err := r.lookUp(ctx, topics); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Reader) lookUp(ctx context.Context, wanted func(name string) bool) error {
	var (
		names      []string
		first, end kadm.ListedOffsets
	)
	doing := "list the topics"
	err := r.admin.do(ctx, requestTimeout, func(ctx context.Context, c *kgo.Client) error {
		k := kadm.NewClient(c)
		all, err := k.ListTopics(ctx)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if wanted(name) {
				names = append(names, name)
			}
		}
		if len(names) == 0 {
			return nil
		}
		doing = "look up where the topics begin"
		if first, err = k.ListStartOffsets(ctx, names...); err == nil {
			err = first.Error()
		}
		if err != nil {
			return err
		}
		doing = "look up where the topics end"
		if end, err = k.ListCommittedOffsets(ctx, names...); err == nil { // later records belong to open transactions
			err = end.Error()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if len(names) == 0 {
		return nil
	}
	compacted := r.compacted(ctx, names)
	for _, name := range names {
		for id := range len(end[name]) {
			from, ok := first.Lookup(name, int32(id))
			to, ok2 := end.Lookup(name, int32(id))
			if !ok || !ok2 {
				return fmt.Errorf("read topic %q: the broker does not say where partition %d begins and ends", name, id)
			}
			r.spans = append(r.spans, span{partition{name, id}, from.Offset, to.Offset})
			r.parts = append(r.parts, sink.Part{Name: fmt.Sprintf("%s/%d", name, id), Log: name, First: from.Offset, End: to.Offset, Latest: compacted[name]})
		}
	}
	return nil
}

// compacted returns the compacted topics. Without permission to read the configuration, it returns the topics of a sink with
// tombstones.
func (r *Reader) compacted(ctx context.Context, names []string) map[string]bool {
	out := map[string]bool{}
	for _, name := range names {
		out[name] = r.admin.config.Tombstones
	}
	_ = r.admin.describeConfigs(ctx, names, func(name string, configs map[string]string, err error) { // an error of the request counts for every topic
		if policy, ok := configs[cleanupPolicy]; ok && err == nil {
			out[name] = strings.Contains(policy, policyCompact)
		}
	})
	return out
}

// Parts implements [sink.Reader].
func (r *Reader) Parts() []sink.Part { return r.parts }

// At implements [sink.Reader].
func (r *Reader) At(ctx context.Context, t time.Time) ([]int64, error) {
	out := make([]int64, len(r.parts))
	if len(r.parts) == 0 {
		return out, nil
	}
	var names []string
	for _, p := range r.parts {
		names = append(names, p.Log)
	}
	var offsets kadm.ListedOffsets
	err := r.admin.do(ctx, requestTimeout, func(ctx context.Context, c *kgo.Client) (err error) {
		if offsets, err = kadm.NewClient(c).ListOffsetsAfterMilli(ctx, t.UnixMilli(), slices.Compact(names)...); err == nil {
			err = offsets.Error()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look up what the topics held at %s: %w", t.Format(time.RFC3339), err)
	}
	for i, p := range r.parts {
		out[i] = p.End
		if at, ok := offsets.Lookup(p.Log, int32(r.spans[i].id)); ok && at.Offset >= 0 {
			out[i] = min(at.Offset, p.End)
		}
	}
	return out, nil
}

// Read implements [sink.Reader]. It passes on all records, because Kafka cannot filter them.
func (r *Reader) Read(ctx context.Context, ranges []sink.Range, _ bool, fn func(*sink.Message) error) error {
	spans := slices.Clone(r.spans)
	for i, want := range ranges {
		spans[i].from, spans[i].to = want.From, want.To
	}
	var m sink.Message
	return r.admin.read(ctx, spans, func(i int, k *kgo.Record) error {
		m.Part, m.Offset, m.Value, m.Headers = i, k.Offset, k.Value, m.Headers[:0]
		for _, h := range k.Headers {
			m.Headers = append(m.Headers, sink.Header{Name: h.Key, Value: h.Value})
		}
		return fn(&m)
	})
}

// Close implements [sink.Reader].
func (r *Reader) Close() { r.admin.close() }
