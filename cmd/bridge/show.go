package main

import (
	"fmt"
	"io"

	"github.com/kubebridge/kubebridge/pkg/sink/stdout"
)

// show prints one line. It escapes control characters, so that text from the cluster or the bus cannot
// control the terminal or start another line.
func show(w io.Writer, format string, args ...any) {
	fmt.Fprintln(w, stdout.Legible(fmt.Sprintf(format, args...)))
}

// document returns a writer for JSON or YAML documents. It writes byte for byte
// to a file or a pipe, and escapes control characters on a terminal.
func document(w io.Writer) io.Writer {
	if isTerminal(w) {
		return stdout.NewLegible(w)
	}
	return w
}
