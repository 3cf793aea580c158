package nats

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Config says which NATS a sink writes to and how. Exactly one of URL and
// Embedded is set.
type Config struct {
	// URL of the servers, comma-separated: nats://host:4222, tls://…
	URL string `yaml:"url"`
	// Embedded runs a JetStream server inside the bridge instead.
	Embedded *Embedded `yaml:"embedded"`
	// Subject is the template of an object's subject.
	// Default: k8s.{cluster}.{group}.{resource}.{namespace}.{name}
	Subject string `yaml:"subject"`
	// Delivery is exactly-once (default).
	Delivery string `yaml:"delivery"`
	Stream   Stream `yaml:"stream"`
	Auth     Auth   `yaml:"auth"`
	TLS      TLS    `yaml:"tls"`
}

// Embedded is a NATS server with JetStream inside the bridge. Whoever connects
// may read; with [Auth]'s username and password set, only who has them. Nobody
// but the bridge may publish.
type Embedded struct {
	Dir    string `yaml:"dir"`    // where its data lives; required
	Listen string `yaml:"listen"` // host:port that subscribers connect to; default 127.0.0.1:4222, port 0 = a free one
}

// Stream is the JetStream stream that belongs to the lane alone.
type Stream struct {
	Name     string        `yaml:"name"`     // default K8S_<cluster>
	Create   *bool         `yaml:"create"`   // create it when missing; default true
	Replicas int           `yaml:"replicas"` // 1 to 5; default 1; used on creation
	MaxAge   time.Duration `yaml:"maxAge"`   // 0 = kept for ever; used on creation
	MaxBytes int64         `yaml:"maxBytes"` // 0 = no limit; used on creation
}

// Auth holds credentials. At most one way is used.
type Auth struct {
	Username string `yaml:"username"`
	Password string `yaml:"password"`
	Token    string `yaml:"token"`
	Creds    string `yaml:"creds"` // path of a .creds file
}

// TLS is used when the URL's scheme is tls or CA is set.
type TLS struct {
	CA string `yaml:"ca"` // path of a PEM file; empty: the system's
}

const (
	defaultSubject = "k8s.{cluster}.{group}.{resource}.{namespace}.{name}"
	defaultListen  = "127.0.0.1:4222"
	exactlyOnce    = "exactly-once"
)

// Complete returns the configuration with every default filled in, except the
// stream's name, which comes from the cluster's. The error joins everything that
// is wrong with it; each line starts with the field.
func (c Config) Complete() (Config, error) {
	if c.Subject == "" {
		c.Subject = defaultSubject
	}
	if c.Delivery == "" {
		c.Delivery = exactlyOnce
	}
	if c.Stream.Create == nil {
		c.Stream.Create = new(true)
	}
	if c.Stream.Replicas == 0 {
		c.Stream.Replicas = 1
	}
	if c.Embedded != nil && c.Embedded.Listen == "" {
		e := *c.Embedded
		e.Listen = defaultListen
		c.Embedded = &e
	}
	return c, errors.Join(c.checkServer(), c.checkSubject(), c.checkDelivery(), c.checkStream(), c.checkSecurity())
}

func (c Config) checkServer() error {
	switch {
	case c.URL == "" && c.Embedded == nil:
		return errors.New("url: missing: set it, for example nats://nats:4222, or `embedded`")
	case c.URL != "" && c.Embedded != nil:
		return errors.New("embedded: set beside url: keep one of them")
	case c.Embedded != nil:
		return c.Embedded.check()
	}
	for one := range strings.SplitSeq(c.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil { // its text would show a password
			return errors.New("url: does not parse: want nats://host:4222, several with commas between them")
		}
		switch u.Scheme {
		case "nats", "tls", "ws", "wss":
		default:
			return fmt.Errorf("url: %q: want nats://host:4222 or tls://host:4222", u.Redacted())
		}
		if u.Hostname() == "" {
			return fmt.Errorf("url: %q has no host: want nats://host:4222", u.Redacted())
		}
		if u.User != nil && c.Auth != (Auth{}) {
			return fmt.Errorf("url: %q has credentials, and so has auth: keep one of them", u.Redacted())
		}
	}
	return nil
}

func (e *Embedded) check() error {
	if e.Dir == "" {
		return errors.New("embedded.dir: missing: name the directory that holds the events")
	}
	if _, _, err := e.hostPort(); err != nil {
		return fmt.Errorf("embedded.listen: %q is not host:port, for example %s", e.Listen, defaultListen)
	}
	return nil
}

func (e *Embedded) hostPort() (host string, port int, err error) {
	host, p, err := net.SplitHostPort(e.Listen)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(p, 10, 16)
	return host, int(n), err
}

func (c Config) checkSubject() error {
	if err := checkSubject(placeholder.ReplaceAllString(c.Subject, "x")); err != nil {
		return fmt.Errorf("subject: %q: %w", c.Subject, err)
	}
	root, _, _ := strings.Cut(subjectRoot(c.Subject, "x"), ".")
	if root == ">" || root[0] == '$' || root == "_INBOX" || root == termRoot {
		return fmt.Errorf("subject: %q: must begin with a token of its own before the first {name}, for example k8s", c.Subject)
	}
	return nil
}

func (c Config) checkDelivery() error {
	switch c.Delivery {
	case exactlyOnce:
		return nil
	case "at-least-once", "at-most-once":
		return fmt.Errorf("delivery: %s is not in this version: set `delivery: %s` or leave it out", c.Delivery, exactlyOnce)
	default:
		return fmt.Errorf("delivery: %q is not known: set `delivery: %s` or leave it out", c.Delivery, exactlyOnce)
	}
}

func (c Config) checkStream() error {
	s := c.Stream
	switch {
	case strings.ContainsAny(s.Name, " \t\r\n.*>/\\"):
		return fmt.Errorf("stream.name: %q: no spaces, dots, slashes or wildcards", s.Name)
	case s.Replicas < 1 || s.Replicas > 5:
		return fmt.Errorf("stream.replicas: %d: 1 to 5", s.Replicas)
	case s.Replicas > 1 && c.Embedded != nil:
		return fmt.Errorf("stream.replicas: %d: an embedded server stands alone: leave it out", s.Replicas)
	case s.MaxAge < 0:
		return fmt.Errorf("stream.maxAge: %v: not negative; 0 keeps events for ever", s.MaxAge)
	case s.MaxBytes < 0:
		return fmt.Errorf("stream.maxBytes: %d: not negative; 0 is no limit", s.MaxBytes)
	}
	return nil
}

func (c Config) checkSecurity() error {
	a := c.Auth
	ways := 0
	for _, set := range []bool{a.Username != "" || a.Password != "", a.Token != "", a.Creds != ""} {
		if set {
			ways++
		}
	}
	switch {
	case ways > 1:
		return errors.New("auth: more than one of username and password, token and creds: keep one")
	case (a.Username == "") != (a.Password == ""):
		return errors.New("auth: username and password are both needed")
	case c.Embedded != nil && (a.Token != "" || a.Creds != ""):
		return errors.New("auth: an embedded server knows username and password only")
	case c.Embedded != nil && c.TLS != (TLS{}):
		return errors.New("tls: an embedded server has none: leave it out")
	}
	return nil
}

// placeholder is a {name} in a template.
var placeholder = regexp.MustCompile(`\{[a-zA-Z]+\}`)

// subjectRoot is what every subject made from template begins with, as a
// pattern: k8s.{cluster}.{group}.{name} becomes k8s.prod.>. A template of fixed
// tokens alone is returned as it is.
func subjectRoot(template, cluster string) string {
	s := strings.ReplaceAll(template, "{cluster}", event.EscapeToken(cluster))
	i := strings.IndexByte(s, '{')
	if i < 0 {
		return s
	}
	return s[:strings.LastIndexByte(s[:i], '.')+1] + ">"
}
