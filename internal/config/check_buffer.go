package config

import "path/filepath"

// leastBuffer is the smallest buffer in bytes: it has room for the largest objects of several collections, at the 1.5 MiB that etcd
// accepts.
const leastBuffer = 8 << 20

// buffer checks the disk buffer.
func (p *problems) buffer(c *Config) {
	b := &c.Buffer
	if n, err := b.Bytes(); err != nil {
		p.add("buffer.maxBytes", "%q is not a number of bytes: use for example 10Gi", b.MaxBytes)
	} else if n < leastBuffer {
		p.add("buffer.maxBytes", "%s is too little: use at least 8Mi", b.MaxBytes)
	}
	if b.MaxAge <= 0 {
		p.add("buffer.maxAge", "%s is not an age: use for example 24h", b.MaxAge)
	}
	if b.Path != "" && c.Checkpoint.File.Path != "" && filepath.Clean(b.Path) == filepath.Clean(c.Checkpoint.File.Path) {
		p.add("buffer.path", "%s has the checkpoint: use another directory", b.Path)
	}
}
