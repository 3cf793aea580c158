package main

import (
	"fmt"
	"io"

	"github.com/kubebridge/kubebridge/pkg/sink/stdout"
)

// show prints one line, in which nothing that others wrote steers a terminal or begins
// another line.
func show(w io.Writer, format string, args ...any) {
	fmt.Fprintln(w, stdout.Legible(fmt.Sprintf(format, args...)))
}

// document is w for a text that is more than lines, in JSON or YAML: byte for byte
// into a file or a pipe, legible on a terminal.
func document(w io.Writer) io.Writer {
	if isTerminal(w) {
		return stdout.NewLegible(w)
	}
	return w
}
