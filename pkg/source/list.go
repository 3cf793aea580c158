package source

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

const (
	pageTimeout = 2 * time.Minute // for one page, to its last byte
	firstPage   = 100             // objects; later pages are sized by what these weigh
	maxPage     = 1000            // objects
	targetPage  = 8 << 20         // bytes
	pageTries   = 5               // per page, before the list begins again
)

// list reads the whole collection, consistently, and tells the handler, but not
// before the server has given a page: one that refuses is no list. It returns the
// list's resourceVersion. An error means that nothing is known:
// nothing is ever concluded from a list that did not come to its end.
func (c *Collection) list(ctx context.Context, begun Signal) (string, error) {
	if err := c.lists.Acquire(ctx, 1); err != nil {
		return "", err
	}
	defer c.lists.Release(1)
	var scan scanner
	limit := firstPage
	p, err := c.page(ctx, &scan, "", limit)
	if err != nil {
		return "", err
	}
	rv := p.rv // a watch continues from the first page
	if err := c.handler.Handle(ctx, begun); err != nil {
		return "", handlerError{err}
	}
	for {
		for i := range p.items {
			if err := c.handler.Handle(ctx, Signal{Kind: Listed, Object: &p.items[i]}); err != nil {
				return "", handlerError{err}
			}
		}
		if p.remaining == "" {
			break
		}
		if n := len(p.items); n > 0 {
			limit = min(max(targetPage*n/p.bytes, 1), maxPage)
		}
		if p, err = c.page(ctx, &scan, p.remaining, limit); err != nil {
			return "", err
		}
	}
	if err := c.handler.Handle(ctx, Signal{Kind: ListEnded, RV: rv, Resume: rv}); err != nil {
		return "", handlerError{err}
	}
	return rv, nil
}

// page reads one page, again when the connection or the server fails: the same
// continue token gives the same page. A 410 is for the caller: the token is gone.
func (c *Collection) page(ctx context.Context, scan *scanner, token string, limit int) (page, error) {
	backoff := newBackoff()
	for try := 1; ; try++ {
		p, err := c.fetchPage(ctx, scan, token, limit)
		if err == nil || ctx.Err() != nil || try == pageTries || !retryPage(err) {
			return p, err
		}
		if err := sleep(ctx, backoff.after(err)); err != nil {
			return page{}, err
		}
	}
}

func retryPage(err error) bool {
	switch code := statusCode(err); {
	case code == 0, code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		return true
	default:
		return false
	}
}

func (c *Collection) fetchPage(ctx context.Context, scan *scanner, token string, limit int) (page, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	req := c.request(listForm).Param("limit", strconv.Itoa(limit))
	if token != "" {
		req = req.Param("continue", token)
	}
	body, err := req.Stream(ctx)
	if err != nil {
		return page{}, fmt.Errorf("list: %w", plainCause(err))
	}
	defer body.Close()
	raw, err := io.ReadAll(body)
	if err != nil {
		return page{}, fmt.Errorf("list: read: %w", plainCause(err))
	}
	p, err := scan.parsePage(raw, c.target.Resource)
	if err != nil {
		return page{}, fmt.Errorf("list: parse: %w", err)
	}
	return p, nil
}

// statusCode is the HTTP status that the server answered with, 0 when it was not
// the server that failed.
func statusCode(err error) int {
	if s, ok := asStatus(err); ok {
		return int(s.Status().Code)
	}
	return 0
}

func isExpired(err error) bool {
	return statusCode(err) == http.StatusGone
}
