package feed

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// watch is one open watch.
type watch struct {
	server   *Server
	resource *Resource
	form     form
	out      http.ResponseWriter
	buffer   []byte
	at       uint64 // index of the next event
	drop     chan struct{}
	ended    <-chan time.Time // fires after the timeout that the client has requested
	ticks    *time.Ticker     // interval of bookmarks; never nil
	marks    bool             // the client has requested bookmarks
}

func (s *Server) watch(w http.ResponseWriter, q *http.Request, r *Resource) {
	v := q.URL.Query()
	s.mu.Lock()
	o := watch{server: s, resource: r, out: w, drop: s.drop, at: s.head(r), marks: v.Get("allowWatchBookmarks") == "true"}
	s.mu.Unlock()
	if strings.Contains(q.Header.Get("Accept"), "as=PartialObjectMetadata") {
		o.form = partial
	}
	w.Header().Set("Content-Type", "application/json")
	streamed := v.Get("sendInitialEvents") == "true"
	initial := streamed
	switch rv := v.Get("resourceVersion"); {
	case streamed:
	case rv == "" || rv == "0":
		initial = true
	default:
		n, err := strconv.ParseUint(rv, 10, 64)
		if err != nil {
			fail(w, http.StatusBadRequest, "BadRequest", "resourceVersion is no number")
			return
		}
		if n < s.oldest.Load() || n < baseRV {
			b, _ := json.Marshal(object{"type": "ERROR", "object": status(http.StatusGone, "Expired", fmt.Sprintf("too old resource version: %d", n))})
			_, _ = w.Write(append(b, '\n'))
			return
		}
		o.at = n - baseRV
	}
	if seconds, err := strconv.Atoi(v.Get("timeoutSeconds")); err == nil && seconds > 0 {
		t := time.NewTimer(time.Duration(seconds) * time.Second)
		defer t.Stop()
		o.ended = t.C
	}
	o.ticks = time.NewTicker(s.bookmarks)
	defer o.ticks.Stop()
	if o.form != partial {
		s.watches.Add(1)
		defer s.watches.Add(-1)
		s.opened.Store(time.Now().UnixNano())
	}
	if o.flush() && (!initial || o.initial(streamed)) {
		o.follow(q)
	}
}

// write writes the buffer to the response; flush also flushes the response. Both
// report whether the client is still connected.
func (o *watch) write() bool {
	_, err := o.out.Write(o.buffer)
	o.buffer = o.buffer[:0]
	return err == nil
}

func (o *watch) flush() bool { return o.write() && http.NewResponseController(o.out).Flush() == nil }

func (o *watch) initial(streamed bool) bool {
	total := o.resource.count(o.at)
	for i := range total {
		v, ok := o.resource.at(placed(i, total), o.at)
		if !ok {
			continue
		}
		o.buffer = append(o.buffer, `{"type":"ADDED","object":`...)
		o.buffer = append(o.resource.append(o.buffer, v, o.form), "}\n"...)
		if len(o.buffer) >= writeBytes && !o.write() {
			return false
		}
	}
	if streamed {
		o.buffer = o.resource.appendBookmark(o.buffer, baseRV+o.at, o.form, true)
	}
	return o.flush()
}

// follow sends the events as they happen.
func (o *watch) follow(q *http.Request) {
	ready := make(chan time.Time)
	close(ready)
	s, r := o.server, o.resource
	for {
		head := s.head(r)
		for o.at < head && len(o.buffer) < writeBytes {
			if o.at >= r.Silent {
				o.buffer = r.appendFrame(o.buffer, o.at, o.form)
			}
			o.at++
		}
		send := o.write
		if o.at == head { // like kube-apiserver, flush only if no further event is ready
			send = o.flush
		}
		if !send() {
			return
		}
		started, next := s.started, (<-chan time.Time)(nil)
		select {
		case <-started:
			if started = nil; o.at < head {
				next = ready
			} else if head < r.Events {
				due := s.begun.Add(time.Duration(float64(head+1) / s.rate * float64(time.Second)))
				next = time.After(time.Until(due))
			}
		default:
		}
		select {
		case <-o.drop:
			panic(http.ErrAbortHandler)
		case <-q.Context().Done():
			return
		case <-o.ended:
			return
		case <-o.ticks.C:
			if o.marks {
				o.buffer = r.appendBookmark(o.buffer, baseRV+o.at, o.form, false)
			}
		case <-started:
		case <-next:
		}
	}
}
