package attribute

import (
	"github.com/kubebridge/kubebridge/internal/audit/join"
)

// Needed returns for each input the number from which on its records are needed again after a restart.
func (a *Attribution) Needed() join.Marks {
	needed := make(join.Marks, len(a.read))
	for input, number := range a.read {
		needed[input] = number + 1
	}
	for _, j := range a.joins {
		j.Lower(needed)
	}
	for _, v := range a.decided {
		v.Lower(needed)
	}
	return needed
}
