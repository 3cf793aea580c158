// Package rising finds what keeps its order where a list is put into another one.
package rising

import "slices"

// Longest marks a longest rising subsequence of different numbers, in n log n steps.
func Longest(of []int) []bool {
	var ends []int // ends[n] is the index of the least number that ends a subsequence of n+1
	previous := make([]int, len(of))
	for i, x := range of {
		n, _ := slices.BinarySearchFunc(ends, x, func(end, x int) int { return of[end] - x })
		previous[i] = -1
		if n > 0 {
			previous[i] = ends[n-1]
		}
		if n == len(ends) {
			ends = append(ends, i)
		} else {
			ends[n] = i
		}
	}
	marks := make([]bool, len(of))
	if len(ends) == 0 {
		return marks
	}
	for i := ends[len(ends)-1]; i >= 0; i = previous[i] {
		marks[i] = true
	}
	return marks
}
