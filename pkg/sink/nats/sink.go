// Package nats writes batches to JetStream, exactly once and in order.
//
// A lane has a stream of its own. Records are published in chunks. The server
// stores a chunk as a whole, and only if the stream has reached the sequence that
// the sink expects (an atomic publish, NATS 2.12). After any error the sink reads
// the stream from where it last knew it to the end, and goes on from there.
//
// A writer begins a term: it puts a record on a subject that nobody else uses,
// and marks each of its messages with the term. A predecessor's next chunk then
// fails, it reads, finds the term, and has been fenced.
//
// Single messages under way at once, each with the sequence predicted for it, are
// faster by half but do not fence: when another message takes the place of one,
// those behind it are stored all the same, since the stream has the length that
// they expect.
//
// The stream is also the log that a checkpoint may trail: each message carries
// what it moves in the checkpoint, and [Sink.Tail] gives it back.
//
// Nats-Msg-Id is not used. The server would drop a message whose id it has seen
// within its duplicate window without taking a sequence for it, and an event may
// rightly repeat an id (a gap that is opened twice); the expected sequence already
// excludes what is published twice.
package nats

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/nats-io/nuid"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// Options are what a sink is made of.
type Options struct {
	Config   Config         // completed by New
	Identity event.Identity // whose stream it is
	Logger   *zap.Logger    // nil: silent
}

// Sink is a [sink.Sink] and a [sink.Log] for JetStream.
type Sink struct {
	config      Config
	id          event.Identity
	log         *zap.Logger
	name        string   // of the stream
	subjects    []string // patterns of the records' subjects
	termSubject string
	writer      string // tells this Sink's terms from every other's

	server *embeddedServer // nil unless open and embedded
	conn   *conn           // nil when not open
	stream stream
	term   uint64
	opened uint64 // the sequence of the record that began the term

	attempt      uint64 // tells the acknowledgement of one chunk from that of another
	chunkRecords int    // at most; less where the server is set to take less

	fenced error  // final
	lost   string // what the stream lost; a new term must be begun before the lane hears of it
	progress
}

var (
	_ sink.Sink = (*Sink)(nil)
	_ sink.Log  = (*Sink)(nil)
)

// termRoot is the first token of the subjects on which terms begin.
const termRoot = "kubebridge"

// New returns a sink that has not connected yet. An error is about the
// configuration, or the files it names.
func New(o Options) (*Sink, error) {
	c, err := o.Config.Complete()
	if err != nil {
		return nil, err
	}
	if err := c.checkFiles(); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	name := c.Stream.Name
	if name == "" {
		name = "K8S_" + event.EscapeToken(o.Identity.Cluster)
	}
	subjects := []string{subjectRoot(c.Subject, o.Identity.Cluster)}
	if !strings.HasSuffix(subjects[0], ">") { // collection events need room
		subjects = append(subjects, subjects[0]+".>")
	}
	return &Sink{
		config:   c,
		id:       o.Identity,
		log:      o.Logger,
		name:     name,
		subjects: subjects,
		termSubject: fmt.Sprintf("%s.%s.%s.%s.term", termRoot,
			event.EscapeToken(o.Identity.Cluster), event.EscapeToken(o.Identity.Bridge), event.EscapeToken(o.Identity.Sink)),
		writer:       nuid.Next(),
		chunkRecords: chunkRecords,
	}, nil
}

func (c Config) checkFiles() error {
	if c.Auth.Creds != "" {
		if _, err := os.ReadFile(c.Auth.Creds); err != nil {
			return fmt.Errorf("auth.creds: %w", err)
		}
	}
	if c.TLS.CA != "" {
		pem, err := os.ReadFile(c.TLS.CA)
		if err != nil {
			return fmt.Errorf("tls.ca: %w", err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return fmt.Errorf("tls.ca: %s holds no PEM certificate", c.TLS.CA)
		}
	}
	return nil
}

// Open starts the embedded server if there is one, connects, finds or creates the
// stream, checks that it belongs to this lane, and begins a term.
func (s *Sink) Open(ctx context.Context, recorded []byte) error {
	if s.conn != nil {
		return errors.New("open: already open")
	}
	if err := s.open(ctx, recorded); err != nil {
		s.disconnect()
		return err
	}
	s.log.Info("stream opened", zap.String("server", s.conn.address), zap.String("stream", s.name),
		zap.Uint64("term", s.term), zap.Uint64("sequence", s.opened))
	return nil
}

func (s *Sink) open(ctx context.Context, recorded []byte) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if e := s.config.Embedded; e != nil {
		if s.server, err = startServer(*e, s.config.Auth, s.log); err != nil {
			return err
		}
	}
	if s.conn, err = s.connect(); err != nil {
		return err
	}
	if m, err := decodeMark(recorded); err == nil {
		s.term = max(s.term, termNumber(m.term)) // another mark is Tail's matter
	}
	if s.stream, err = s.find(ctx); err != nil {
		return err
	}
	return s.beginTerm(ctx, s.stream)
}

// Close disconnects, and stops the embedded server if there is one.
func (s *Sink) Close() error {
	s.disconnect()
	return nil
}

func (s *Sink) disconnect() {
	if s.conn != nil {
		s.conn.close()
		s.conn = nil
	}
	if s.server != nil {
		s.server.close()
		s.server = nil
	}
}

// ClientURL is where subscribers connect to an embedded server; "" before Open and
// without one.
func (s *Sink) ClientURL() string {
	if s.server == nil {
		return ""
	}
	return s.server.url()
}
