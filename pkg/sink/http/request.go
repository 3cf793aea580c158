package http

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/internal/base/textfile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

const (
	maxAnswer   = 4 << 10     // bytes of an answer that are read
	answerTime  = time.Second // for the body of an answer, which decides nothing
	maxShown    = 200         // bytes of an answer that an error shows
	contentType = "application/cloudevents-batch+json; charset=UTF-8"
)

// run sends the records of a partition in order.
func (s *Sink) run(ctx context.Context, records []event.Record, p *partition) error {
	for p.sent < len(p.records) {
		n := s.chunk(records, p.records[p.sent:])
		if err := s.deliver(ctx, records, p, n); err != nil {
			return err
		}
	}
	return nil
}

// chunk returns how many of the next records one request has.
func (s *Sink) chunk(records []event.Record, next []int) int {
	first, size := &records[next[0]], 0
	if first.Format != event.Structured {
		return 1
	}
	for n, i := range next {
		size += len(records[i].Value) + 1
		if n > 0 && (n == s.c.MaxEvents || size > int(s.c.MaxBytes) || records[i].Route != first.Route) {
			return n
		}
	}
	return len(next)
}

// deliver sends the next n records of a partition in one request. If the server refuses what is in it, it sends each half.
func (s *Sink) deliver(ctx context.Context, records []event.Record, p *partition, n int) error {
	if p.failed.Load() {
		return errStopped
	}
	status, err := s.post(ctx, records, p.records[p.sent:p.sent+n])
	if err == nil {
		p.sent += n
		return nil
	}
	at := p.records[p.sent]
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		if n == 1 {
			refused := &sink.RecordError{Index: at, Err: err}
			if size := len(records[at].Value); status == http.StatusRequestEntityTooLarge {
				refused.Size, refused.Limit = size, max(size/2, 1) // the server does not say its limit
			}
			return refused
		}
		if err := s.deliver(ctx, records, p, n/2); err != nil {
			return err
		}
		return s.deliver(ctx, records, p, n-n/2)
	case 0, http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return err
	}
	if status >= 500 {
		return err
	}
	missing := status == http.StatusNotFound || status == http.StatusGone
	return &sink.RouteError{Index: at, Route: records[at].Route, Err: err, Missing: missing}
}

// post sends one request. The error is nil if the server has acknowledged it; status is 0 without an answer.
func (s *Sink) post(ctx context.Context, all []event.Record, which []int) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.c.Timeout)
	defer cancel()
	r, err := s.request(ctx, all, which)
	if err != nil {
		return 0, err
	}
	address, _, _ := strings.Cut(all[which[0]].Route, "?")
	answer, err := s.client.Do(r)
	if err != nil {
		return 0, fmt.Errorf("send to %s: %w", address, s.c.TLS.explain(withoutURL(err)))
	}
	defer answer.Body.Close()
	defer time.AfterFunc(answerTime, cancel).Stop()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswer)) // the status decides
	switch answer.StatusCode / 100 {
	case 2:
		return answer.StatusCode, nil
	case 3:
		return answer.StatusCode, fmt.Errorf("send to %s: %s: redirects are not followed: set url to the final address", address, answer.Status)
	}
	s.obey(answer.Header.Get("Retry-After"), time.Now())
	return answer.StatusCode, fmt.Errorf("send to %s: %s%s", address, answer.Status, shown(text))
}

// request makes a request, with memory of its own: a transport may read a body after the answer.
func (s *Sink) request(ctx context.Context, all []event.Record, which []int) (*http.Request, error) {
	first, body, content := &all[which[0]], []byte(nil), ""
	switch {
	case first.Format != event.Structured || s.c.MaxEvents == 1:
		body, content = bytes.Clone(first.Value), first.Format.ContentType()
	default:
		content = contentType
		for _, i := range which {
			body = append(append(body, ','), all[i].Value...)
		}
		body[0] = '['
		body = append(body, ']')
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, first.Route, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("send: %w", withoutURL(err))
	}
	r.Header.Set("Content-Type", content)
	if first.Format != event.Structured {
		for _, a := range first.Attributes {
			if a.Name != "datacontenttype" {
				r.Header.Set("ce-"+a.Name, event.EscapeHeader(a.Value))
			}
		}
	}
	if s.c.TokenFile != "" {
		token, err := textfile.Read(s.c.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("tokenFile: %w", err)
		}
		if token = strings.TrimSpace(token); token == "" || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return nil, fmt.Errorf("tokenFile: %s has no token: it must have one line of printable ASCII", s.c.TokenFile)
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r, nil
}

// obey keeps to a Retry-After, in seconds or as a date, up to maxPause.
func (s *Sink) obey(value string, now time.Time) {
	until, err := http.ParseTime(value)
	if seconds, e := strconv.ParseFloat(value, 64); e == nil {
		until, err = now.Add(time.Duration(min(max(seconds, 0), s.maxPause.Seconds())*float64(time.Second))), nil
	}
	if err != nil {
		return
	}
	if latest := now.Add(s.maxPause); until.After(latest) {
		until = latest
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if until.After(s.pause) {
		s.pause = until
	}
}

// withoutURL returns the cause of an error without the address, whose query may hold a secret.
func withoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// shown returns the begin of an answer for an error, in one line.
func shown(text []byte) string {
	text = bytes.TrimSpace(text[:min(len(text), maxShown)])
	if len(text) == 0 {
		return ""
	}
	return fmt.Sprintf(": it answers %q", text)
}
