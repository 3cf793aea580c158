package nats

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
)

// Complete implements [bus.Config].
func (c *Config) Complete(s *bus.Setup) error {
	unused := bus.CompleteDeadLetter(s, &c.DeadLetter)
	done, err := c.sink().Complete()
	*c = Config(done)
	return errors.Join(unused, err)
}

// Check implements [bus.Config].
func (c *Config) Check(k *bus.Checker) {
	c.checkSubject(k, k.At+".subject", c.Subject)
	for _, r := range k.Resources {
		if at := r.Path + ".subject"; r.Subject != "" {
			k.Use(at)
			if c.checkSubject(k, at, r.Subject) {
				k.Bad(at, c.sink().CheckSubject(r.Subject, k.Identity.Cluster))
			}
		}
	}
	c.checkApart(k)
	c.checkSecurity(k)
}

// checkSubject parses the template of a subject, and checks that its longest result is within NATS's limit.
func (c *Config) checkSubject(k *bus.Checker, at, template string) bool {
	if !k.Parse(at, template, shape.SubjectNames) {
		return false
	}
	n := bus.Template(template, shape.SubjectNames).LongestSubject(k.Identity.Cluster)
	if n > event.MaxSubject {
		k.Bad(at, fmt.Errorf("with the longest names, a subject has %d bytes, and NATS takes %d: leave out what stands there twice", n, event.MaxSubject))
	}
	return n <= event.MaxSubject
}

func (c *Config) checkApart(k *bus.Checker) {
	if mine := c.Embedded; mine != nil {
		bus.Apart(k, k.At+".embedded.dir", fmt.Sprintf("keep a server's data in %q: give each a directory of its own", mine.Dir), func(other *Config) bool {
			its := other.Embedded
			return its != nil && mine.Dir != "" && filepath.Clean(mine.Dir) == filepath.Clean(its.Dir)
		})
		bus.Apart(k, k.At+".embedded.listen", fmt.Sprintf("listen on %q: give each a port of its own", mine.Listen), func(other *Config) bool {
			return other.Embedded != nil && sameListener(mine.Listen, other.Embedded.Listen)
		})
		return
	}
	if !c.sink().IsLog() {
		return
	}
	stream := c.sink().StreamName(k.Identity.Cluster)
	bus.Apart(k, k.At, fmt.Sprintf("write to stream %q, which exactly-once needs for itself: set nats.stream.name and nats.subject of one to others, or `delivery: at-least-once` for both", stream), func(other *Config) bool {
		its := other.sink()
		return its.IsLog() && its.StreamName(k.Identity.Cluster) == stream && sameServers(c.URL, its.URL)
	})
}

// sameListener reports whether two listeners cannot have these addresses at the same time.
func sameListener(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	return hostA == hostB || everywhere(hostA) || everywhere(hostB)
}

func everywhere(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// sameServers reports whether one server is in both lists of URLs.
func sameServers(a, b string) bool {
	others := servers(b)
	return slices.ContainsFunc(servers(a), func(one string) bool { return slices.Contains(others, one) })
}

// servers returns the hosts and ports in a list of NATS URLs.
func servers(list string) (all []string) {
	for one := range strings.SplitSeq(list, ",") {
		_, host, _ := strings.Cut(strings.TrimSpace(one), "://")
		host = strings.ToLower(strings.TrimSuffix(host[strings.LastIndexByte(host, '@')+1:], "/"))
		if host == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host += ":4222"
		}
		all = append(all, host)
	}
	return all
}

func (c *Config) checkSecurity(k *bus.Checker) {
	const readable = "is sent without TLS: others on the network can read it: "
	e := c.Embedded
	if e == nil {
		if c.TLS == (nats.TLS{}) && sendsPassword(c.URL, c.Auth.Username+c.Auth.Token+c.Auth.TokenFile != "") {
			k.Warn(k.At+".url", "a password or token "+readable+"begin the address with tls://, or set tls")
		}
		return
	}
	if e.Leaf != nil && e.Leaf.TLS == (nats.TLS{}) && sendsPassword(e.Leaf.URL, false) {
		k.Warn(k.At+".embedded.leaf.url", "a password "+readable+"begin the address with tls://, or set tls")
	}
	switch {
	case bus.IsLocal(e.Listen):
	case c.Auth.Username == "" && (e.TLS == nil || e.TLS.ClientCA == ""):
		k.Warn(k.At+".embedded.listen", "everybody who reaches %s can read all events: set auth.username and auth.passwordFile, or embedded.tls with clientCA, or listen on 127.0.0.1", e.Listen)
	case c.Auth.Username != "" && e.TLS == nil:
		k.Warn(k.At+".embedded.listen", "the password of subscribers "+readable+"set embedded.tls, or listen on 127.0.0.1")
	}
}

// sendsPassword reports whether a login is sent without TLS to a server on another machine.
// own says that there is a login besides logins in the addresses.
func sendsPassword(servers string, own bool) bool {
	for one := range strings.SplitSeq(servers, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err == nil && u.Scheme != "tls" && u.Scheme != "wss" && (own || u.User != nil) && !bus.IsLocal(u.Host) {
			return true
		}
	}
	return false
}
