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
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// Config says which NATS a sink writes to and how. Exactly one of URL and
// Embedded is set.
type Config struct {
	// URL is nats://host:4222 or tls://…; several with commas between them. Either this or embedded.
	URL string `yaml:"url"`
	// Embedded runs a JetStream server inside the bridge instead.
	Embedded *Embedded `yaml:"embedded"`
	// Subject is the template of an object's subject. Default:
	// k8s.{cluster}.{group}.{resource}.{namespace}.{name}, and .{entry} if that has a value
	Subject string `yaml:"subject"`
	// Delivery is exactly-once (default), at-least-once or at-most-once.
	Delivery string `yaml:"delivery"`
	Stream   Stream `yaml:"stream"`
	// DeadLetter is where events go that NATS does not take; nil: there is no such
	// place.
	DeadLetter *DeadLetter `yaml:"deadLetter"`
	Auth       Auth        `yaml:"auth"`
	TLS        TLS         `yaml:"tls"`
	// Domain is the JetStream domain of the stream, for a bridge that connects to a leaf node. Default: the server's own
	Domain string `yaml:"domain"`
	// APIPrefix takes the place of $JS.API in requests, for a JetStream of another account. Default: $JS.API
	APIPrefix string `yaml:"apiPrefix"`
	// InboxPrefix begins the subjects of answers. Default: _INBOX.kubebridge.<name>.<sink>
	InboxPrefix string `yaml:"inboxPrefix"`
}

// DeadLetter says where dead letters are published: on the sink's own stream, so
// that they keep their place among its records, and outside of its subjects.
type DeadLetter struct {
	// Subject is a template of the beginning of dead letters' subjects: {name} (of the bridge), {cluster}, {sink};
	// .<group>.<resource>.<namespace>.<name> follows. Only with oversize: dead-letter. Default:
	// kubebridge.{cluster}.{name}.{sink}.dead
	Subject string `yaml:"subject"`
}

// Embedded is a NATS server with JetStream inside the bridge. Every client that
// connects may read; with [Auth]'s username and password set, only clients that have
// them. Nobody but the bridge may publish.
type Embedded struct {
	Dir       string     `yaml:"dir"`       // directory of the data of a JetStream server inside the bridge; required
	Listen    string     `yaml:"listen"`    // host:port that subscribers connect to. Default: 127.0.0.1:4222; port 0: a free one
	MaxBytes  sink.Bytes `yaml:"maxBytes"`  // bytes that all its streams may take on disk. Default: ¾ of the disk
	MaxMemory sink.Bytes `yaml:"maxMemory"` // bytes that all its streams may take in memory. Default: ¾ of the memory
	TLS       *ServerTLS `yaml:"tls"`       // nil: none
	Leaf      *Leaf      `yaml:"leaf"`      // nil: it stands alone
}

// Stream is the JetStream stream: the pipeline's alone (exactly-once), or one that others
// write to as well (at-least-once).
type Stream struct {
	Name     string        `yaml:"name"`     // default: K8S_<cluster>; for at-least-once, the stream that takes the subjects
	Create   *bool         `yaml:"create"`   // create it if it is missing. Default: true
	Replicas int           `yaml:"replicas"` // 1 to 5, of a stream that is created and of the checkpoint's bucket. Default: 1
	MaxAge   time.Duration `yaml:"maxAge"`   // how long events are kept, of a stream that is created. If the bridge was down for longer, a reset follows. Default: no limit
	MaxBytes sink.Bytes    `yaml:"maxBytes"` // bytes of a stream that is created. Default: no limit
}

const (
	defaultSubject = "k8s.{cluster}.{group}.{resource}.{namespace}.{name}"
	defaultDead    = termRoot + ".{cluster}.{name}.{sink}.dead"
	deadTail       = ".{group}.{resource}.{namespace}.{name}"
	defaultListen  = "127.0.0.1:4222"
	exactlyOnce    = "exactly-once"
	atLeastOnce    = "at-least-once"
	atMostOnce     = "at-most-once"
)

// Complete returns the configuration with every default filled in, except the
// stream's name, which comes from the cluster's. The error joins everything that
// is wrong with it; each line starts with the field.
func (c Config) Complete() (Config, error) {
	if c.Subject == "" {
		c.Subject = defaultSubject
	}
	if c.DeadLetter != nil && c.DeadLetter.Subject == "" {
		c.DeadLetter = &DeadLetter{Subject: defaultDead}
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
	return c, errors.Join(c.checkServer(), c.checkSubject(), c.checkDeadLetter(), c.checkDelivery(), c.checkStream(), c.checkPrefixes(), c.checkSecurity())
}

// IsLog reports whether the sink is a [sink.Log], which a checkpoint may trail.
func (c Config) IsLog() bool { return c.Delivery == exactlyOnce || c.Delivery == "" }

// StreamName is the stream's name for events of a cluster. A stream for at-least-once
// that is not configured may have another, see [Stream].
func (c Config) StreamName(cluster string) string {
	if c.Stream.Name != "" {
		return c.Stream.Name
	}
	return "K8S_" + event.EscapeToken(cluster)
}

// api begins the subjects of requests to JetStream.
func (c Config) api() string {
	switch {
	case c.Domain != "":
		return "$JS." + c.Domain + ".API."
	case c.APIPrefix != "":
		return c.APIPrefix + "."
	}
	return api
}

// keyPrefix begins the subjects to which values of buckets are published, before the subjects under which they are stored.
func (c Config) keyPrefix() string {
	if prefix := c.api(); prefix != api {
		return prefix
	}
	return ""
}

// inbox begins the subjects of answers. Each pipeline has its own by default, so that a user who may subscribe
// to it sees no answers to other clients.
func (c Config) inbox(id event.Identity) string {
	if c.InboxPrefix != "" {
		return c.InboxPrefix
	}
	return "_INBOX.kubebridge." + event.EscapeToken(id.Bridge) + "." + event.EscapeToken(id.Sink)
}

func (c Config) checkPrefixes() error {
	if c.Embedded != nil && c.Domain+c.APIPrefix+c.InboxPrefix != "" {
		return errors.New("domain, apiPrefix, inboxPrefix: they are for connecting to a server: leave them out with embedded")
	}
	if c.Domain != "" && c.APIPrefix != "" {
		return errors.New("domain, apiPrefix: keep one: a domain has the prefix $JS.<domain>.API")
	}
	for field, value := range map[string]string{"domain": c.Domain, "apiPrefix": c.APIPrefix, "inboxPrefix": c.InboxPrefix} {
		if value == "" {
			continue
		}
		if err := checkSubject(value); err != nil || field == "domain" && strings.Contains(value, ".") {
			return fmt.Errorf("%s: %q: want tokens without spaces and wildcards, and no dot at the end; a domain is one token", field, value)
		}
	}
	return nil
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
			return fmt.Errorf("url: %q: want nats://host:4222 or tls://host:4222", WithoutCredentials(one))
		}
		if u.Hostname() == "" {
			return fmt.Errorf("url: %q has no host: want nats://host:4222", WithoutCredentials(one))
		}
		if u.User != nil && c.Auth != (Auth{}) {
			return fmt.Errorf("url: %q has credentials, and so has auth: keep one of them", WithoutCredentials(one))
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
	if e.MaxBytes < 0 || e.MaxMemory < 0 {
		return errors.New("embedded.maxBytes, embedded.maxMemory: not negative; 0 leaves it to the server")
	}
	return e.checkSecurity()
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
	root, _, _ := strings.Cut(subjectRoot(c.Subject, "x"), ".")
	if err := c.checkTemplate(c.Subject); err != nil {
		return err
	}
	if root == ">" || root[0] == '$' || root == "_INBOX" || root == termRoot {
		return fmt.Errorf("subject: %q: must begin with a token of its own before the first {name}, for example k8s", c.Subject)
	}
	return nil
}

// CheckSubject returns an error if a template cannot replace Subject
// for events of a cluster. Its error begins with the field.
func (c Config) CheckSubject(template, cluster string) error {
	if err := c.checkTemplate(template); err != nil {
		return err
	}
	if all := subjectRoot(c.Subject, cluster); !covers(all, subjectRoot(template, cluster)) {
		return fmt.Errorf("subject: %q: is outside of %s, where nats.subject %q puts the sink's events: begin it as that begins", template, all, c.Subject)
	}
	return nil
}

// checkTemplate makes the checks that are the same for all templates.
func (c Config) checkTemplate(template string) error {
	if err := checkSubject(placeholder.ReplaceAllString(template, "x")); err != nil {
		return fmt.Errorf("subject: %q: %w", template, err)
	}
	if c.Delivery == atLeastOnce && strings.Contains(template, "{type}") {
		return fmt.Errorf("subject: %q: %s keeps the order of one subject, and {type} would give one object several: leave it out", template, atLeastOnce)
	}
	return nil
}

// perEntry reports whether objects of two entries have two subjects. {entry} is appended to the default one.
func (c Config) perEntry() bool {
	return c.Subject == defaultSubject || strings.Contains(c.Subject, "{entry}")
}

func (c Config) checkDeadLetter() error {
	if c.DeadLetter == nil {
		return nil
	}
	id := event.Identity{Bridge: "x", Cluster: "x", Sink: "x"}
	root := c.deadRoot(id)
	if err := checkSubject(root); err != nil || strings.ContainsAny(root, "{}") {
		return fmt.Errorf("deadLetter.subject: %q: want tokens like %s", c.DeadLetter.Subject, defaultDead)
	}
	events := subjectRoot(c.Subject, "x")
	if all := root + ".>"; covers(all, events) || covers(events, all) || covers(all, termSubject(id)) {
		return fmt.Errorf("deadLetter.subject: %q: it meets the subjects of other messages of the stream: leave it out, or begin it with another token", c.DeadLetter.Subject)
	}
	return nil
}

// deadRoot returns the prefix of the subjects of a pipeline's dead letters.
func (c Config) deadRoot(id event.Identity) string {
	return event.Identity{
		Bridge: event.EscapeToken(id.Bridge), Cluster: event.EscapeToken(id.Cluster), Sink: event.EscapeToken(id.Sink),
	}.Expand(c.DeadLetter.Subject)
}

// DeadSubject is the template of the subjects of a pipeline's dead letters, "" for
// none.
func (c Config) DeadSubject(id event.Identity) string {
	if c.DeadLetter == nil {
		return ""
	}
	return c.deadRoot(id) + deadTail
}

func (c Config) checkDelivery() error {
	switch c.Delivery {
	case exactlyOnce, atLeastOnce:
		return nil
	case atMostOnce:
		if s := c.Stream; s.Name != "" || s.Replicas > 1 || s.MaxAge != 0 || s.MaxBytes != 0 {
			return errors.New("stream: at-most-once has no stream: leave it out, or set delivery to exactly-once")
		}
		return nil
	default:
		return fmt.Errorf("delivery: %q is not known: set %s, %s or %s", c.Delivery, exactlyOnce, atLeastOnce, atMostOnce)
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
		return fmt.Errorf("stream.maxAge: %v: not negative; 0 keeps events without end", s.MaxAge)
	case s.MaxBytes < 0:
		return fmt.Errorf("stream.maxBytes: %d: not negative; 0 is no limit", s.MaxBytes)
	}
	return nil
}

// placeholder is a {name} in a template.
var placeholder = regexp.MustCompile(`\{[a-zA-Z]+\}`)

// subjectRoot returns the common prefix of every subject made from template, as a
// pattern: k8s.{cluster}.{group}.{name} becomes k8s.prod.>. A template with only fixed
// tokens is returned unchanged.
func subjectRoot(template, cluster string) string {
	s := strings.ReplaceAll(template, "{cluster}", event.EscapeToken(cluster))
	i := strings.IndexByte(s, '{')
	if i < 0 {
		return s
	}
	return s[:strings.LastIndexByte(s[:i], '.')+1] + ">"
}

// WithoutCredentials returns the scheme and host of a server's address, which may be shown. It removes a user
// without a password, too, because this may be a token.
func WithoutCredentials(server string) string {
	server = strings.TrimSpace(server)
	u, err := url.Parse(server)
	if err != nil || u.Host == "" { // host:port, perhaps with credentials before it
		return server[strings.LastIndexByte(server, '@')+1:]
	}
	return u.Scheme + "://" + u.Host
}
