// Package paralleltest lets tests that mostly wait run beside each other.
package paralleltest

import (
	"flag"
	"strconv"
)

// Raise sets how many parallel tests of a package run at a time, unless the flag -parallel does. Go's default, one for each core, suits tests
// that compute. TestMain calls it.
func Raise(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err) // not called from a test program
	}
}
