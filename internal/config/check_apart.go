package config

import (
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// claim is a file, port or stream that one sink cannot share with another.
type claim struct {
	key  string // of the sink's configuration
	what string // what both sinks would do with it, and the remedy
	// clash reports whether another sink needs the same.
	clash func(other *Sink) bool
}

// apart checks that no two sinks of this bridge write to the same place. Conflicts between two bridges
// are found when they run.
func (p *problems) apart(c *Config) {
	for i := range c.Sinks {
		s := &c.Sinks[i]
		for _, claim := range claims(c, s) {
			j := slices.IndexFunc(c.Sinks[:i], func(other Sink) bool { return claim.clash(&other) })
			if j >= 0 {
				p.add(fmt.Sprintf("sinks[%d].%s", i, claim.key), "sinks %q and %q would both %s", c.Sinks[j].Name, s.Name, claim.what)
			}
		}
	}
}

func claims(c *Config, s *Sink) (all []claim) {
	if s.File != nil && s.File.Path != "" {
		mine := s.File.Path
		all = append(all, claim{"file.path", fmt.Sprintf("write to %q, or to files rotated from it: give each a file of its own", mine), func(other *Sink) bool {
			return other.File != nil && sameFiles(mine, other.File.Path)
		}})
	}
	if mine := s.embedded(); mine != nil {
		all = append(all,
			claim{"nats.embedded.dir", fmt.Sprintf("keep a server's data in %q: give each a directory of its own", mine.Dir), func(other *Sink) bool {
				its := other.embedded()
				return its != nil && mine.Dir != "" && filepath.Clean(mine.Dir) == filepath.Clean(its.Dir)
			}},
			claim{"nats.embedded.listen", fmt.Sprintf("listen on %q: give each a port of its own", mine.Listen), func(other *Sink) bool {
				its := other.embedded()
				return its != nil && sameListener(mine.Listen, its.Listen)
			}})
	} else if s.NATS != nil && s.NATS.IsLog() {
		stream := s.NATS.StreamName(c.Cluster)
		all = append(all, claim{"nats", fmt.Sprintf("write to stream %q, which exactly-once needs for itself: set nats.stream.name and nats.subject of one to others, or `delivery: at-least-once` for both", stream), func(other *Sink) bool {
			return other.NATS != nil && other.NATS.IsLog() && other.NATS.StreamName(c.Cluster) == stream && sameServers(s.NATS.URL, other.NATS.URL)
		}})
	}
	return all
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
