package httpserver

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync/atomic"

	"github.com/kubebridge/kubebridge/internal/base/textfile"
)

// TLS are the files of a server's certificates. They are read for every connection, so new ones are used from the next connection on.
// While certificate and key do not match, or a file cannot be read, the last valid ones stay in use.
type TLS struct {
	Cert, Key string // PEM files
	// ClientCA is a PEM file with the CAs of client certificates, which Auth asks for. "": they are not asked for.
	ClientCA  string
	Auth      tls.ClientAuthType
	Protocols []string
	// Kept is called for each connection that uses the last valid files, with the reason.
	Kept func(error)
}

// Config reads the files for the first time.
func (t TLS) Config() (*tls.Config, error) {
	var last atomic.Pointer[tls.Config]
	read := func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := t.read()
		if err != nil {
			if known := last.Load(); known != nil {
				t.Kept(err)
				return known, nil
			}
			return nil, err
		}
		last.Store(c)
		return c, nil
	}
	if _, err := read(nil); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: read, NextProtos: t.Protocols}, nil
}

func (t TLS) read() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", t.Cert, t.Key, err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: t.Protocols}
	if t.ClientCA != "" {
		c.ClientAuth = t.Auth
		c.ClientCAs, err = ReadCAs(t.ClientCA)
	}
	return c, err
}

// ReadCAs reads the CAs of client certificates.
func ReadCAs(path string) (*x509.CertPool, error) {
	pool, err := textfile.CAs(path)
	if err != nil {
		return nil, fmt.Errorf("CA of client certificates: %w", err)
	}
	return pool, nil
}
