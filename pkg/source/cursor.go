package source

import "github.com/kubebridge/kubebridge/pkg/event"

// cursor follows a watch. One resourceVersion can carry many events, so one may
// be resumed from only when something strictly later was seen.
type cursor struct {
	resume   string // everything up to it was seen
	last     string // the latest seen
	failures int    // the server's own, in watches from resume
}

func (c *cursor) saw(rv string) {
	if rv == "" || !event.Newer(rv, c.last) {
		return
	}
	if c.resume != c.last {
		c.resume, c.failures = c.last, 0
	}
	c.last = rv
}
