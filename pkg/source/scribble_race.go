//go:build race

package source

// scribble writes over memory that nobody should read any more: who does finds no JSON.
func scribble(b []byte) {
	for i := range b {
		b[i] = '#'
	}
}
