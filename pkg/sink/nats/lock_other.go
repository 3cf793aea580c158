//go:build !unix

package nats

import "os"

// lockFile does nothing: only the listening port keeps two servers apart here.
func lockFile(*os.File) error { return nil }
