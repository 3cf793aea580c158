//go:build !unix

package nats

import "os"

// lockFile does not lock on this system: only the listening port prevents two servers from running.
func lockFile(*os.File) error { return nil }
