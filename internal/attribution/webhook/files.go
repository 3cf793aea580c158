package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"

	"go.uber.org/zap"
)

// files makes the configuration of a connection of the files as they are.
type files struct {
	options Options
	last    atomic.Pointer[tls.Config]
}

func (f *files) config(*tls.ClientHelloInfo) (*tls.Config, error) {
	c, err := f.read()
	if err == nil {
		f.last.Store(c)
		return c, nil
	}
	if known := f.last.Load(); known != nil {
		f.options.Log.Warn("certificates of the audit webhook not read, keeping the previous ones", zap.Error(err))
		return known, nil
	}
	return nil, err
}

func (f *files) read() (*tls.Config, error) {
	o := &f.options
	pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", o.Cert, o.Key, err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: protocols()}
	if o.ClientCA == "" {
		return c, nil
	}
	text, err := os.ReadFile(o.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("CA of client certificates: %w", err)
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("CA of client certificates: %s has no certificate in PEM", o.ClientCA)
	}
	return c, nil
}
