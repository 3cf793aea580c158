package join

import (
	"github.com/kubebridge/kubebridge/pkg/event"
)

// maxTogether bounds the changes of an object that are looked at together, and maxSteps the work to explain them.
const (
	maxTogether = 6
	maxSteps    = 10_000
)

// explain returns for each change of an object the request that made it in every explanation; nil: there is none. An explanation names one
// of the possible requests for each change, such that no request makes more changes than it can, and that the request of a later change was
// not over when that of an earlier one began.
//
// What has really happened is one of the explanations. So a request that is in all of them has made the change.
func explain(changes []*waiting, possible [][]*request) []*request {
	found := make([]*request, len(changes))
	chosen := make([]*request, len(changes))
	explanations, steps := 0, 0
	var choose func(i int) bool // returns false if there is too much to look at
	choose = func(i int) bool {
		if i == len(changes) {
			for n, q := range chosen {
				if explanations == 0 {
					found[n] = q
				} else if found[n] != q {
					found[n] = nil
				}
			}
			explanations++
			return true
		}
		if chosen[i] = nil; changes[i].Unrequested || len(possible[i]) == 0 {
			if !choose(i + 1) {
				return false
			}
		}
		for _, q := range possible[i] {
			if steps++; steps > maxSteps {
				return false
			}
			if !fits(changes[:i+1], chosen[:i], q) {
				continue
			}
			chosen[i] = q
			if !choose(i + 1) {
				return false
			}
		}
		return true
	}
	if !choose(0) {
		return make([]*request, len(changes))
	}
	return found
}

// fits reports whether a request can have made the last of the changes if the chosen ones have made those before.
func fits(changes []*waiting, chosen []*request, q *request) bool {
	last := changes[len(changes)-1]
	times := q.made + 1
	for i, earlier := range chosen {
		switch {
		case earlier == nil:
		case earlier == q:
			times++
		case event.Newer(last.Version, changes[i].Version) && q.end.before(earlier.begin):
			return false
		}
	}
	return times <= capacity(q.record)
}
