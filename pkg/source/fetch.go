package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

// pageReader is the memory for a page. The zero value is ready.
type pageReader struct {
	body bytes.Buffer
	scan scanner
}

// fetchPage reads one page, whose objects are valid until the next page is read. It requests
// the next page as soon as it has the continue token.
func (c *Collection) fetchPage(ctx context.Context, r *pageReader, q pageQuery, a *asked) (p page, next *asked, err error) {
	if !a.begin() {
		a = c.ask(ctx, q, listwatch.PageTimeout)
	}
	defer a.drop()
	began := time.Now()
	defer func() {
		if err == nil {
			return
		}
		next.drop()
		p, next = page{took: time.Since(a.at)}, nil
		if time.Since(began) >= listwatch.FirstAnswer {
			err = slowError{err}
		}
	}()
	if a.wait(q.answer()); a.err != nil {
		return p, nil, fmt.Errorf("list: %w", listwatch.PlainCause(a.cause(a.err)))
	}
	bound := int64(largestPage)
	if q.limit == 1 {
		bound = largestSingle
	}
	if r.body.Cap() > largestPage {
		r.body = bytes.Buffer{}
	}
	r.body.Reset()
	body := a.progressing(q.answer())
	defer body.timer.Stop()
	n, err := r.body.ReadFrom(io.LimitReader(body, pageHead))
	if err == nil && q.next > 0 {
		after := q
		after.limit = q.next
		after = c.bounded(after)
		if after.token = r.scan.parseHead(r.body.Bytes()); after.token != "" {
			next = c.ask(ctx, after, unreadFor)
		}
	}
	if err == nil {
		var rest int64
		rest, err = r.body.ReadFrom(io.LimitReader(body, bound+1-n))
		n += rest
	}
	if err != nil {
		return p, next, cutError{fmt.Errorf("list: read: %w", listwatch.PlainCause(a.cause(err)))}
	}
	if n > bound {
		r.body = bytes.Buffer{}
		return p, next, fmt.Errorf("list: %w: more than %d bytes for a limit of %d", errPageTooLarge, bound, q.limit)
	}
	if p, err = r.scan.parsePage(r.body.Bytes()); err != nil {
		return p, next, fmt.Errorf("list: parse: %w", err)
	}
	p.took = time.Since(a.at)
	return p, next, nil
}

// asked is a page that was requested. nil: none.
type asked struct {
	q     pageQuery
	at    time.Time // of the request
	ctx   context.Context
	end   context.CancelCauseFunc
	timer *time.Timer
	there chan struct{} // closed when the server has begun to answer, or failed
	body  io.ReadCloser
	err   error
}

var errSlowPage = errors.New("the server does not answer in time")

// slowPage returns errSlowPage with what the server did not send, and the time limit.
func slowPage(what string, within time.Duration) error {
	return fmt.Errorf("%w: no %s within %s", errSlowPage, what, within)
}

// ask requests a page. The request ends with errSlowPage if the page has not been read after the time limit within.
func (c *Collection) ask(ctx context.Context, q pageQuery, within time.Duration) *asked {
	a := &asked{q: q, at: time.Now(), there: make(chan struct{})}
	a.ctx, a.end = context.WithCancelCause(ctx)
	a.timer = time.AfterFunc(within, func() { a.end(slowPage("whole page", listwatch.PageTimeout)) })
	go func() {
		defer close(a.there)
		a.body, a.err = c.pageRequest(q).Stream(widely(a.ctx))
	}()
	return a
}

// begin restarts the time limit of a page that was requested early. It returns false, and drops the page, if the
// request was given up before.
func (a *asked) begin() bool {
	if a == nil {
		return false
	}
	if a.timer.Reset(listwatch.PageTimeout) {
		return true
	}
	a.drop()
	return false
}

// wait returns when the server has begun to answer, or when the time limit within has passed.
func (a *asked) wait(within time.Duration) {
	timer := time.AfterFunc(within, func() { a.end(slowPage("answer", within)) })
	defer timer.Stop()
	<-a.there
}

// progressing returns a reader of the page's body. Reading fails with errSlowPage when the server takes longer than
// within for leastProgress bytes. The caller stops the timer when it has read the page.
func (a *asked) progressing(within time.Duration) *progressReader {
	timer := time.AfterFunc(within, func() { a.end(slowPage(fmt.Sprintf("%d bytes more", leastProgress), within)) })
	return &progressReader{body: a.body, timer: timer, within: within}
}

// progressReader is the reader of asked.progressing.
type progressReader struct {
	body   io.Reader
	timer  *time.Timer
	within time.Duration
	n      int // bytes since the timer was set
}

// Read implements [io.Reader].
func (r *progressReader) Read(b []byte) (int, error) {
	n, err := r.body.Read(b)
	r.n += n
	if r.n >= leastProgress {
		r.n = 0
		r.timer.Reset(r.within)
	}
	return n, err
}

// cause returns the reason why the request was given up, or else err.
func (a *asked) cause(err error) error {
	if cause := context.Cause(a.ctx); errors.Is(cause, errSlowPage) {
		return cause
	}
	return err
}

func (a *asked) drop() {
	if a == nil {
		return
	}
	a.timer.Stop()
	a.end(context.Canceled)
	if <-a.there; a.body != nil {
		a.body.Close()
	}
}
