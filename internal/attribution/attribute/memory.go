package attribute

import "time"

// Options.MaxBytes is divided so that the sum is not more than all of it:
//
//	requests that wait in joins                          9/16, shared by the joins
//	exact verdicts that another change may have, too     1/16 of that: see [join.Join.Limit]
//	records of verdicts that are not committed           1/5
//	changes that wait in joins                           1/5, shared by the joins
const (
	requestsPart, requestsOf = 9, 16
	decidedPart              = 5
	changesPart              = 5
	// changeBytes is about the memory of a change that waits, in the Attribution and in the join.
	changeBytes = 1 << 10
)

// maxDecided is the bound of decidedBytes.
func (a *Attribution) maxDecided() int {
	if a.options.MaxBytes == 0 {
		return maxDecidedBytes
	}
	return min(maxDecidedBytes, a.options.MaxBytes/decidedPart)
}

// share divides the memory among the joins.
func (a *Attribution) share(now time.Time) {
	if a.options.MaxBytes == 0 || len(a.joins) == 0 {
		return
	}
	each := a.options.MaxBytes / len(a.joins)
	for _, j := range a.joins {
		j.Limit(max(1, each/changesPart/changeBytes), max(1, each/requestsOf*requestsPart), now)
	}
}
