package source

import "k8s.io/apimachinery/pkg/util/resourceversion"

// newer reports whether a comes after b. Within one resource resourceVersions
// may be compared since Kubernetes 1.35; those of some aggregated APIs are not
// numbers, and then only equality is known.
func newer(a, b string) bool {
	n, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		return a != b
	}
	return n > 0
}

// older reports whether a is known to come before b: where resourceVersions are
// not numbers it never is.
func older(a, b string) bool {
	n, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && n < 0
}

// cursor follows a watch. One resourceVersion can carry many events, so one may
// be resumed from only when something strictly later was seen.
type cursor struct {
	resume   string // everything up to it was seen
	last     string // the latest seen
	failures int    // the server's own, in watches from resume
}

func (c *cursor) saw(rv string) {
	if rv == "" || !newer(rv, c.last) {
		return
	}
	if c.resume != c.last {
		c.resume, c.failures = c.last, 0
	}
	c.last = rv
}
