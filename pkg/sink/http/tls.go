package http

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	"github.com/kubebridge/kubebridge/internal/base/textfile"
)

// config returns the settings of connections.
func (t TLS) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		roots, err := textfile.CAs(t.CA)
		if err != nil {
			return nil, fmt.Errorf("tls.ca: %w", err)
		}
		c.RootCAs = roots
	}
	if t.Cert != "" {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
			if err != nil {
				return nil, fmt.Errorf("tls.cert: %w", err)
			}
			return &pair, nil
		}
	}
	return c, nil
}

// certificateError is returned if one side does not accept the other's certificate.
type certificateError struct {
	Err  error
	hint string
}

func (e *certificateError) Error() string { return e.Err.Error() + ": " + e.hint }
func (e *certificateError) Unwrap() error { return e.Err }

// explain adds the remedy to an error about a certificate.
func (t TLS) explain(err error) error {
	var (
		unverified *tls.CertificateVerificationError
		invalid    x509.CertificateInvalidError
		name       x509.HostnameError
		remote     *net.OpError
		hint       string
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		hint = "renew the server's certificate, and check this machine's clock"
	case errors.As(err, &name):
		hint = "set url to a host that the server's certificate names"
	case errors.As(err, &unverified):
		hint = "set tls.ca to a PEM file of the authority that signed the server's certificate"
	case !errors.As(err, &remote) || remote.Op != "remote error": // crypto/tls: an alert of the server's
		return err
	case t.Cert == "":
		hint = "if the server wants a client certificate, set tls.cert and tls.key"
	default:
		hint = fmt.Sprintf("check tls.cert (%s): who signed it, and until when it is valid", t.Cert)
	}
	return &certificateError{err, hint}
}
