package nats

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/base/links"
	"github.com/kubebridge/kubebridge/pkg/event"
)

const (
	embeddedMaxPayload = 8 << 20
	// embeddedSync is how often the embedded server syncs to disk. Acknowledged
	// messages survive the end of the process at any time. If the machine fails, the last
	// seconds may be lost. The sink detects this, and the
	// pipeline declares a reset.
	embeddedSync  = 5 * time.Second
	embeddedReady = 30 * time.Second
	// limitTime bounds the deletion of readers' consumers, of which a server allows a thousand, at a start.
	limitTime  = 2 * time.Minute
	tlsTimeout = 5.0 // seconds, for a client's handshake

	bridgeUser = "kubebridge-internal" // with a password made at each start
	readerUser = "reader"              // of those who connect without credentials

	// readerConnections is the number of connections that readers may have: far less than the server's limit of 65,536, so that
	// readers cannot keep the bridge from connecting.
	readerConnections = 1000
	// readerIdle is how long the server keeps a consumer that nobody uses. It bounds what readers without a login leave behind.
	readerIdle = time.Hour
)

// embeddedServer is a NATS server in this process.
type embeddedServer struct {
	*server.Server
	password string // of bridgeUser
	lock     *os.File
	started  time.Time
}

// startServer starts the server that a configuration names, and waits until it serves.
func startServer(c Config, id event.Identity, log *zap.Logger) (_ *embeddedServer, err error) {
	e, auth := c.Embedded, c.Auth
	fail := func(err error) error { return fmt.Errorf("start the embedded NATS server: %w", err) }
	host, port, err := e.hostPort()
	if err != nil {
		return nil, fail(err)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	accounts, err := c.Accounts(id)
	if err != nil {
		return nil, fail(err)
	}
	options := &server.Options{}
	if err := options.ProcessConfigString(accounts.embedded(e.Leaf != nil).ServerConfig("", "")); err != nil {
		return nil, fail(err)
	}
	options.ServerName, options.Host, options.Port = "kubebridge", host, port
	options.JetStream, options.StoreDir = true, e.Dir
	options.JetStreamMaxStore, options.JetStreamMaxMemory = int64(e.MaxBytes), int64(e.MaxMemory)
	options.SyncInterval, options.MaxPayload = embeddedSync, embeddedMaxPayload
	options.NoAuthUser = noAuthUser(auth)
	options.NoSigs, options.DisableJetStreamBanner = true, true
	s := &embeddedServer{password: rand.Text(), started: time.Now()}
	if err := s.addUsers(options, auth); err != nil {
		return nil, fail(err)
	}
	if e.TLS != nil {
		if options.TLSConfig, err = e.TLS.load(); err != nil {
			return nil, fail(err)
		}
		options.TLSVerify = e.TLS.ClientCA != ""
		options.TLSTimeout = tlsTimeout
	}
	if e.Leaf != nil {
		remote, err := e.Leaf.remote()
		if err != nil {
			return nil, fail(err)
		}
		options.LeafNode.Remotes = []*server.RemoteLeafOpts{remote}
	}
	if s.lock, err = lockDir(e.Dir); err != nil {
		return nil, fail(err)
	}
	s.Server, err = server.NewServer(options)
	if err != nil {
		s.unlock()
		return nil, fail(err)
	}
	serverLog := &serverLog{log: log.Named("nats-server").WithOptions(zap.AddCallerSkip(1))}
	s.SetLoggerV2(serverLog, log.Core().Enabled(zap.DebugLevel), false, false)
	s.Start()
	if err := serverLog.startup(); err != nil {
		s.close()
		return nil, fail(fmt.Errorf("on %s with data in %s: %w", e.Listen, e.Dir, err))
	}
	if !s.ReadyForConnections(embeddedReady) {
		s.close()
		return nil, fail(fmt.Errorf("on %s with data in %s: not ready after %v", e.Listen, e.Dir, embeddedReady))
	}
	log.Info("embedded NATS server started", zap.String("url", s.url()), zap.String("dir", e.Dir))
	return s, nil
}

func (s *embeddedServer) close() {
	s.Shutdown()
	s.WaitForShutdown()
	s.unlock()
}

// limitReaders deletes the consumers that readers have left behind, and has the streams drop those that nobody uses. Without
// it, readers could use up the server's limit of consumers for good: nobody but the bridge may delete them.
func (s *embeddedServer) limitReaders(ctx context.Context, js jetstream.JetStream) error {
	streams := js.ListStreams(ctx)
	for info := range streams.Info() {
		if strings.HasPrefix(info.Config.Name, bucketPrefix) {
			continue // readers have no access
		}
		stream, err := js.Stream(ctx, info.Config.Name)
		if err != nil {
			return err
		}
		if err := s.deleteOldConsumers(ctx, stream); err != nil {
			return err
		}
		if info.Config.ConsumerLimits.InactiveThreshold != readerIdle {
			info.Config.ConsumerLimits.InactiveThreshold = readerIdle
			if _, err := js.UpdateStream(ctx, info.Config); err != nil {
				return err
			}
		}
	}
	return streams.Err()
}

// deleteOldConsumers deletes the consumers that were created before the server started.
func (s *embeddedServer) deleteOldConsumers(ctx context.Context, stream jetstream.Stream) error {
	consumers := stream.ListConsumers(ctx)
	var old []string
	for c := range consumers.Info() {
		if c.Created.Before(s.started) {
			old = append(old, c.Name)
		}
	}
	if err := consumers.Err(); err != nil {
		return err
	}
	for _, name := range old {
		if err := stream.DeleteConsumer(ctx, name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return err
		}
	}
	return nil
}

func (s *embeddedServer) unlock() { _ = s.lock.Close() }

func (s *embeddedServer) url() string { return s.ClientURL() }

// clientOptions connect to the server without a socket.
func (s *embeddedServer) clientOptions() []nats.Option {
	return []nats.Option{nats.InProcessServer(s.Server), nats.UserInfo(bridgeUser, s.password)}
}

// addUsers adds the user of the bridge, and the users who may only read.
func (s *embeddedServer) addUsers(o *server.Options, auth Auth) (err error) {
	reader := &server.User{
		Username:    readerUser,
		Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{readerAPI + ">", ackPrefix + ">", "$JS.FC.>"}}},
	}
	if auth.Username != "" {
		reader.Username = auth.Username
		if reader.Password, err = auth.password(); err != nil {
			return err
		}
	}
	bridge := &server.User{Username: bridgeUser, Password: s.password}
	for _, a := range o.Accounts {
		switch a.Name {
		case bridgeAccount:
			bridge.Account = a
		case readerAccount:
			reader.Account = a
		}
	}
	o.Users = []*server.User{bridge, reader}
	return nil
}

func noAuthUser(auth Auth) string {
	if auth.Username != "" {
		return ""
	}
	return readerUser
}

// lockDir makes dir and locks it, because two servers on one directory would destroy its data.
func lockDir(dir string) (*os.File, error) {
	if err := links.Check(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	f, err := links.OpenFile(filepath.Join(dir, "kubebridge.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("directory %s is in use by another process: %w", dir, err)
	}
	return f, nil
}

// serverLog passes the server's log on. Notices of the server have the level debug. The server's own Fatalf would
// end the program. This Fatalf keeps the first error, which start returns, and logs later
// ones.
type serverLog struct {
	log *zap.Logger

	mu      sync.Mutex
	started bool
	why     error
}

func (l *serverLog) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *serverLog) Debugf(format string, v ...any)  { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *serverLog) Tracef(format string, v ...any)  { l.log.Debug(fmt.Sprintf(format, v...)) }

func (l *serverLog) Warnf(format string, v ...any) {
	if strings.HasPrefix(format, "Plaintext passwords detected") {
		return // the bridge's own is random, lives in memory only, and ends with it
	}
	l.log.Warn(fmt.Sprintf(format, v...))
}

func (l *serverLog) Errorf(format string, v ...any) { l.log.Warn(fmt.Sprintf(format, v...)) }

func (l *serverLog) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if why := fmt.Errorf(format, v...); l.started {
		l.log.Error(why.Error())
	} else if l.why == nil {
		l.why = why
	}
}

// startup returns why the server did not start.
func (l *serverLog) startup() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.started = l.why == nil
	return l.why
}
