package file

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/kubebridge/kubebridge/pkg/sink"
)

// Config says where events are kept and how many.
type Config struct {
	// Path of the file, in a directory that exists; required. Rotated files are Path.1 (the newest), Path.2 and so
	// on.
	Path string `yaml:"path"`
	// MaxSize is after how many bytes the file is rotated. A batch is never split between two files: one that is
	// larger has a file of its own. Default: 100Mi.
	MaxSize sink.Bytes `yaml:"maxSize"`
	// Keep is how many rotated files are kept; older ones are removed. Default: 10.
	Keep int `yaml:"keep"`
}

const (
	defaultMaxSize = 100 << 20
	defaultKeep    = 10
)

// Complete returns the configuration with every default filled in. The error
// joins everything that is wrong with it; each line starts with the field.
func (c Config) Complete() (Config, error) {
	c.MaxSize = cmp.Or(c.MaxSize, defaultMaxSize)
	c.Keep = cmp.Or(c.Keep, defaultKeep)
	var path, size, keep error
	if c.Path == "" {
		path = errors.New("path: missing: name the file that events are written to, for example /var/lib/kubebridge/events.jsonl")
	}
	if c.MaxSize < 0 {
		size = fmt.Errorf("maxSize: %d: use a number of bytes, or leave it out for %s", c.MaxSize, sink.Bytes(defaultMaxSize))
	}
	if c.Keep < 0 {
		keep = fmt.Errorf("keep: %d: use 1 or more, or leave it out for %d", c.Keep, defaultKeep)
	}
	return c, errors.Join(path, size, keep)
}
