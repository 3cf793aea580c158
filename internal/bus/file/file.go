// Package file is the bus file: lines in a file.
package file

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/file"
)

// Config is the block of the configuration.
type Config file.Config

// Complete implements [bus.Config].
func (c *Config) Complete(*bus.Setup) error {
	done, err := file.Config(*c).Complete()
	*c = Config(done)
	return err
}

// Traits implements [bus.Config].
func (c *Config) Traits() bus.Traits {
	return bus.Traits{Lines: true, Files: map[string]string{"path": c.Path}}
}

// Check implements [bus.Config].
func (c *Config) Check(k *bus.Checker) {
	if c.Path == "" {
		return
	}
	what := fmt.Sprintf("write to %q, or to files rotated from it: give each a file of its own", c.Path)
	bus.Apart(k, k.At+".path", what, func(other *Config) bool { return sameFiles(c.Path, other.Path) })
}

// Bus implements [bus.Config].
func (c *Config) Bus(*bus.Setup) *bus.Bus {
	return &bus.Bus{
		Kind: "file", Address: c.Path,
		Open: func(event.Identity, *zap.Logger) (sink.Sink, error) {
			return file.New(file.Options{Config: file.Config(*c)})
		},
	}
}

var rotated = regexp.MustCompile(`^\.[0-9]+$`)

func sameFiles(a, b string) bool {
	a, b = filepath.Clean(a), filepath.Clean(b)
	if len(a) > len(b) {
		a, b = b, a
	}
	rest, ok := strings.CutPrefix(b, a)
	return ok && (rest == "" || rotated.MatchString(rest))
}
