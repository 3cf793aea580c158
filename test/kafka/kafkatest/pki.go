package kafkatest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

const (
	caPEM     = "ca.pem"
	serverPEM = "server.pem" // key and certificate
)

// ServerName is a name in the brokers' certificates, in addition to 127.0.0.1.
const ServerName = "kafka.test"

// pki is the CA of the brokers' and clients' certificates.
type pki struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newPKI(dir string) (*pki, error) {
	p := &pki{dir: dir}
	ca := template("kafkatest")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	cert, key, err := p.sign(ca)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, caPEM), cert, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("make certificate authority: %w", err)
	}
	server := template("broker")
	server.IPAddresses, server.DNSNames = []net.IP{net.IPv4(127, 0, 0, 1)}, []string{ServerName}
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if cert, key, err = p.sign(server); err == nil {
		err = os.WriteFile(filepath.Join(dir, serverPEM), bytes.Join([][]byte{key, cert}, nil), 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("make the brokers' certificate: %w", err)
	}
	return p, nil
}

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

// sign returns a new key and its certificate, in PEM. The first certificate that it signs becomes that of the CA.
func (p *pki) sign(t *x509.Certificate) (certPEM, keyPEM []byte, err error) {
	if t.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return nil, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if p.key == nil {
		p.cert, p.key = t, key
	}
	der, err := x509.CreateCertificate(rand.Reader, t, p.cert, &key.PublicKey, p.key)
	if err != nil {
		return nil, nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), nil
}

// CA returns the path of the CA certificate (PEM) of the brokers. The cluster must have TLS.
func (c *Cluster) CA() string { return filepath.Join(c.dir, caPEM) }

// Certificate makes a client's certificate and key (PEM) and returns their paths. The brokers know its owner as the user
// "CN=" + name. The cluster must have ClientCertificates.
func (c *Cluster) Certificate(name string) (certPath, keyPath string, err error) {
	if c.pki == nil {
		return "", "", errors.New("certify a client: the cluster has no TLS")
	}
	t := template(name)
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	cert, key, err := c.pki.sign(t)
	if err != nil {
		return "", "", fmt.Errorf("certify client %q: %w", name, err)
	}
	certPath, keyPath = filepath.Join(c.dir, name+".crt"), filepath.Join(c.dir, name+".key")
	return certPath, keyPath, errors.Join(os.WriteFile(certPath, cert, 0o600), os.WriteFile(keyPath, key, 0o600))
}

// Authority makes a CA that no cluster trusts, with its certificate (PEM) at path. It returns a function that makes a
// client's certificate and key in the same directory.
func Authority(t testing.TB, path string) (certify func(name string) (certPath, keyPath string)) {
	t.Helper()
	dir := t.TempDir()
	p, err := newPKI(dir)
	if err == nil {
		err = os.Rename(filepath.Join(dir, caPEM), path)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{dir: dir, pki: p}
	return func(name string) (string, string) {
		t.Helper()
		cert, key, err := c.Certificate(name)
		if err != nil {
			t.Fatal(err)
		}
		return cert, key
	}
}
