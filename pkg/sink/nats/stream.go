package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// Keys of a stream's metadata, which name its owner.
const (
	metaBridge     = "kubebridge.bridge"
	metaClusterUID = "kubebridge.cluster-uid"
	metaSink       = "kubebridge.sink"
	// metaAfter is the last used sequence of the stream when it was
	// adopted. The pipeline's records follow it. Missing means 0.
	metaAfter = "kubebridge.after"
)

// lastMessages is the number of messages that are searched for the term if the stream has no record of a term.
const lastMessages = 100

const headerExpectedTerm = jetstream.ExpectedLastSubjSeqHeader

// stream is the state of a stream at a look-up. A writer keeps the last one that it has accepted, so a look-up
// with wrong settings leaves the next look due.
type stream struct {
	handle  jetstream.Stream
	config  jetstream.StreamConfig
	state   jetstream.StreamState
	created int64 // Unix nanoseconds: another creation is another stream
	after   uint64
	looked  time.Time // when it was looked up
	at      time.Time // the same by the server's clock
	own     kept      // the last message of this sink, as it was known then
}

// anywhere is the sequence in the place of a message whose sequence is not known in advance.
const anywhere = 0

// place returns the place that a message carries. It is unique: messages of other streams and copies do not have it.
func (s stream) place(seq uint64) string { return string(s.appendPlace(nil, seq)) }

func (s stream) appendPlace(dst []byte, seq uint64) []byte {
	return strconv.AppendUint(append(strconv.AppendInt(dst, s.created, 10), '.'), seq, 10)
}

// streamOf asks for a stream: to look it up, create it or change it.
func (l *link) streamOf(ctx context.Context, verb string, ask func(context.Context) (jetstream.Stream, error)) (stream, error) {
	var handle jetstream.Stream
	err := l.conn.do(ctx, func(ctx context.Context) (err error) {
		handle, err = ask(ctx)
		return err
	})
	if err != nil {
		return stream{}, l.explain(verb, err)
	}
	info := handle.CachedInfo()
	after, _ := strconv.ParseUint(info.Config.Metadata[metaAfter], 10, 64)
	return stream{
		handle: handle, config: info.Config, state: info.State, created: info.Created.UnixNano(), after: after,
		looked: time.Now(), at: info.TimeStamp,
	}, nil
}

func (l *link) lookUp(ctx context.Context) (stream, error) {
	return l.streamOf(ctx, "look up", func(ctx context.Context) (jetstream.Stream, error) { return l.conn.js.Stream(ctx, l.name) })
}

// change creates or updates a stream.
func (l *link) change(ctx context.Context, verb string, config jetstream.StreamConfig,
	call func(context.Context, jetstream.StreamConfig) (jetstream.Stream, error),
) (stream, error) {
	changed, err := l.streamOf(ctx, verb, func(ctx context.Context) (jetstream.Stream, error) { return call(ctx, config) })
	if err == nil {
		l.log.Info("stream "+verb+"d", zap.String("stream", l.name), zap.Strings("subjects", config.Subjects))
	}
	return changed, err
}

// find looks the stream up. It creates a missing stream.
func (s *Sink) find(ctx context.Context) (stream, error) {
	found, err := s.lookUp(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return s.atomic(s.create(ctx, s.missingSubjects(nil), owner(s.id, nil, 0)))
	}
	if err != nil {
		return stream{}, err
	}
	return s.fit(ctx, found)
}

// fit adds settings that the stream lacks. It adopts an empty stream without an owner, and refuses a stream of another owner.
func (s *Sink) fit(ctx context.Context, found stream) (stream, error) {
	config := found.config
	if err := s.inspect(config); err != nil {
		return stream{}, err
	}
	owned, missing, err := s.accept(found)
	if err != nil {
		return stream{}, err
	}
	if owned && len(missing) == 0 && config.AllowAtomicPublish {
		return found, nil
	}
	config.Subjects = append(config.Subjects, missing...)
	config.AllowAtomicPublish = true
	if !owned {
		config.AllowBatchPublish = config.AllowBatchPublish || s.conn.knowsFastBatches()
		config.Metadata = owner(s.id, config.Metadata, found.state.LastSeq)
	}
	return s.atomic(s.change(ctx, "update", config, s.conn.js.UpdateStream))
}

// accept refuses a stream of another owner, or with missing settings that the bridge may not
// add. missing are subjects that it lacks.
func (s *Sink) accept(found stream) (owned bool, missing []string, err error) {
	config := found.config
	if owned, err = s.checkOwner(config.Metadata); err != nil {
		return false, nil, err
	}
	if !owned && found.state.Msgs > 0 {
		return false, nil, s.refuse(fmt.Errorf("it holds %d messages and does not belong to a bridge", found.state.Msgs),
			"set nats.stream.name to another name, or delete the stream")
	}
	missing = s.missingSubjects(config.Subjects)
	if (len(missing) > 0 || !config.AllowAtomicPublish) && !*s.config.Stream.Create {
		return false, nil, fmt.Errorf("stream %q has the subjects %s and allow_atomic %v, and nats.stream.create is false: set its subjects to %s and allow_atomic to true",
			s.name, strings.Join(config.Subjects, ", "), config.AllowAtomicPublish, strings.Join(s.missingSubjects(nil), ", "))
	}
	return owned, missing, nil
}

// atomic refuses a server that does not support atomic publishes.
func (s *Sink) atomic(found stream, err error) (stream, error) {
	if err == nil && !found.config.AllowAtomicPublish {
		return stream{}, s.refuse(fmt.Errorf("NATS %s has no atomic publish", s.conn.nc.ConnectedServerVersion()), "upgrade to NATS 2.12 or newer")
	}
	return found, err
}

// choose finds out the stream's name. With at-least-once and no configured name, it is the name of the
// stream that has the subjects.
func (l *link) choose(ctx context.Context) error {
	l.name = l.config.StreamName(l.id.Cluster)
	if l.config.Delivery != atLeastOnce || l.config.Stream.Name != "" {
		return nil
	}
	err := l.conn.do(ctx, func(ctx context.Context) error {
		name, err := l.conn.js.StreamNameBySubject(ctx, l.subjects[0])
		if err == nil {
			l.name = name
		}
		return err
	})
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return l.explain("find", err)
	}
	return nil
}

// create makes the stream. A stream with an owner belongs to one pipeline.
func (l *link) create(ctx context.Context, subjects []string, owner map[string]string) (stream, error) {
	if err := l.mayCreate(subjects, owner != nil); err != nil {
		return stream{}, err
	}
	config := l.config.definition(l.id, subjects, owner)
	config.Name = l.name
	config.AllowBatchPublish = owner != nil && l.conn.knowsFastBatches()
	return l.change(ctx, "create", config, l.conn.js.CreateStream)
}

// mayCreate returns an error unless a stream that is missing is to be created.
func (l *link) mayCreate(subjects []string, alone bool) error {
	if *l.config.Stream.Create {
		return nil
	}
	hint := ""
	if alone {
		hint = " and allow_atomic"
	}
	return fmt.Errorf("stream %q does not exist, and nats.stream.create is false: create it with the subjects %s%s",
		l.name, strings.Join(subjects, ", "), hint)
}

// checkOwner reports whether the metadata name this pipeline, and refuses those that
// name another.
func (s *Sink) checkOwner(meta map[string]string) (owned bool, err error) {
	for name, mine := range owner(s.id, nil, 0) {
		theirs, set := meta[name]
		if set && theirs != mine {
			return false, s.refuse(fmt.Errorf("it belongs to another bridge, cluster or sink: its %s is %q, this one is %q", name, theirs, mine),
				"set nats.stream.name and nats.subject to others, or give this cluster or bridge a name of its own")
		}
		owned = owned || set
	}
	return owned, nil
}

// owner adds the owner of the stream to metadata.
func owner(id event.Identity, meta map[string]string, after uint64) map[string]string {
	all := map[string]string{}
	for k, v := range meta {
		all[k] = v
	}
	all[metaBridge], all[metaClusterUID], all[metaSink] = id.Bridge, id.ClusterUID, id.Sink
	if after > 0 {
		all[metaAfter] = strconv.FormatUint(after, 10)
	}
	return all
}

func (s *Sink) missingSubjects(have []string) []string {
	return uncovered(append(slices.Clone(s.subjects), s.termSubject), have)
}

// uncovered returns the subjects that no pattern covers.
func uncovered(subjects, patterns []string) []string {
	var missing []string
	for _, want := range subjects {
		if !slices.ContainsFunc(patterns, func(p string) bool { return covers(p, want) }) {
			missing = append(missing, want)
		}
	}
	return missing
}

func (l *link) refuse(why error, hint string) error {
	return &sink.RefusedError{What: fmt.Sprintf("stream %q on %s", l.name, l.conn.address), Err: why, Hint: hint}
}

// explain adds the meaning to an error of the JetStream API.
func (l *link) explain(verb string, err error) error {
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse),
		errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("%s stream %q: nobody answers for JetStream on %s: is it enabled, has the cluster a leader, and does the account leave the subject as it is (mappings)? (%w)", verb, l.name, l.conn.address, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s stream %q: no answer from %s: %w", verb, l.name, l.conn.address, err)
	}
	return fmt.Errorf("%s stream %q on %s: %w", verb, l.name, l.conn.address, err)
}

// termRecord is the data of the message that begins a term.
type termRecord struct {
	Bridge     string    `json:"bridge"`
	Cluster    string    `json:"cluster"`
	ClusterUID string    `json:"clusteruid"`
	Sink       string    `json:"sink"`
	Term       uint64    `json:"term"`
	Time       time.Time `json:"time"`
}

// lastTerm returns the highest term on the stream, and the sequence of the last message on the subject of terms (0: there is none).
func (s *Sink) lastTerm(ctx context.Context, of stream) (term string, seq uint64, err error) {
	take := func(m message) {
		if termNumber(m.term) > termNumber(term) {
			term = m.term
		}
	}
	terms := sequences(1, 0)
	terms.config.FilterSubjects, terms.config.HeadersOnly = []string{s.termSubject}, true
	if of.config.Replicas > 1 { // a replica that lags may not have a later writer's term yet
		terms.before = of.state.LastSeq + 1
	}
	err = s.read(ctx, terms, func(m jetstream.Msg, n uint64) error {
		seq = n
		take(s.classify(of, m, n))
		return nil
	})
	if err != nil || term != "" {
		return term, seq, err
	}
	// Retention may have removed the record that began the term, but not the last messages.
	last := sequences(of.state.LastSeq-min(of.state.LastSeq, lastMessages), 0)
	last.config.HeadersOnly, last.before = true, terms.before
	err = s.read(ctx, last, func(m jetstream.Msg, n uint64) error {
		take(s.classify(of, m, n))
		return nil
	})
	return term, seq, err
}

// beginTerm fences every earlier writer. If two writers begin at the same time, one
// fails: the record is stored only if no other term has begun since the stream was read.
func (s *Sink) beginTerm(ctx context.Context, of stream) error {
	last, seq, err := s.lastTerm(ctx, of)
	if err != nil {
		return err
	}
	return s.beginTermAfter(ctx, of, last, seq)
}

func (s *Sink) beginTermAfter(ctx context.Context, of stream, last string, seq uint64) error {
	number := max(s.term, termNumber(last)) + 1
	data, err := json.Marshal(termRecord{s.id.Bridge, s.id.Cluster, s.id.ClusterUID, s.id.Sink, number, time.Now().UTC()})
	if err != nil {
		return fmt.Errorf("encode the record of term %d: %w", number, err)
	}
	msg := &nats.Msg{Subject: s.termSubject, Data: data, Header: nats.Header{
		headerTerm:         {s.token(number)},
		headerPlace:        {of.place(anywhere)},
		headerExpectedTerm: {strconv.FormatUint(seq, 10)},
	}}
	var ack *jetstream.PubAck
	err = s.conn.do(ctx, func(ctx context.Context) (err error) {
		ack, err = s.conn.js.PublishMsg(ctx, msg, jetstream.WithRetryAttempts(0))
		return err
	})
	if err == nil && ack.Stream != s.name {
		err = fmt.Errorf("subject %q belongs to stream %q", s.termSubject, ack.Stream)
	}
	if lostRace(err) {
		err = fmt.Errorf("%w: another writer has begun one, or the server stores subject %q under another one (subject_transform of the stream, mappings of the account)", err, s.termSubject)
	}
	if err != nil {
		return s.explain(fmt.Sprintf("begin term %d on", number), err)
	}
	s.term, s.opened = number, ack.Sequence
	s.head, s.own, s.progress = ack.Sequence, ack.Sequence, progress{}
	return nil
}

// followed returns an error that wraps [sink.ErrFenced] if a later writer has begun a term.
func (s *Sink) followed(ctx context.Context, now stream) error {
	last, _, err := s.lastTerm(ctx, now)
	if err != nil || termNumber(last) < s.term || last == s.token(s.term) {
		return err
	}
	return s.fence(last)
}

// overtaken is followed for the checkpoint: its error wraps [checkpoint.ErrFenced]. It returns nil if the sink is not open.
func (s *Sink) overtaken(ctx context.Context) error {
	if s.conn == nil || s.opened == 0 {
		return nil
	}
	now, err := s.lookUp(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil // nor is there a later writer
	}
	if err == nil {
		err = s.followed(ctx, now)
	}
	if errors.Is(err, sink.ErrFenced) {
		return fmt.Errorf("%w: %w", checkpoint.ErrFenced, err)
	}
	return err
}

// fence records that a later writer has begun a term, and returns the error.
func (s *Sink) fence(term string) error {
	s.fenced = fmt.Errorf("%w: stream %q is in term %s, this writer's is %s", sink.ErrFenced, s.name, term, s.token(s.term))
	return s.fenced
}

// token returns a term as messages carry it. The number shows the order of terms, and
// the writer makes it unique.
func (s *Sink) token(number uint64) string {
	return strconv.FormatUint(number, 10) + "." + s.writer
}

func termNumber(token string) uint64 {
	number, _, _ := strings.Cut(token, ".")
	n, _ := strconv.ParseUint(number, 10, 64)
	return n
}
