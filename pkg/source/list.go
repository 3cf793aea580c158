package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

const (
	firstPage  = 100     // objects; later pages are sized by the size of these
	targetPage = 7 << 17 // bytes; a list holds two pages, in buffers whose sizes are powers of two
	// largestPage bounds the read part of a page, in bytes, because the objects of a page can
	// be much larger than those of the page before. A larger page is requested again in
	// smaller pages.
	largestPage = 8 * targetPage
	// largestSingle bounds a page of one object, in bytes. No smaller page can be
	// requested, and not every server obeys a limit.
	largestSingle = 256 << 20
	// laterAnswer is what listwatch.FirstAnswer is for later pages, because a failure there makes the list begin again.
	laterAnswer = 30 * time.Second
	// leastProgress is in bytes. It is small enough for large pages on slow links: four lists at once, each with
	// leastProgress bytes per listwatch.FirstAnswer, use 27 kbit/s.
	leastProgress = 4 << 10
	// unreadFor is how long a page that was requested early may wait for memory: the server
	// keeps resources for an answer that the client does not read.
	unreadFor = 2 * time.Second
	// pageHead is the number of bytes at the beginning of a page that include the continue token, if the server
	// writes the metadata first.
	pageHead = 4 << 10
)

var errPageTooLarge = errors.New("the page is too large")

// cutError is an error of an interrupted answer.
type cutError struct{ error }

func (e cutError) Unwrap() error { return e.error }

// slowError is an error of a page that took listwatch.FirstAnswer or longer. It wraps errSlowPage or, for example, the status
// 500 that an API server returns after 30 s when a conversion webhook does not answer.
type slowError struct{ error }

func (e slowError) Unwrap() error { return e.error }

// list reads the whole collection, consistently, and passes it on to the handler. It passes begun on first, as soon as
// the server begins to answer; a refused request is no list. It returns the list's resourceVersion. After an error the
// list has not ended, and the handler must not conclude that missing objects do not exist.
func (c *Collection) list(ctx context.Context, begun Signal) (rv string, err error) {
	attempt, done, err := c.begin(ctx)
	if err != nil {
		return "", err
	}
	defer func() { done(err) }()
	rv, err = c.stream(ctx, attempt, begun)
	if errors.Is(err, errNotStreamed) {
		rv, err = c.paged(ctx, attempt, begun)
	}
	if err != nil {
		return "", err
	}
	// The end of a list means that missing objects do not exist. Check the cluster's identity after the whole list was
	// read, because the address may have moved to another cluster in the meantime.
	if err := c.stillSame(ctx); err != nil {
		return "", err
	}
	if err := c.handler.Handle(ctx, Signal{Kind: ListEnded, RV: rv, Resume: rv}); err != nil {
		return "", handlerError{err}
	}
	return rv, nil
}

// begin takes a slot for a list. done gives the slot back, and records why the list ended.
func (c *Collection) begin(ctx context.Context) (attempt Attempt, done func(error), err error) {
	if c.slow.Load() {
		attempt = Retry
	}
	if err := c.lists.Acquire(ctx, attempt); err != nil {
		return attempt, nil, err
	}
	return attempt, func(err error) {
		c.slow.Store(isSlow(err))
		c.lists.Release(attempt)
	}, nil
}

// isSlow reports whether an error of a list makes the next one a [Retry]:
//
//	the server cannot be reached, or has too many requests    no: all its lists fail for that
//	a page failed after listwatch.FirstAnswer or later                  yes: the list held its slot for that time
//	504                                                       yes: a server behind the API server does not answer
//	other failures                                            no: they cost other lists no time
func isSlow(err error) bool {
	if listwatch.IsUnreachable(err) || listwatch.StatusCode(err) == http.StatusTooManyRequests {
		return false
	}
	var slow slowError
	return errors.As(err, &slow) || listwatch.StatusCode(err) == http.StatusGatewayTimeout
}

func (c *Collection) paged(ctx context.Context, attempt Attempt, begun Signal) (string, error) {
	k := c.copier()
	defer k.close()
	return c.pages(ctx, pageQuery{attempt: attempt, left: c.left()}, func(string) error { return c.handler.Handle(ctx, begun) }, func(o *Object) error {
		k.own(o)
		return c.handler.Handle(ctx, Signal{Kind: Listed, Object: o})
	})
}

// left shows after each page how much of a list is left, while the server
// reports it. The server does not report it for a list of a single page.
func (c *Collection) left() func(page) {
	said := false
	return func(p page) {
		n := p.left
		if n == nil && said && p.remaining == "" {
			n = new(int64)
		}
		if n != nil || said {
			said = n != nil
			c.state(State{Phase: Reconciling, Left: n})
		}
	}
}

// Survey reads the whole collection, consistently, while Run may have a watch
// open. It calls handler only with Listed, once for every object.
// It returns the list's resourceVersion. If it returns an error, including an error of the handler, the
// handler has only a part of the list.
//
// It takes a slot of [Options].Lists, so a handler must not call it from within
// Handle. It may run beside Run.
func (c *Collection) Survey(ctx context.Context, handler Handler) (rv string, err error) {
	attempt, done, err := c.begin(ctx)
	if err != nil {
		return "", fmt.Errorf("survey of %s: %w", c.target.Resource, err)
	}
	defer func() { done(err) }()
	k := c.copier()
	defer k.close()
	rv, err = c.pages(ctx, pageQuery{attempt: attempt}, func(string) error { return nil }, func(o *Object) error {
		k.own(o)
		return handler.Handle(ctx, Signal{Kind: Listed, Object: o})
	})
	if err == nil {
		err = c.stillSame(ctx) // as in list
	}
	var fromHandler handlerError
	switch {
	case errors.As(err, &fromHandler):
		return "", fromHandler.error
	case err != nil:
		return "", fmt.Errorf("survey of %s: %w", c.target.Resource, err)
	}
	return rv, nil
}

// pages reads a list from q on. It calls begin with the list's resourceVersion when the
// first page has arrived, and each with every object, whose Raw is valid until each
// returns. A page's objects are passed on when the page is complete, while the
// next page is read, except in an exact list. Errors of begin and each are returned as handlerError.
//
//	page   requested                          objects                                            passed on
//	1      at the begin                       firstPage                                          while page 2 is read
//	2      when page 1 is complete            as many as have targetPage bytes in page 1         while page 3 is read
//	3      when page 2 begins to arrive       as page 2; it is requested again if the objects    at the end
//	       with its token (q.next)            of page 2 turn out to be more than twice as large
func (c *Collection) pages(ctx context.Context, q pageQuery, begin func(rv string) error, each func(*Object) error) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	q.limit = cmp.Or(q.limit, firstPage)
	var (
		readers [2]pageReader // for the page that is passed on, and for the next page
		rv      string
		coming  = c.ahead(ctx, &readers[0], q, nil)
	)
	defer func() {
		cancel()
		for p := range coming {
			p.next.drop()
		}
	}()
	for n := 1; ; n++ {
		p := <-coming
		if p.err != nil {
			return "", p.err
		}
		if n == 1 {
			rv = p.rv // a watch continues from the first page
			if err := begin(rv); err != nil {
				return "", handlerError{err}
			}
		}
		if p.remaining != "" {
			q.token, q.limit = p.remaining, p.nextLimit(p.limit)
		}
		early := p.remaining != "" && q.exact == "" // an exact list may stop early, so it reads no page in advance
		if early {
			q.next = q.limit
			coming = c.ahead(ctx, &readers[n%2], q, p.next)
		} else {
			p.next.drop()
		}
		if q.left != nil {
			q.left(p.page)
		}
		for _, o := range p.items {
			if err := each(&o); err != nil {
				return "", handlerError{err}
			}
		}
		switch {
		case p.remaining == "":
			return rv, nil
		case !early:
			coming = c.ahead(ctx, &readers[n%2], q, nil)
		}
	}
}

// aheadPage is a page or an error, with the limit of its request. The next page may have been requested.
type aheadPage struct {
	page
	limit int
	next  *asked
	err   error
}

// ahead reads a page, in smaller pages if it is too large, in a goroutine that closes the channel after the page. a may
// be the request for that page, sent before the size of the previous page was known. If its page is much too large, the
// page is requested again.
func (c *Collection) ahead(ctx context.Context, r *pageReader, q pageQuery, a *asked) <-chan aheadPage {
	out := make(chan aheadPage, 1)
	go func() {
		defer close(out)
		if a != nil && a.q.token == q.token && a.q.limit <= 2*q.limit {
			q.limit = a.q.limit
		} else {
			a.drop()
			a = nil
		}
		p := c.page(ctx, r, q, a)
		for errors.Is(p.err, errPageTooLarge) && p.limit > 1 {
			q.limit = max(p.limit/8, 1)
			q.next = min(q.next, q.limit)
			p = c.page(ctx, r, q, nil)
		}
		out <- p
	}()
	return out
}

// nextLimit returns the limit for the page after p, so that this page has about targetPage bytes.
func (p *page) nextLimit(limit int) int {
	n := len(p.items)
	if n == 0 {
		return limit
	}
	return min(max(targetPage*n/p.bytes, 1), listwatch.MaxPage)
}

// page reads one page. It retries when the connection or the server fails, because the same
// continue token gives the same page. It returns a 410 to the caller: the token has expired.
// A page whose size may be the reason is tried again with fewer objects; such an attempt does not count.
// It does not retry a first page, because the list can begin again at no cost. It retries a page of an exact list, which servers often cannot
// serve, and a page that the server did not answer in time, only with fewer objects, and the latter SlowTries times.
func (c *Collection) page(ctx context.Context, r *pageReader, q pageQuery, a *asked) aheadPage {
	if a == nil {
		q = c.bounded(q)
	} else {
		q.limit, q.bounded = a.q.limit, a.q.bounded
	}
	backoff, slow := listwatch.NewBackoff(), 0
	for try := 1; ; {
		p, next, err := c.fetchPage(ctx, r, q, a)
		got := aheadPage{p, q.limit, next, err}
		if err == nil {
			if q.one == (Name{}) {
				c.client.bounds.Arrived(c.bounds, len(p.items), q.limit, q.bounded || q.token == "", p.took)
			}
			return got
		}
		if errors.Is(err, errSlowPage) {
			slow++
		}
		smaller := c.smaller(ctx, &q, err, p.took)
		switch {
		case ctx.Err() != nil, q.exact == "" && q.token == "", slow > listwatch.SlowTries:
			return got
		case smaller:
		case q.exact != "", try == listwatch.PageTries, !retryPage(err):
			return got
		default:
			try++
		}
		a = nil
		if err := listwatch.Sleep(ctx, backoff.After(err)); err != nil {
			return aheadPage{err: err}
		}
	}
}

// bounded returns q with its limit bounded by the bounds of the client.
func (c *Collection) bounded(q pageQuery) pageQuery {
	n := c.client.bounds.Limit(c.bounds, q.limit)
	q.limit, q.bounded = n, n < q.limit
	return q
}

// smaller makes the limit of a page smaller that failed with err, if its size may be the reason. It also counts a page for which a Recall had no
// time left, for the next Recall.
func (c *Collection) smaller(ctx context.Context, q *pageQuery, err error, took time.Duration) bool {
	switch {
	case q.one != (Name{}), errors.Is(ctx.Err(), context.Canceled), errors.Is(err, errPageTooLarge),
		!listwatch.SizeExplains(err, took):
		return false
	case q.exact != "" && isForgotten(err) && took < listwatch.FirstAnswer: // for an exact list, 504 also means a future resourceVersion
		return false
	}
	n := c.client.bounds.Failed(c.bounds, q.limit, took)
	if n == q.limit {
		return false
	}
	q.limit, q.bounded = n, true
	return true
}

func retryPage(err error) bool {
	return !errors.Is(err, errPageTooLarge) && !errors.Is(err, errSlowPage) && listwatch.RetryPage(err)
}

// pageQuery selects a page of a list.
type pageQuery struct {
	token   string // continue token of the previous page; "": the first page
	limit   int    // objects; 0: chosen by pages
	next    int    // limit of the next page; 0: the next page is not requested before this page is read
	bounded bool   // limit is a bound of listwatch.Bounds

	exact string     // resourceVersion of an exact list; "": the latest
	one   Name       // with exact: the only requested object, if not zero
	left  func(page) // called with each page before its objects are passed on; may be nil

	attempt Attempt
}

// answer returns how long to wait for the server to begin its answer, and for each further leastProgress bytes of it.
func (q *pageQuery) answer() time.Duration {
	switch {
	case q.attempt == Retry || q.exact != "":
		return listwatch.PageTimeout
	case q.token == "":
		return listwatch.FirstAnswer
	default:
		return laterAnswer
	}
}
