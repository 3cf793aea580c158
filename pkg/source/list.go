package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	pageTimeout = 2 * time.Minute // for one page, to its last byte
	firstPage   = 100             // objects; later pages are sized by what these weigh
	maxPage     = 1000            // objects
	targetPage  = 7 << 17         // bytes: two are held, in buffers of powers of two
	// largestPage bounds what is read of a page, in bytes: the objects of one can
	// be of another size than those of the page before. It is then asked for in
	// smaller pieces.
	largestPage = 8 * targetPage
	// largestSingle bounds a page of one object, in bytes: nothing smaller can be
	// asked for, and not every server heeds a limit.
	largestSingle = 256 << 20
	pageTries     = 5 // per page but the first, before the list begins again
	// How long a first attempt waits for the server to begin its answer, and then for each further leastProgress
	// bytes of the answer. Later pages have more time, because a failure there makes the list begin again. When the time
	// is over, the list ends and gives its slot back. A retry waits for pageTimeout.
	firstAnswer = 5 * time.Second
	laterAnswer = 30 * time.Second
	// leastProgress is in bytes. It is small enough for large pages on slow links: four lists at once, each with
	// leastProgress bytes per firstAnswer, use 27 kbit/s.
	leastProgress = 4 << 10
	// unreadFor is how long a page that was asked for before there was room for it may
	// wait for that: the server keeps resources for an answer that nobody reads.
	unreadFor = 2 * time.Second
	// pageHead is how much of a page says, where a server writes that first, whether
	// there is another one, in bytes.
	pageHead = 4 << 10
)

var errPageTooLarge = errors.New("the page is too large")

// cutError is an answer that broke off.
type cutError struct{ error }

func (e cutError) Unwrap() error { return e.error }

// slowError is an error of a page that took firstAnswer or longer. It wraps errSlowPage or, for example, the status
// 500 that an API server returns after 30 s when a conversion webhook does not answer.
type slowError struct{ error }

func (e slowError) Unwrap() error { return e.error }

// list reads the whole collection, consistently, and passes it on to the handler. It
// passes begun on first, as soon as the server begins to answer: a refused request is
// no list. It returns the list's resourceVersion. After an error nothing is known:
// nothing is ever concluded from a list that did not come to its end.
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
	// The end says what is not there, so it is asked whose word that is, once all was
	// read: the address may have moved in the meantime.
	if err := c.sameCluster(ctx, time.Now()); err != nil {
		return "", err
	}
	if err := c.handler.Handle(ctx, Signal{Kind: ListEnded, RV: rv, Resume: rv}); err != nil {
		return "", handlerError{err}
	}
	return rv, nil
}

// begin takes a slot for a list. done gives it back, and notes why the list ended.
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
//	a page failed after firstAnswer or later                  yes: the list held its slot for that time
//	504                                                       yes: a server behind the API server does not answer
//	other failures                                            no: they cost other lists no time
func isSlow(err error) bool {
	if isUnreachable(err) || statusCode(err) == http.StatusTooManyRequests {
		return false
	}
	var slow slowError
	return errors.As(err, &slow) || statusCode(err) == http.StatusGatewayTimeout
}

func (c *Collection) paged(ctx context.Context, attempt Attempt, begun Signal) (string, error) {
	k := c.copier()
	defer k.close()
	return c.pages(ctx, pageQuery{attempt: attempt, left: c.left()}, func(string) error { return c.handler.Handle(ctx, begun) }, func(o *Object) error {
		k.own(o)
		return c.handler.Handle(ctx, Signal{Kind: Listed, Object: o})
	})
}

// left shows, page by page, how much of a list is left, for as long as the server
// says so: it does not of a list that is a single page.
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

// Survey reads the whole collection, consistently, beside a watch that Run may
// have open, and calls handler with Listed for every object and with nothing else.
// It returns the list's resourceVersion. An error, also the handler's own, means
// that nothing is known, whatever the handler has received.
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
	var fromHandler handlerError
	switch {
	case errors.As(err, &fromHandler):
		return "", fromHandler.error
	case err != nil:
		return "", fmt.Errorf("survey of %s: %w", c.target.Resource, err)
	}
	return rv, nil
}

// pages reads a list from q on. begin is called with its resourceVersion when the
// first page is there, each with every object, whose Raw is valid until it
// returns; a page's objects are handed on when it is known to be whole, while the
// next one is read, unless it is of the past. Errors of the two come back as handlerError.
func (c *Collection) pages(ctx context.Context, q pageQuery, begin func(rv string) error, each func(*Object) error) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	q.limit = cmp.Or(q.limit, firstPage)
	var (
		readers [2]pageReader // of the page that is handed on, and of the next
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
		early := p.remaining != "" && q.exact == "" // of the past no more than is wanted
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

// aheadPage is a page, or why there is none, and the limit that it was asked for
// with. The page after it may have been asked for.
type aheadPage struct {
	page
	limit int
	next  *asked
	err   error
}

// ahead reads a page, in smaller pieces if it is too large, in a goroutine that
// ends when the channel is closed, which is behind the page. a may be that page, asked
// for when the size of the one before it was not known: if it is much too large, it
// is asked for again.
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
		p, next, err := c.page(ctx, r, q, a)
		for errors.Is(err, errPageTooLarge) && q.limit > 1 {
			q.limit = max(q.limit/8, 1)
			q.next = min(q.next, q.limit)
			p, next, err = c.page(ctx, r, q, nil)
		}
		out <- aheadPage{p, q.limit, next, err}
	}()
	return out
}

// nextLimit is how many objects to ask for after p, so that they weigh what a
// page should.
func (p *page) nextLimit(limit int) int {
	n := len(p.items)
	if n == 0 {
		return limit
	}
	return min(max(targetPage*n/p.bytes, 1), maxPage)
}

// page reads one page, again when the connection or the server fails: the same
// continue token gives the same page. A 410 is for the caller: the token is gone.
// An exact list is not worth it: the past is what servers cannot give. Nor is a first page: without it
// nothing is lost if the list begins again. Nor is a page that the server did not answer in time.
func (c *Collection) page(ctx context.Context, r *pageReader, q pageQuery, a *asked) (page, *asked, error) {
	backoff := newBackoff()
	for try := 1; ; try++ {
		p, next, err := c.fetchPage(ctx, r, q, a)
		if err == nil || ctx.Err() != nil || try == pageTries || !retryPage(err) || q.exact != "" || q.token == "" {
			return p, next, err
		}
		a = nil
		if err := sleep(ctx, backoff.after(err)); err != nil {
			return page{}, nil, err
		}
	}
}

func retryPage(err error) bool {
	switch code := statusCode(err); {
	case errors.Is(err, errPageTooLarge), errors.Is(err, errSlowPage), isExpired(err):
		return false
	case code == 0, code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		return true
	default:
		return false
	}
}

// pageQuery is which page of which list is asked for.
type pageQuery struct {
	token string     // the page before's; "" is the first
	limit int        // objects; 0 is for pages to choose
	next  int        // the limit of the page after it; 0: that is not asked for before this one is read
	exact string     // the resourceVersion that the list shows; "" is the latest
	one   Name       // of exact: the only object asked for, if not zero
	left  func(page) // is shown each page before its objects are handed on; may be nil

	attempt Attempt
}

// answer is how long to wait for the server to begin its answer, and for each further leastProgress bytes of it.
func (q *pageQuery) answer() time.Duration {
	switch {
	case q.attempt == Retry || q.exact != "":
		return pageTimeout
	case q.token == "":
		return firstAnswer
	default:
		return laterAnswer
	}
}

// statusCode is the HTTP status that the server answered with, 0 when it was not
// the server that failed.
func statusCode(err error) int {
	if s, ok := asStatus(err); ok {
		return int(s.Status().Code)
	}
	return 0
}

// isExpired reports whether the server has no longer what was asked for. A status
// may say so by its reason alone.
func isExpired(err error) bool {
	return statusCode(err) == http.StatusGone || apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}
