package config

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

var (
	nameForm     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)
	resourceForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?\.?$`)
)

const nameRule = "use lower-case letters, digits, - and ., at most 63, beginning and ending with a letter or digit"

// check completes what sinks leave open and notes every mistake.
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
	p.oneOf("managedFields", c.ManagedFields, "drop", "keep")
	p.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	p.oneOf("log.format", c.Log.Format, "json", "console", "auto")
	if c.Status.Listen != "off" {
		_, port, err := net.SplitHostPort(c.Status.Listen)
		if _, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil {
			p.add("status.listen", "%q is not host:port, or off", c.Status.Listen)
		}
	}
	if c.Shutdown.Timeout <= 0 {
		p.add("shutdown.timeout", "%s is not a time to wait: use for example 20s", c.Shutdown.Timeout)
	}
	p.resources("resources", c.Resources)
	if len(c.Sinks) == 0 {
		p.add("sinks", "it is required: name at least one sink")
	} else if c.Checkpoint.File.Path == "" {
		p.add("checkpoint.file.path", "it is required: a directory where the bridge remembers how far it got (this version keeps checkpoints in files only)")
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
	n := 0
	complete := func(key string, err error) {
		n++
		if err == nil {
			return
		}
		for _, line := range strings.Split(err.Error(), "\n") {
			field, message, ok := strings.Cut(line, ": ")
			if !ok {
				field, message = key, line
			} else {
				field = key + "." + field
			}
			p.add(path+"."+field, "%s", message)
		}
	}
	if s.Kafka != nil {
		c, err := s.Kafka.Complete()
		*s.Kafka = c
		complete("kafka", err)
	}
	if s.NATS != nil {
		c, err := s.NATS.Complete()
		*s.NATS = c
		complete("nats", err)
	}
	if s.Stdout != nil {
		c, err := s.Stdout.Complete()
		*s.Stdout = c
		complete("stdout", err)
	}
	if n != 1 {
		p.add(path, "it has %d of kafka, nats and stdout: a sink is exactly one of them", n)
	}
}

func (p *problems) resources(path string, list []Resource) {
	for i, r := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		p.resource(at, r)
		for j, other := range list[:i] {
			if other.Name() == r.Name() && !disjoint(other.Namespaces, r.Namespaces) {
				p.add(at, "%q is asked for twice (see resources[%d]): one object could be in both; name different namespaces or join them", r.Name(), j)
			}
		}
	}
}

func disjoint(a, b []string) bool {
	return len(a) > 0 && len(b) > 0 && !slices.ContainsFunc(a, func(n string) bool { return slices.Contains(b, n) })
}

func (p *problems) resource(at string, r Resource) {
	switch {
	case r.Resource == "":
		p.add(at, "it names no resource: write pods, deployments.apps, or resource: with its options")
	case strings.Contains(r.Resource, "*"):
		p.add(at, "%q: wildcards are not in this version: name each resource", r.Resource)
	case strings.Contains(r.Resource, "/"):
		p.add(at, "%q: name a resource as kubectl does, for example deployments.v1.apps; subresources have no watch", r.Resource)
	case !resourceForm.MatchString(r.Name()):
		p.add(at, "%q cannot be a resource: name it as kubectl does, for example pods, deployments.apps or deployments.v1.apps", r.Name())
	case r.Group != "" && r.Version == "":
		p.add(at, "it has a group but no version: write %s.%s, or add version", r.Resource, r.Group)
	}
	if _, err := labels.Parse(r.LabelSelector); err != nil {
		p.add(at+".labelSelector", "%q does not parse: %v", r.LabelSelector, err)
	}
	if _, err := fields.ParseSelector(r.FieldSelector); err != nil {
		p.add(at+".fieldSelector", "%q does not parse: %v", r.FieldSelector, err)
	}
	for i, n := range r.Namespaces {
		if !nameForm.MatchString(n) {
			p.add(fmt.Sprintf("%s.namespaces[%d]", at, i), "%q cannot be a namespace: %s", n, nameRule)
		} else if slices.Contains(r.Namespaces[:i], n) {
			p.add(fmt.Sprintf("%s.namespaces[%d]", at, i), "namespace %q is named twice", n)
		}
	}
}
