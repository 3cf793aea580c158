// Package parallel sets how many tests of a package run at a time.
package parallel

import (
	"flag"
	"strconv"
)

// Tests parses the flags, and lets n tests run at a time unless -parallel is given. These tests mostly wait, for timeouts and for servers, so
// that more of them than cores can run. It panics outside of a test binary.
func Tests(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err)
	}
}
