// Package corpus holds watch frames captured from a kube-apiserver 1.36: pods of
// 12 to 19 KB, Events of 1.2 KB, Secrets of 2 to 5.5 KB, custom objects of 6 KB,
// all with managedFields, as the server sends them.
package corpus

import (
	"bytes"
	"embed"
	"fmt"
)

//go:embed *.ndjson
var files embed.FS

// Frames returns the captured watch frames of a resource (its plural name),
// without line ends.
func Frames(resource string) ([][]byte, error) {
	b, err := files.ReadFile(resource + ".ndjson")
	if err != nil {
		return nil, fmt.Errorf("no frames of %q were captured", resource)
	}
	return bytes.Split(bytes.TrimSpace(b), []byte("\n")), nil
}
