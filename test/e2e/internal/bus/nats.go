package bus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Subjects matches all subjects that the bridge publishes to by default.
const Subjects = "k8s.>"

// NATS is a NATS server with JetStream on disk, and a reader of the stream that has [Subjects], and of its dead letters.
type NATS struct {
	*Log
	dir    string
	port   int
	server *server.Server
	conn   *nats.Conn
	stop   context.CancelFunc
	reader sync.WaitGroup
	// SkipForeign leaves out messages without headers, which a test puts on the stream.
	SkipForeign atomic.Bool
}

// StartNATS starts a server with its data in dir.
func StartNATS(dir string) (*NATS, error) {
	n := &NATS{Log: newLog(), dir: dir, port: server.RANDOM_PORT}
	if err := n.Start(); err != nil {
		return nil, err
	}
	n.port = n.server.Addr().(*net.TCPAddr).Port
	var err error
	n.conn, err = nats.Connect(n.server.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		n.Stop()
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	n.reader.Go(func() { n.read(ctx) })
	return n, nil
}

// Start starts the server again after [NATS.Stop], on the same port and data.
func (n *NATS) Start() error {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: n.port, JetStream: true, StoreDir: n.dir, NoLog: true, NoSigs: true,
	})
	if err != nil {
		return fmt.Errorf("start NATS: %w", err)
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		s.Shutdown()
		s.WaitForShutdown()
		return errors.New("start NATS: not ready after 20 s")
	}
	n.server = s
	return nil
}

// Stop shuts the server down and returns when it has ended.
func (n *NATS) Stop() {
	n.server.Shutdown()
	n.server.WaitForShutdown()
}

// Close ends reader and server.
func (n *NATS) Close() {
	n.stop()
	n.reader.Wait()
	n.conn.Close()
	n.Stop()
}

// Addr returns host:port of the server.
func (n *NATS) Addr() string { return fmt.Sprintf("127.0.0.1:%d", n.port) }

// read follows the stream across restarts of the server. After an error it continues after the last message that was read.
func (n *NATS) read(ctx context.Context) {
	js, err := jetstream.New(n.conn)
	if err != nil {
		n.add(Message{Place: "reader"}, err)
		return
	}
	for next := uint64(1); ctx.Err() == nil; {
		next = n.follow(ctx, js, next)
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (n *NATS) follow(ctx context.Context, js jetstream.JetStream, next uint64) uint64 {
	name, err := js.StreamNameBySubject(ctx, Subjects)
	if err != nil {
		return next // the bridge has not created the stream yet
	}
	filters := []string{Subjects}
	if s, err := js.Stream(ctx, name); err == nil {
		for _, subject := range s.CachedInfo().Config.Subjects {
			if strings.HasSuffix(subject, ".dead.>") {
				filters = append(filters, subject)
			}
		}
	}
	consumer, err := js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{
		FilterSubjects: filters, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: next,
	})
	if err != nil {
		return next
	}
	messages, err := consumer.Messages(jetstream.PullHeartbeat(time.Second), jetstream.PullExpiry(5*time.Second))
	if err != nil {
		return next
	}
	defer messages.Stop()
	for {
		raw, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return next
		}
		meta, err := raw.Metadata()
		if err != nil {
			return next
		}
		next = meta.Sequence.Stream + 1
		if n.SkipForeign.Load() && len(raw.Headers()) == 0 {
			continue
		}
		m, err := fromNATS(raw.Subject(), raw.Headers(), raw.Data(), meta.Sequence.Stream)
		m.At = meta.Timestamp
		n.add(m, err)
	}
}

func fromNATS(subject string, header nats.Header, data []byte, seq uint64) (Message, error) {
	headers := map[string]string{}
	var wrong error
	for name, values := range header {
		attribute, ok := strings.CutPrefix(name, "ce-")
		if !ok {
			continue
		}
		value, err := url.PathUnescape(values[0]) // the escapes are those of RFC 3986
		wrong = errors.Join(wrong, err)
		headers[attribute] = value
	}
	m, err := parse(data, headers)
	m.Route = subject
	m.Place = fmt.Sprintf("nats:%d", seq)
	number, _, _ := strings.Cut(header.Get("Kubebridge-Term"), ".")
	m.Term, _ = strconv.Atoi(number)
	if got := header.Get("Content-Type"); got != "application/cloudevents+json; charset=UTF-8" {
		wrong = errors.Join(wrong, fmt.Errorf("content type %q", got))
	}
	return m, errors.Join(wrong, err)
}
