package bus

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Receiver is an HTTP server that keeps the events of the requests that it takes, in the order in which it takes them.
type Receiver struct {
	addr string

	mu       sync.Mutex
	server   *http.Server
	ended    chan struct{} // closed when the server's goroutine has ended
	messages []Message
	wrong    error
	decide   func() Answer
}

// Answer is what a receiver does with one request.
type Answer struct {
	Status int           // 0: it closes the connection without an answer
	Keep   bool          // it keeps the events. With a status of 200 it always does
	Delay  time.Duration // it answers after this time
	Late   bool          // it keeps the events after Delay, whether or not the client still waits
}

// StartReceiver starts a server on a free port of 127.0.0.1.
func StartReceiver() (*Receiver, error) {
	r := &Receiver{addr: "127.0.0.1:0"}
	return r, r.Start()
}

// Addr returns the address of the server (host:port). It stays the same after a stop.
func (r *Receiver) Addr() string { return r.addr }

// Start starts the server again after Stop.
func (r *Receiver) Start() error {
	l, err := net.Listen("tcp", r.addr)
	if err != nil {
		return fmt.Errorf("start a receiver: %w", err)
	}
	server, ended := &http.Server{Handler: r}, make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addr, r.server, r.ended = l.Addr().String(), server, ended
	go func() {
		defer close(ended)
		_ = server.Serve(l)
	}()
	return nil
}

// Stop resets all connections and stops the server. It keeps its messages.
func (r *Receiver) Stop() {
	r.mu.Lock()
	server, ended := r.server, r.ended
	r.mu.Unlock()
	_ = server.Close()
	<-ended
}

// Decide makes decide choose the answer of each request; with nil, every request is taken. Only one request at a time is decided.
func (r *Receiver) Decide(decide func() Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decide = decide
}

// Messages returns the events that were kept so far. The error is about events that are not valid.
func (r *Receiver) Messages() ([]Message, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.messages), r.wrong
}

// ServeHTTP implements [http.Handler].
func (r *Receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return // the request is torn
	}
	answer := r.answer()
	keep := answer.Keep || answer.Status == http.StatusOK
	if keep && !answer.Late {
		r.keep(q.URL.Path, q.Header.Get("Content-Type"), body)
	}
	time.Sleep(answer.Delay)
	if keep && answer.Late {
		r.keep(q.URL.Path, q.Header.Get("Content-Type"), body)
	}
	if answer.Status == 0 {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(answer.Status)
}

func (r *Receiver) answer() Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.decide == nil {
		return Answer{Status: http.StatusOK}
	}
	return r.decide()
}

func (r *Receiver) keep(path, contentType string, body []byte) {
	var wrong error
	events := []json.RawMessage{body}
	if strings.HasPrefix(contentType, "application/cloudevents-batch+json") {
		if err := json.Unmarshal(body, &events); err != nil {
			wrong, events = fmt.Errorf("a request to %s: %w: %.2000s", path, err, body), nil
		}
	}
	var kept []Message
	for _, one := range events {
		m, err := parseAlone(one)
		if err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("an event in a request to %s: %w: %.2000s", path, err, one))
			continue
		}
		m.Route, m.At = path, time.Now()
		kept = append(kept, m)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = errors.Join(r.wrong, wrong)
	for _, m := range kept {
		m.Place = fmt.Sprintf("%s:%d", path, len(r.messages)+1)
		r.messages = append(r.messages, m)
	}
}
