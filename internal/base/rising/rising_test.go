package rising_test

import (
	"testing"

	"github.com/kubebridge/kubebridge/internal/base/rising"
)

func TestLongest(t *testing.T) {
	for _, c := range []struct {
		of   []int
		want int
	}{{nil, 0}, {[]int{7}, 1}, {[]int{1, 2, 3}, 3}, {[]int{3, 2, 1}, 1}, {[]int{5, 1, 6, 2, 3, 9, 4}, 4}} {
		n, last := 0, -1
		for i, marked := range rising.Longest(c.of) {
			if !marked {
				continue
			}
			if c.of[i] <= last {
				t.Errorf("%v: what is marked does not rise at %d", c.of, i)
			}
			n, last = n+1, c.of[i]
		}
		if n != c.want {
			t.Errorf("%v: %d are marked, want %d", c.of, n, c.want)
		}
	}
}
