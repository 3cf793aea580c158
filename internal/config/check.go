package config

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/internal/bus"
)

var nameForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)

// socketLimit is the maximum length of a socket's path. It leaves room for the temporary name that
// a socket has first: the lowest limit of the supported systems is 103.
const socketLimit = 90 // bytes

const nameRule = "use lower-case letters, digits, - and ., at most 63, beginning and ending with a letter or digit"

// check fills in defaults and records every mistake.
func (p *problems) check(c *Config) {
	p.name("name", c.Name)
	if c.Cluster == "" {
		p.add("cluster", "it is required: the name of this cluster in every event")
	} else {
		p.name("cluster", c.Cluster)
	}
	if c.Kubernetes.ConcurrentLists < 1 {
		p.add("kubernetes.concurrentLists", "%d is not a number of lists: use 1 or more", c.Kubernetes.ConcurrentLists)
	}
	p.oneOf("secrets.values", c.Secrets.Values, "hash", "redact", "plain")
	p.hashKey(&c.Secrets)
	p.oneOf("managedFields", c.ManagedFields, "drop", "keep")
	p.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	p.oneOf("log.format", c.Log.Format, "json", "console", "auto")
	p.status(&c.Status)
	if c.Shutdown.Timeout <= 0 {
		p.add("shutdown.timeout", "%s is not a time to wait: use for example 20s", c.Shutdown.Timeout)
	}
	p.admin(c)
	p.redactions("redact", c.Redact, false)
	p.resources("resources", c.Resources)
	if len(c.Sinks) == 0 {
		p.add("sinks", "it is required: name at least one sink")
	}
	var names []string
	for i := range c.Sinks {
		s := &c.Sinks[i]
		path := fmt.Sprintf("sinks[%d]", i)
		p.sink(path, s)
		if slices.Contains(names, s.Name) {
			p.add(path+".name", "two sinks are named %q", s.Name)
		}
		names = append(names, s.Name)
		if len(c.ResourcesOf(s)) == 0 {
			p.add(path, "it has no resources: name some under resources, here or for the whole bridge")
		}
	}
	p.routes(c)
	p.checkpoint(c)
	p.audit(c)
	p.leaderElection(c)
	p.buffer(c)
	p.exclude(c)
}

// admin puts the socket next to the checkpoints unless its path is set.
func (p *problems) admin(c *Config) {
	if c.Admin.Socket == "" {
		c.Admin.Socket = filepath.Join(c.Checkpoint.File.Path, "admin.sock")
		if c.Checkpoint.File.Path == "" || len(c.Admin.Socket) > socketLimit {
			c.Admin.Socket = Off
		}
	}
	if n := len(c.Admin.Socket); n > socketLimit {
		p.add("admin.socket", "%q has %d bytes, a socket's path can have %d: choose a shorter one, or off", c.Admin.Socket, n, socketLimit)
	}
}

func (p *problems) name(path, name string) {
	if !nameForm.MatchString(name) {
		p.add(path, "%q cannot be a name: %s", name, nameRule)
	}
}

func (p *problems) oneOf(path, value string, known ...string) {
	if !slices.Contains(known, value) {
		p.add(path, "%q is not one of %s", value, strings.Join(known, ", "))
	}
}

func (p *problems) sink(path string, s *Sink) {
	if s.Name == "" {
		p.add(path, "it has no name: name it, its checkpoint is kept under that")
	} else {
		p.name(path+".name", s.Name)
	}
	if s.Linger < 0 {
		p.add(path+".linger", "%s is not a time to wait: use 0 or more", s.Linger)
	}
	p.resources(path+".resources", s.Resources)
	p.oversize(path, s)
	p.format(path+".format", s)
	n := 0
	for _, b := range s.blocks() {
		if b.set {
			n++
			p.fields(path, b.kind, b.Complete(&bus.Setup{Oversize: s.Oversize}))
		}
	}
	if n != 1 {
		p.add(path, "it has %d of %s: a sink is exactly one of them", n, kinds("and", func(bus.Traits) bool { return true }))
	}
}

// fields records the mistakes of a block, which are joined in an error.
func (p *problems) fields(path, kind string, err error) {
	if err == nil {
		return
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		field, message, ok := strings.Cut(line, ": ")
		if !ok {
			field, message = kind, line
		} else {
			field = kind + "." + field
		}
		p.add(path+"."+field, "%s", message)
	}
}
