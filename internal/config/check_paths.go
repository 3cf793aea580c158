package config

import (
	"fmt"
	"maps"
	"os"
	"slices"
)

// kindsOfPaths rejects a directory where the bridge needs a file, and a file where it needs a directory. A path that does
// not exist is no mistake: a configuration may be validated on another machine.
func (p *problems) kindsOfPaths(c *Config) {
	files := map[string]string{"secrets.hashKeyFile": c.Secrets.HashKeyFile, "audit.file": c.Audit.File}
	dirs := map[string]string{
		"checkpoint.file.path": c.Checkpoint.File.Path, "checkpoint.nats.scratch": c.Checkpoint.NATS.Scratch,
		"buffer.path": c.Buffer.Path, "audit.path": c.Audit.Path,
	}
	for i := range c.Sinks {
		b, ok := c.Sinks[i].block()
		if !ok {
			continue
		}
		at, t := fmt.Sprintf("sinks[%d].%s.", i, b.kind), b.Traits()
		for field, name := range t.Files {
			files[at+field] = name
		}
		for field, name := range t.Dirs {
			dirs[at+field] = name
		}
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		name := files[path]
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			p.add(path, "%s is a directory: name a file in it", name)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(dirs)) {
		name := dirs[path]
		if info, err := os.Stat(name); err == nil && !info.IsDir() {
			p.add(path, "%s is a file: name a directory", name)
		}
	}
}
