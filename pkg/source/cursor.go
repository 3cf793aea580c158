package source

import "github.com/kubebridge/kubebridge/pkg/event"

// cursor follows a watch. One resourceVersion can have many events, so a watch may
// resume from a resourceVersion only after a later one was seen.
type cursor struct {
	resume   string // every event up to this version was seen
	last     string // the latest seen version
	failures int    // errors of the server in watches from resume
}

func (c *cursor) saw(rv string) {
	if !resumable(rv) || !event.Newer(rv, c.last) {
		return
	}
	if c.resume != c.last {
		c.resume, c.failures = c.last, 0
	}
	c.last = rv
}
