package nats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// ReaderOptions are the options of a [Reader].
type ReaderOptions struct {
	Config   Config // completed by NewReader
	Identity event.Identity
	// Subjects are patterns of the subjects to read, Collections are patterns of the subjects of
	// collection events only. Patterns of one list must not overlap. Without Subjects all events of the sink are read.
	Subjects, Collections []string
	// Stays is set for a reader that stays open: it does not run an embedded server that is not running, because it would keep the bridge from
	// running it. NewReader returns an error then.
	Stays bool
}

// Reader is a [sink.Reader] that reads a sink's stream.
type Reader struct {
	link        *link
	stream      stream // as it was when the reader was opened
	part        sink.Part
	subjects    []string
	collections []string
}

// NewReader connects and looks the stream up. It connects to a running embedded server like a
// subscriber. If the embedded server is not running, NewReader runs it until Close, without access for other clients, unless the reader stays.
func NewReader(ctx context.Context, o ReaderOptions) (_ *Reader, err error) {
	conf, err := o.Config.Complete()
	if err != nil {
		return nil, err
	}
	if conf.Delivery == atMostOnce {
		return nil, errors.New("read: delivery at-most-once keeps no events")
	}
	l := &link{endpoint: newEndpoint(conf, o.Identity, zap.NewNop()), log: zap.NewNop(), name: conf.Stream.Name, subjects: conf.subjects(o.Identity)}
	if err := l.startBeside(ctx, o.Stays); err != nil {
		l.disconnect()
		return nil, err
	}
	r := &Reader{link: l, subjects: o.Subjects, collections: o.Collections}
	if len(r.subjects) == 0 {
		r.subjects = conf.eventSubjects(o.Identity)
	}
	if err = l.choose(ctx); err == nil {
		err = r.lookUp(ctx)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// startBeside is start while a bridge may be running.
func (l *link) startBeside(ctx context.Context, stays bool) error {
	e := l.config.Embedded
	if e == nil {
		return l.start(ctx)
	}
	conf := l.config
	var alone error
	if !stays {
		if alone = l.startAlone(); alone == nil {
			return nil
		}
		l.disconnect()
	}
	host, port, err := e.hostPort()
	switch {
	case err != nil || port == 0 && !stays:
		return errors.Join(alone, err)
	case port == 0:
		return fmt.Errorf("embedded.listen: %q has no port that others can know: set one", e.Listen)
	}
	conf.Embedded, conf.URL = nil, fmt.Sprintf("nats://%s:%d", reachable(host), port)
	if e.TLS != nil {
		conf.URL = fmt.Sprintf("tls://%s:%d", reachable(host), port)
	}
	l.config = conf
	err = l.start(ctx)
	switch {
	case err == nil:
		return nil
	case stays:
		return fmt.Errorf("the bridge, with its embedded server, does not run: %w", err)
	}
	return errors.Join(alone, err)
}

// startAlone runs an embedded server that is not running, and connects. It does not make the server's directory.
func (l *link) startAlone() error {
	dir := l.config.Embedded.Dir
	err := l.runAlone()
	if err == nil {
		l.conn, err = l.connect()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("embedded server: no bridge has written to %s", dir)
	}
	return err
}

// reachable returns the host for connections to a server that listens on host.
func reachable(host string) string {
	if host == "" || host == "0.0.0.0" || host == "::" {
		return "127.0.0.1"
	}
	return host
}

func (r *Reader) lookUp(ctx context.Context) error {
	s, err := r.link.lookUp(ctx)
	if err != nil {
		return err
	}
	if err := r.readable(s.config); err != nil {
		return err
	}
	r.stream = s
	r.part = sink.Part{Name: r.link.name, Log: r.link.name, ID: strconv.FormatInt(s.created, 10), First: int64(s.state.FirstSeq), End: int64(s.state.LastSeq) + 1}
	r.part.Latest = s.config.MaxMsgsPerSubject > 0
	if r.part.First == 0 {
		r.part.First = 1
	}
	if s.config.Replicas < 2 {
		return nil
	}
	// While a stream has no leader, a replica that lags may answer with its own end.
	last, err := r.link.nextOnLeader(ctx, uint64(r.part.End), nil)
	r.part.End = max(r.part.End, int64(last)+1)
	return err
}

// readable returns an error if events are not under the subjects at which this reader looks for them.
func (r *Reader) readable(c jetstream.StreamConfig) error {
	all := []*jetstream.SubjectTransformConfig{c.SubjectTransform}
	sources := c.Sources
	if c.Mirror != nil {
		sources = append(slices.Clone(sources), c.Mirror)
	}
	for _, source := range sources {
		for i := range source.SubjectTransforms {
			all = append(all, &source.SubjectTransforms[i])
		}
	}
	for _, t := range all {
		for _, subject := range r.subjects {
			if transforms(t, subject) {
				return fmt.Errorf("read stream %q on %s: its subject_transform changes %q to %q, so events are not under %s: remove it with `nats stream edit`",
					r.link.name, r.link.conn.address, t.Source, t.Destination, subject)
			}
		}
	}
	return nil
}

// Refresh implements [sink.Reader].
func (r *Reader) Refresh(ctx context.Context) error {
	before := r.stream.created
	if err := r.lookUp(ctx); err != nil {
		return err
	}
	if r.stream.created != before {
		return r.replaced()
	}
	return nil
}

func (r *Reader) replaced() error {
	return fmt.Errorf("read stream %q on %s: it was deleted and created again", r.link.name, r.link.conn.address)
}

// Parts implements [sink.Reader]. The stream is the only part.
func (r *Reader) Parts() []sink.Part { return []sink.Part{r.part} }

// At implements [sink.Reader].
func (r *Reader) At(ctx context.Context, t time.Time) ([]int64, error) {
	at := r.part.End
	err := r.link.read(ctx, reading{ahead: 1, config: jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &t, HeadersOnly: true,
	}}, func(_ jetstream.Msg, seq uint64) error {
		at = min(at, int64(seq))
		return sink.ErrEnough
	})
	return []int64{at}, err
}

// namesPlace reports whether a message names its own sequence and stream. A mirror has only messages of its source stream,
// at the same sequences.
func (r *Reader) namesPlace(place string, seq uint64) bool {
	if r.stream.config.Mirror != nil {
		return strings.HasSuffix(place, "."+strconv.FormatUint(seq, 10))
	}
	return place == r.stream.place(seq)
}

// Read implements [sink.Reader]. With delivery exactly-once, a message is foreign if it does not name this stream and
// its sequence. With other deliveries no message is marked as foreign: on a shared stream, the sink's messages do not name their
// place.
func (r *Reader) Read(ctx context.Context, ranges []sink.Range, collections bool, fn func(*sink.Message) error) error {
	want := ranges[0]
	if want.From >= want.To {
		return nil
	}
	subjects := r.subjects
	if collections {
		subjects = r.collections
	}
	which := sequences(uint64(want.From), 0)
	which.config.FilterSubjects = subjects
	if r.stream.config.Replicas > 1 {
		which.before = uint64(want.To)
	}
	w := whole{Reader: r, fn: fn, next: want.From}
	if want.From <= r.part.First && !want.Continued {
		w.next = 0
	}
	err := r.link.read(ctx, which, func(m jetstream.Msg, seq uint64) error {
		if int64(seq) >= want.To {
			return sink.ErrEnough
		}
		return w.add(ctx, keptMessage{m, int64(seq)})
	})
	if err != nil || w.enough || len(w.kept) == 0 && (w.next == 0 || w.next >= want.To) {
		return err
	}
	if err = w.flush(ctx); errors.Is(err, sink.ErrEnough) {
		return nil
	}
	return err
}

// Close implements [sink.Reader].
func (r *Reader) Close() { r.link.disconnect() }
