// Package admin accepts commands to a running bridge, by HTTP over a Unix
// socket that only the bridge's own user can open.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kubebridge/kubebridge/internal/base/links"
)

const (
	// resyncPath takes POST with the parameters resource and, optionally, sink.
	resyncPath = "/resync"
	// checkpointPath takes GET with the parameter sink.
	checkpointPath = "/checkpoint"
)

// Options of a [Server]. All are required.
type Options struct {
	Socket string // path; its directory is made if it is missing
	// Resync starts to emit again every object of the collections that resource
	// and sink ("" for all) name, and returns their IDs. It must end with ctx. For
	// names that the bridge does not know it returns a *[NotFoundError].
	Resync func(ctx context.Context, sink, resource string) (started []string, err error)
	// Checkpoint describes what the checkpoint of a sink holds, in JSON. For a sink that the bridge does not have open it
	// returns a *[NotFoundError].
	Checkpoint func(ctx context.Context, sink string) (json.RawMessage, error)
}

// NotFoundError is returned when the bridge does not have the sink or resource that a command names.
type NotFoundError struct{ Message string }

func (e *NotFoundError) Error() string { return e.Message }

// answer is the body of every response of this server.
type answer struct {
	Started    []string        `json:"started,omitzero"` // collection IDs
	Checkpoint json.RawMessage `json:"checkpoint,omitzero"`
	Error      string          `json:"error,omitzero"`
}

// Server accepts commands.
type Server struct {
	listener net.Listener
	http     http.Server
	socket   string
	own      fs.FileInfo // the socket as this server made it
}

// stopTimeout is how long a command may take to end when the server stops.
const stopTimeout = 5 * time.Second

// New listens; Run serves. New replaces the socket of a process that has ended. A socket
// on which a process listens is an error. Without Run, call Close.
func New(o Options) (*Server, error) {
	l, err := listen(o.Socket)
	if err != nil {
		return nil, fmt.Errorf("admin.socket %s: %w", o.Socket, err)
	}
	own, err := os.Lstat(o.Socket)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("admin.socket: %w", err), l.Close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+resyncPath, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("resource") == "" {
			respond(w, http.StatusBadRequest, answer{Error: "no resource: add ?resource=NAME"})
			return
		}
		started, err := o.Resync(r.Context(), q.Get("sink"), q.Get("resource"))
		conclude(w, answer{Started: append([]string{}, started...)}, err)
	})
	mux.HandleFunc("GET "+checkpointPath, func(w http.ResponseWriter, r *http.Request) {
		held, err := o.Checkpoint(r.Context(), r.URL.Query().Get("sink"))
		conclude(w, answer{Checkpoint: held}, err)
	})
	return &Server{listener: l, socket: o.Socket, own: own, http: http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}}, nil
}

// conclude responds with an answer, or with an error.
func conclude(w http.ResponseWriter, a answer, err error) {
	var notFound *NotFoundError
	switch {
	case errors.As(err, &notFound):
		respond(w, http.StatusNotFound, answer{Error: err.Error()})
	case err != nil:
		respond(w, http.StatusInternalServerError, answer{Error: err.Error()})
	default:
		respond(w, http.StatusOK, a)
	}
}

// listen makes the socket in a directory that other users cannot enter, and moves it into place with its final mode. So
// other users cannot connect before, and an old socket is replaced in one step.
func listen(socket string) (net.Listener, error) {
	if err := vacant(socket); err != nil {
		return nil, err
	}
	dir := filepath.Dir(socket)
	if err := links.Check(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	private, err := os.MkdirTemp(dir, ".a")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(private) }() // empty, or what never came into place
	temporary := filepath.Join(private, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("%w: choose another path, or off", err)
	}
	l.SetUnlinkOnClose(false) // it knows the temporary name only
	err = os.Chmod(temporary, 0o600)
	if err == nil {
		err = os.Rename(temporary, socket)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// vacant returns an error if the file at the path may not be replaced.
func vacant(socket string) error {
	info, err := os.Lstat(socket)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("it exists and is no socket: remove it, or choose another path")
	}
	c, err := net.DialTimeout("unix", socket, time.Second)
	if err == nil {
		_ = c.Close()
	}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil // the process that made it has ended
	}
	if err == nil || errors.Is(err, syscall.EAGAIN) || errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("in use by another process: a bridge listens there; stop it, or give this one a checkpoint and socket of its own")
	}
	return err
}

func respond(w http.ResponseWriter, code int, a answer) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(a) // an error means that the client has disconnected
}

// Run serves until ctx ends, then removes the socket. The context of running commands
// ends with ctx.
func (s *Server) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.Close()) }()
	s.http.BaseContext = func(net.Listener) context.Context { return ctx }
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		_ = s.http.Shutdown(bounded) // its error means that the time is over
	})
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return fmt.Errorf("serve commands: %w", err)
	}
	<-stopped
	return nil
}

// Close stops listening and removes the socket, unless it belongs to another process by now.
func (s *Server) Close() error {
	_ = s.http.Close()
	err := s.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	if now, e := os.Lstat(s.socket); e == nil && os.SameFile(now, s.own) {
		err = errors.Join(err, os.Remove(s.socket))
	}
	return err
}
