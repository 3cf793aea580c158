package nats

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/kubebridge/kubebridge/internal/base/textfile"
)

// Auth holds credentials. At most one way is used. What is named as a file is read
// again for every connection: one that is replaced counts from the next on.
type Auth struct {
	Username     string `yaml:"username"`     // one way to log in; with embedded: what subscribers need
	Password     string `yaml:"password"`     // with Username; never printed
	PasswordFile string `yaml:"passwordFile"` // file with the password, instead of Password
	Token        string `yaml:"token"`        // another way; never printed
	TokenFile    string `yaml:"tokenFile"`    // file with the token, instead of Token
	NKey         string `yaml:"nkey"`         // another way: file with a user's nkey seed
	Creds        string `yaml:"creds"`        // another way: .creds file, with JWT and seed
}

// TLS is used when the URL's scheme is tls or any of it is set. Files are read again
// for every connection.
type TLS struct {
	CA         string `yaml:"ca"`         // PEM file of the authority of the servers' certificates. Default: the system's
	Cert       string `yaml:"cert"`       // PEM file: the bridge's own certificate. Default: none
	Key        string `yaml:"key"`        // PEM file: its key
	ServerName string `yaml:"serverName"` // name that the servers' certificates must have. Default: the URL's host
	// HandshakeFirst begins TLS before the server says anything, as servers with handshake_first want it. Default: false
	HandshakeFirst bool `yaml:"handshakeFirst"`
}

// ServerTLS makes an embedded server's listener demand TLS. Files are read again for
// every connection.
type ServerTLS struct {
	Cert     string `yaml:"cert"`     // PEM file; required. Subscribers must then use TLS
	Key      string `yaml:"key"`      // PEM file; required
	ClientCA string `yaml:"clientCA"` // PEM file of a certificate authority: subscribers must have a certificate that it signed. Default: none
}

// Leaf joins an embedded server to a larger NATS as a leaf node: what the bridge
// publishes can be subscribed to there, nothing comes back.
type Leaf struct {
	URL   string `yaml:"url"`   // nats-leaf://host:7422: a larger NATS to join as a leaf node. User and password may be in it
	Creds string `yaml:"creds"` // .creds file
	TLS   TLS    `yaml:"tls"`
}

func (c Config) checkSecurity() error {
	a := c.Auth
	ways := 0
	user := a.Username != "" || a.Password != "" || a.PasswordFile != ""
	for _, set := range []bool{user, a.Token != "" || a.TokenFile != "", a.Creds != "", a.NKey != ""} {
		if set {
			ways++
		}
	}
	switch {
	case ways > 1:
		return errors.New("auth: more than one of username and password, token, nkey and creds: keep one")
	case a.Password != "" && a.PasswordFile != "":
		return errors.New("auth: password and passwordFile: keep one")
	case a.Token != "" && a.TokenFile != "":
		return errors.New("auth: token and tokenFile: keep one")
	case user && (a.Username == "" || a.Password+a.PasswordFile == ""):
		return errors.New("auth: username and password are both needed")
	case c.Embedded != nil && ways > 0 && !user:
		return errors.New("auth: an embedded server knows username and password only")
	case c.Embedded != nil && c.TLS != (TLS{}):
		return errors.New("tls: it is for connecting to a server: an embedded one has embedded.tls")
	}
	return c.TLS.check("tls")
}

func (t TLS) check(path string) error {
	if (t.Cert == "") != (t.Key == "") {
		return fmt.Errorf("%s: cert and key are both needed", path)
	}
	return nil
}

func (e *Embedded) checkSecurity() error {
	if t := e.TLS; t != nil && (t.Cert == "" || t.Key == "") {
		return errors.New("embedded.tls: cert and key are both needed")
	}
	if e.Leaf == nil {
		return nil
	}
	if _, err := e.Leaf.urls(); err != nil {
		return fmt.Errorf("embedded.leaf.url: %w", err)
	}
	return e.Leaf.TLS.check("embedded.leaf.tls")
}

func (l *Leaf) urls() ([]*url.URL, error) {
	var all []*url.URL
	for one := range strings.SplitSeq(l.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil || u.Host == "" { // err's text would show a password
			return nil, errors.New("want nats-leaf://host:7422, several with commas between them")
		}
		all = append(all, u)
	}
	return all, nil
}

// checkFiles reads every file that the configuration names, to find what is wrong
// before anything runs.
func (c Config) checkFiles() error {
	plain := []struct{ field, path string }{
		{"auth.creds", c.Auth.Creds},
		{"auth.nkey", c.Auth.NKey},
		{"auth.passwordFile", c.Auth.PasswordFile},
		{"auth.tokenFile", c.Auth.TokenFile},
	}
	if e := c.Embedded; e != nil && e.Leaf != nil {
		plain = append(plain, struct{ field, path string }{"embedded.leaf.creds", e.Leaf.Creds})
	}
	for _, f := range plain {
		if f.path == "" {
			continue
		}
		if _, err := textfile.Read(f.path); err != nil {
			return fmt.Errorf("%s: %w", f.field, err)
		}
	}
	if c.Auth.NKey != "" {
		if _, err := nats.NkeyOptionFromSeed(c.Auth.NKey); err != nil {
			return fmt.Errorf("auth.nkey: %s holds no user's seed", c.Auth.NKey)
		}
	}
	if e := c.Embedded; e != nil {
		if e.TLS != nil {
			if _, err := e.TLS.load(); err != nil {
				return fmt.Errorf("embedded.tls: %w", err)
			}
		}
		if e.Leaf != nil {
			if _, err := e.Leaf.TLS.load(); err != nil {
				return fmt.Errorf("embedded.leaf.tls.%w", err)
			}
		}
	}
	if _, err := c.TLS.load(); err != nil {
		return fmt.Errorf("tls.%w", err)
	}
	return nil
}

func loadCA(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no PEM certificate", path)
	}
	return pool, nil
}

// load reads the files once.
func (t TLS) load() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		pool, err := loadCA(t.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		c.RootCAs = pool
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("cert: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// load returns a configuration that reads the files for every connection.
func (t ServerTLS) load() (*tls.Config, error) {
	now := func() (*tls.Config, error) {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, err
		}
		c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
		if t.ClientCA != "" {
			if c.ClientCAs, err = loadCA(t.ClientCA); err != nil {
				return nil, err
			}
			c.ClientAuth = tls.RequireAndVerifyClientCert
		}
		return c, nil
	}
	c, err := now()
	if err == nil {
		c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return now() }
	}
	return c, err
}

// leafAccount is where the larger NATS is, within an embedded server. It gets the events; what
// it publishes does not reach the stream.
const leafAccount = "LEAF"

// remote returns the server's options for a leaf.
func (l *Leaf) remote() (*server.RemoteLeafOpts, error) {
	urls, err := l.urls()
	if err != nil {
		return nil, err
	}
	r := &server.RemoteLeafOpts{URLs: urls, Credentials: l.Creds, LocalAccount: leafAccount}
	if l.TLS != (TLS{}) {
		if r.TLSConfig, err = l.TLS.load(); err != nil {
			return nil, err
		}
		r.TLS, r.TLSHandshakeFirst = true, l.TLS.HandshakeFirst
	}
	return r, nil
}

// readSecret returns value, or the present content of the file at path.
func readSecret(value, path string) (string, error) {
	if path == "" {
		return value, nil
	}
	text, err := textfile.Read(path)
	return strings.TrimRight(text, "\r\n"), err
}

func (a Auth) password() (string, error) { return readSecret(a.Password, a.PasswordFile) }

// securityOptions returns the options of one connection. The client calls the handlers each time
// it connects again.
func (c Config) securityOptions() ([]nats.Option, error) {
	var opts []nats.Option
	// If a file cannot be read, the handlers return wrong credentials, so that the client retries and reports an error.
	switch a := c.Auth; {
	case a.Username != "":
		opts = append(opts, nats.UserInfoHandler(func() (string, string) {
			password, _ := a.password()
			return a.Username, password
		}))
	case a.Token != "" || a.TokenFile != "":
		opts = append(opts, nats.TokenHandler(func() string {
			token, _ := readSecret(a.Token, a.TokenFile)
			return token
		}))
	case a.NKey != "":
		key, err := nats.NkeyOptionFromSeed(a.NKey)
		if err != nil {
			return nil, fmt.Errorf("auth.nkey: %s cannot be read as a user's seed", a.NKey)
		}
		opts = append(opts, key)
	case a.Creds != "":
		opts = append(opts, nats.UserCredentials(a.Creds))
	}
	t := c.TLS
	if t != (TLS{}) {
		opts = append(opts, nats.Secure(&tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}))
	}
	if t.CA != "" {
		opts = append(opts, nats.RootCAs(t.CA))
	}
	if t.Cert != "" {
		opts = append(opts, nats.ClientCert(t.Cert, t.Key))
	}
	if t.HandshakeFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	return opts, nil
}

// keyDigest returns a digest of the nkey's file, to detect a replaced file: the client reads an
// nkey only once.
func (c Config) keyDigest() [sha256.Size]byte {
	text, _ := os.ReadFile(cmp.Or(c.Auth.NKey, os.DevNull))
	return sha256.Sum256(text)
}

// refusal returns the remedy for an error that retries do not correct, "" for other errors.
func refusal(err error) string {
	for _, wrong := range []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired} {
		if errors.Is(err, wrong) {
			return "correct the credentials under nats.auth"
		}
	}
	var (
		verify *tls.CertificateVerificationError
		alert  *net.OpError
	)
	switch {
	case errors.As(err, &verify):
		return "name who signed the server's certificate in nats.tls.ca, or the name that is in it in nats.tls.serverName"
	case errors.As(err, &alert) && alert.Op == "remote error", // crypto/tls: an alert of the peer's
		errors.Is(err, nats.ErrTLS): // it closed the connection right after the handshake
		return "name a client certificate that the server accepts in nats.tls.cert and nats.tls.key"
	case errors.Is(err, nats.ErrSecureConnWanted):
		return "the server offers no TLS: leave nats.tls out and begin nats.url with nats://"
	}
	return ""
}
