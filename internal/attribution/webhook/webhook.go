// Package webhook is the HTTPS endpoint for the API server's audit webhook backend.
//
// A batch is answered with 200 when its records are durable. What the API server does with another answer decides which one is right
// (k8s.io/apiserver plugin/pkg/audit/webhook, k8s.io/client-go rest): it repeats the batch after every error, whatever its code, at most
// four times, about 10, 15, 22 and 34 seconds later; with Retry-After in an answer 429 or 5xx it repeats the request up to ten times more
// before each of these pauses. Then it drops the batch. So:
//
//	200  the records are durable, or the batch had none
//	400  the body is no EventList of audit.k8s.io/v1
//	401  the token is wrong or missing        403  the client's certificate is of another client
//	405  the method is not POST               415  the content is not JSON, or compressed, which the API server never sends
//	408  the body came too slowly             413  the body is too large
//	429  the inbox is full, or too much is being received; with Retry-After
//	503  the records could not be stored, or the token file not be read; with Retry-After
//
// A replica of the bridge that does not lead sends the records that it has accepted to [RecordsPath] of the leader. That request has the same form
// and the same answers, and the body is a JSON array of [audit.Record], of which each passes [audit.Record.Check]. A replica that does not lead answers 503.
//
// In the modes blocking and blocking-strict, the API server lets clients wait for these answers.
//
// Before Kubernetes 1.37, an API server cannot encode the event of an apply patch that is YAML and no JSON, at level Request and above. In
// mode batch it drops the whole batch then, up to 400 events, unless --audit-webhook-truncate-enabled is set, and only this event otherwise
// (https://github.com/kubernetes/kubernetes/pull/139419). It counts them in apiserver_audit_error_total.
package webhook

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/inbox"
	"github.com/kubebridge/kubebridge/internal/base/httpserver"
	"github.com/kubebridge/kubebridge/internal/base/scan"
)

const (
	defaultMaxBody = 32 << 20
	headerBytes    = 12 << 10
	headerTime     = 5 * time.Second  // also for the TLS handshake
	bodyTime       = 20 * time.Second // the API server gives up after 30 s
	idleTime       = 90 * time.Second
	stopTime       = 5 * time.Second
	streams        = 250 // concurrent requests of a connection
	connections    = 256
	perAddress     = 64

	// RecordsPath is for records of other replicas.
	RecordsPath = "/records"

	// fullDelay and busyDelay are values of Retry-After, in seconds. With the first one, the API server holds a batch for about three minutes
	// before it drops it. A larger one would let batches pile up in the memory of the API server.
	fullDelay = 2
	busyDelay = 1
)

// Store keeps records.
type Store interface {
	// Append returns nil when the records are durable, and an error that wraps inbox.ErrFull if there is no place for them. Their Input means nothing.
	Append(records []audit.Record) error
}

// Options of a [Server]. Listen, Cert, Key, Parser, Store and Log are required, and at least one of ClientCA and TokenFile.
type Options struct {
	Listen    string // host:port
	Cert, Key string // PEM files. All files are read again for new connections
	// ClientCA is a PEM file with the certificates that issue those of clients. "": clients need no certificate.
	ClientCA string
	// ClientNames are the common names and DNS names that a client's certificate may have. Empty: any.
	ClientNames []string
	// TokenFile has the bearer token of clients. "": they need none. With ClientCA, too, clients need both.
	TokenFile string
	// MaxBody limits the bytes of a request. 0 means 32 MiB. Twice as much is received at a time.
	MaxBody int64
	Parser  *audit.Parser
	Store   Store
	Log     *zap.Logger
	// Unparsable returns a record to keep with those of a batch in which an event does not parse. nil: nothing is kept of that event.
	Unparsable func(why error) audit.Record
	// Refused is called when a batch is refused, so that its records may be lost. records are those of the batch; nil: they are not known. It is not
	// called for wrong credentials, for requests that have no batch (405, 415), and for records of another replica, which repeats them until
	// they are accepted. nil: nothing is called.
	Refused func(records []audit.Record, why error)
	// Leads reports whether this replica takes records of others. nil: it does not.
	Leads func() bool
	// BodyTime is how long a client may take to send a body. 0 means 20 seconds.
	BodyTime time.Duration
}

// Server is the endpoint.
type Server struct {
	options  Options
	login    httpserver.Login // nil: none
	listener net.Listener
	http     http.Server
	memory   *semaphore.Weighted // bytes of bodies, and of the records of other replicas
	counts   counts
	log      *zap.Logger // each message at most once a minute
}

// New listens; Run serves. New returns an error if the address or a file cannot be used.
func New(o Options) (*Server, error) {
	if o.ClientCA == "" && o.TokenFile == "" {
		return nil, errors.New("audit webhook: anybody could send forged audit events: set a CA for client certificates, a token file, or both")
	}
	if o.MaxBody == 0 {
		o.MaxBody = defaultMaxBody
	}
	if o.BodyTime == 0 {
		o.BodyTime = bodyTime
	}
	protocol, err := httpserver.TLS{
		Cert: o.Cert, Key: o.Key, ClientCA: o.ClientCA, Auth: tls.RequireAndVerifyClientCert, Protocols: []string{"h2", "http/1.1"},
		Kept: func(err error) {
			o.Log.Warn("certificates of the audit webhook not read, keeping the previous ones", zap.Error(err))
		},
	}.Config()
	if err != nil {
		return nil, fmt.Errorf("audit webhook: %w", err)
	}
	s := &Server{options: o, memory: semaphore.NewWeighted(2 * o.MaxBody), log: rarely(o.Log)}
	if o.TokenFile != "" {
		s.login = httpserver.TokenFile(o.TokenFile)
		if err := s.login(context.Background(), "", nil); !errors.Is(err, httpserver.ErrUnknownToken) { // it was read
			return nil, fmt.Errorf("audit webhook: token file: %w", err)
		}
	}
	errorLog, err := zap.NewStdLogAt(o.Log, zap.DebugLevel) // errors of clients
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("audit webhook: %w: choose another address", err)
	}
	s.listener = httpserver.Limit(l, connections, perAddress)
	s.http = http.Server{
		Handler: s, ErrorLog: errorLog, TLSConfig: protocol, MaxHeaderBytes: headerBytes, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: streams, SendPingTimeout: idleTime, PingTimeout: headerTime},
	}
	return s, nil
}

// Addr returns the address of the server.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close stops a server that does not run.
func (s *Server) Close() error { return s.listener.Close() }

// Run serves until ctx ends. Requests that are being answered then may end.
func (s *Server) Run(ctx context.Context) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		if err := s.http.Shutdown(grace); err != nil {
			_ = s.http.Close()
		}
	})
	err := s.http.ServeTLS(s.listener, "", "")
	if !stop() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Counters returns what the server has counted.
func (s *Server) Counters() Counters { return s.counts.get() }

// refusal is an answer other than 200.
type refusal struct {
	code  int
	why   Refusal
	text  string
	retry int // seconds; 0: no Retry-After
}

// ServeHTTP answers a request with a batch.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	no := s.handle(w, r)
	if no == nil {
		return // 200
	}
	s.counts.refuse(no.why)
	if no.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(no.retry))
	}
	if no.code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="kubebridge"`)
	}
	http.Error(w, no.text, no.code)
}

func (s *Server) handle(w http.ResponseWriter, r *http.Request) *refusal {
	if no := s.admit(r); no != nil {
		return no
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return &refusal{http.StatusMethodNotAllowed, RefusedForm, "send audit events by POST", 0}
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" || r.Header.Get("Content-Encoding") != "" {
		return &refusal{http.StatusUnsupportedMediaType, RefusedForm, "send audit events as application/json without compression", 0}
	}
	if r.URL.Path == RecordsPath && (s.options.Leads == nil || !s.options.Leads()) {
		return &refusal{http.StatusServiceUnavailable, RefusedFailed, "this replica does not lead", busyDelay}
	}
	if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.options.BodyTime)); err != nil {
		s.mayLose(r, nil, "it cannot be received")
		return &refusal{http.StatusServiceUnavailable, RefusedFailed, "the body cannot be received", busyDelay}
	}
	body, held, no := s.receive(r)
	defer s.memory.Release(held)
	if no != nil {
		s.mayLose(r, nil, no.text)
		return no
	}
	if r.URL.Path == RecordsPath {
		return s.keepRecords(r, body)
	}
	return s.keep(r, body)
}

// mayLose says that a request is refused, so that its records may be lost. nil: they are not known.
func (s *Server) mayLose(r *http.Request, records []audit.Record, why string) {
	if s.options.Refused != nil && r.URL.Path != RecordsPath {
		s.options.Refused(records, errors.New("a batch was refused: "+why))
	}
}

// admit checks the client.
func (s *Server) admit(r *http.Request) *refusal {
	if names := s.options.ClientNames; s.options.ClientCA != "" && len(names) > 0 {
		// The connection has a certificate that was verified.
		cert := r.TLS.PeerCertificates[0]
		if !slices.Contains(names, cert.Subject.CommonName) && !slices.ContainsFunc(cert.DNSNames, func(n string) bool { return slices.Contains(names, n) }) {
			s.log.Warn("audit webhook refused a client by its name", zap.String("address", r.RemoteAddr))
			return &refusal{http.StatusForbidden, RefusedClient, "the client's certificate is not one of those that may send audit events", 0}
		}
	}
	if s.login == nil {
		return nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		token = ""
	}
	err := s.login(r.Context(), strings.TrimSpace(token), r)
	var denied *httpserver.DeniedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &denied):
		s.log.Warn("audit webhook refused a client without the token", zap.String("address", r.RemoteAddr))
		return &refusal{denied.Code, RefusedClient, "a valid bearer token is required", 0}
	default:
		s.log.Warn("audit webhook cannot read its token file", zap.Error(err))
		s.mayLose(r, nil, "the token file cannot be read")
		return &refusal{http.StatusServiceUnavailable, RefusedFailed, "the token cannot be checked now", busyDelay}
	}
}

// receive reads the body. It counts its memory while it comes, not when it is announced, so a client that sends slowly does not keep others
// out. held is what the caller releases.
func (s *Server) receive(r *http.Request) (body []byte, held int64, no *refusal) {
	limit := s.options.MaxBody
	tooLarge := &refusal{http.StatusRequestEntityTooLarge, RefusedSize, fmt.Sprintf("the limit is %d bytes", limit), 0}
	if r.ContentLength > limit {
		s.warnSize(r, r.ContentLength)
		return nil, 0, tooLarge
	}
	for {
		if len(body) == cap(body) {
			more := min(max(64<<10, int64(cap(body))), limit+1-int64(cap(body)))
			if !s.memory.TryAcquire(more) {
				return nil, held, s.busy()
			}
			held += more
			body = append(make([]byte, 0, int64(cap(body))+more), body...)
		}
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > limit:
			s.warnSize(r, int64(len(body)))
			return nil, held, tooLarge
		case errors.Is(err, io.EOF):
			return body, held, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, held, &refusal{http.StatusRequestTimeout, RefusedSlow, "the body came too slowly", 0}
		case err != nil:
			return nil, held, &refusal{http.StatusBadRequest, RefusedSlow, "the body did not come as a whole", 0}
		}
	}
}

var errBusy = errors.New("too much is being received")

func (s *Server) busy() *refusal {
	s.log.Warn("audit webhook receives too much at once", zap.Int64("limit", 2*s.options.MaxBody))
	return &refusal{http.StatusTooManyRequests, RefusedBusy, errBusy.Error(), busyDelay}
}

func (s *Server) warnSize(r *http.Request, size int64) {
	s.log.Warn("audit batch is too large, and the API server will drop it: raise the limit, or lower --audit-webhook-batch-max-size, or set --audit-webhook-truncate-enabled",
		zap.Int64("bytes", size), zap.Int64("limit", s.options.MaxBody), zap.String("address", r.RemoteAddr))
}

// keep stores the records of a body.
func (s *Server) keep(r *http.Request, body []byte) *refusal {
	var b audit.Batch
	if err := s.options.Parser.List(body, &b); err != nil {
		s.log.Warn("audit webhook received what is no list of audit events", zap.Error(err), zap.Int("bytes", len(body)), zap.String("address", r.RemoteAddr))
		s.mayLose(r, nil, "it is no list of audit events")
		return &refusal{http.StatusBadRequest, RefusedForm, err.Error(), 0}
	}
	if b.Unparsable > 0 {
		s.log.Warn("audit events do not parse, and are left out", zap.Int("events", b.Unparsable), zap.NamedError("first", b.Err), zap.String("address", r.RemoteAddr))
	}
	records := b.Records
	if b.Unparsable > 0 && s.options.Unparsable != nil {
		records = append(records, s.options.Unparsable(b.Err))
	}
	if no := s.store(records); no != nil {
		s.mayLose(r, records, no.text)
		return no
	}
	s.counts.accept(len(body), &b)
	return nil
}

// keepRecords stores the records of another replica, which has parsed and counted them. They count as memory, because their JSON can be much shorter.
func (s *Server) keepRecords(r *http.Request, body []byte) *refusal {
	var records []audit.Record
	held := int64(0)
	defer func() { s.memory.Release(held) }()
	var list scan.Scanner
	list.Reset(body)
	err := list.Elements(func() error {
		text, err := list.Value()
		if err != nil {
			return err
		}
		var one audit.Record
		if err := json.Unmarshal(text, &one); err != nil {
			return err
		}
		if err := one.Check(); err != nil {
			return err
		}
		size := int64(one.Size())
		if !s.memory.TryAcquire(size) {
			return errBusy
		}
		held += size
		records = append(records, one)
		return nil
	})
	if err == nil {
		err = list.End()
	}
	switch {
	case errors.Is(err, errBusy):
		return s.busy()
	case err != nil:
		s.log.Warn("audit webhook received what are no records of another replica: do all run the same version?", zap.Error(err), zap.String("address", r.RemoteAddr))
		return &refusal{http.StatusBadRequest, RefusedForm, err.Error(), 0}
	}
	return s.store(records)
}

// store makes records durable.
func (s *Server) store(records []audit.Record) *refusal {
	err := s.options.Store.Append(records)
	switch {
	case errors.Is(err, inbox.ErrFull):
		s.log.Warn("audit records refused: the inbox is full", zap.Error(err))
		return &refusal{http.StatusTooManyRequests, RefusedFull, "the inbox is full", fullDelay}
	case err != nil:
		s.log.Warn("audit records not stored", zap.Error(err))
		return &refusal{http.StatusServiceUnavailable, RefusedFailed, "the records could not be stored", busyDelay}
	}
	return nil
}
