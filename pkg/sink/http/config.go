package http

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/pkg/sink"
)

// Config says where events are sent and how.
type Config struct {
	// URL is a template of the address that events are sent to, with {cluster}, {group}, {resource} and {entry} in its path;
	// required. Redirects are not followed.
	URL string `yaml:"url"`
	// MaxEvents is how many events a request has at most, in the batched content mode. With 1, or with another format than structured, a
	// request is one event. Default: 100
	MaxEvents int `yaml:"maxEvents"`
	// MaxBytes is how large the body of a request with several events may be. Default: 1Mi
	MaxBytes sink.Bytes `yaml:"maxBytes"`
	// Requests is how many requests may be in flight at once. Events of one key are never in two of them. Default: 4
	Requests int `yaml:"requests"`
	// Timeout is how long an answer may take. Default: 30s
	Timeout time.Duration `yaml:"timeout"`
	// TokenFile is a file with the bearer token, read for each request. Default: no token is sent
	TokenFile string `yaml:"tokenFile"`
	TLS       TLS    `yaml:"tls"`
}

// TLS configures connections to https addresses.
type TLS struct {
	CA   string `yaml:"ca"`   // PEM file of the authority of the server's certificate, read at the start. Default: the system's
	Cert string `yaml:"cert"` // PEM file of a client certificate, read for every connection
	Key  string `yaml:"key"`  // beside cert, PEM
}

// Complete returns the configuration with every default filled in. The error joins its mistakes; each line starts with the field.
func (c Config) Complete() (Config, error) {
	c.MaxEvents = cmp.Or(c.MaxEvents, 100)
	c.MaxBytes = cmp.Or(c.MaxBytes, 1<<20)
	c.Requests = cmp.Or(c.Requests, 4)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	all := []error{c.checkURL()}
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			all = append(all, fmt.Errorf(format, args...))
		}
	}
	wrong(c.MaxEvents < 0, "maxEvents: %d: use 1 or more", c.MaxEvents)
	wrong(c.MaxBytes < 0, "maxBytes: %d: use a number of bytes", c.MaxBytes)
	wrong(c.Requests < 0 || c.Requests > 100, "requests: %d: use 1 to 100", c.Requests)
	wrong(c.Timeout < 0, "timeout: %s is not a time to wait: use for example 30s", c.Timeout)
	wrong((c.TLS.Cert == "") != (c.TLS.Key == ""), "tls: cert and key belong together: set both or none")
	wrong(c.TLS != (TLS{}) && strings.HasPrefix(c.URL, "http://"), "tls: the address begins with http://: write https://, or leave tls out")
	return c, errors.Join(all...)
}

// checkURL checks the address without printing it: it may hold a secret.
func (c Config) checkURL() error {
	if c.URL == "" {
		return errors.New("url: missing: name the address that events are sent to, for example https://broker.example.com/events")
	}
	u, err := url.Parse(strings.NewReplacer("{", "", "}", "").Replace(c.URL))
	switch {
	case err != nil:
		return errors.New("url: it is no address: write for example https://broker.example.com/events")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("url: it does not begin with http:// or https:// and a host")
	case u.User != nil:
		return errors.New("url: it has a user or password: leave them out, and set tokenFile")
	case u.Fragment != "":
		return errors.New("url: what follows # is not sent: leave it out")
	case strings.Contains(c.root(), "{"):
		return errors.New("url: the host cannot have a placeholder: put it into the path")
	}
	return nil
}

// root returns the address up to its path.
func (c Config) root() string {
	scheme, rest, _ := strings.Cut(c.URL, "://")
	host, _, _ := strings.Cut(rest, "/")
	host, _, _ = strings.Cut(host, "?")
	return scheme + "://" + host
}

// Address returns the address for people, without its query, which may hold a secret.
func (c Config) Address() string {
	address, _, _ := strings.Cut(c.URL, "?")
	return address
}
