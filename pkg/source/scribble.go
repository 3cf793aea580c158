//go:build !race

package source

// scribble is for tests with the race detector.
func scribble([]byte) {}
