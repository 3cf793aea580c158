package main

import (
	"crypto"
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
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// validity is how long each certificate is valid. Data directories are used for a much shorter time, so no certificate expires during a test.
const validity = 10 * 365 * 24 * time.Hour

// frontProxyName is the common name with which the API server authenticates when it forwards a request to an aggregated API server.
const frontProxyName = "front-proxy-client"

// pki names the files of a data directory's certificates and keys. All are PEM; keys are ECDSA P-256, mode 0600.
type pki struct {
	dir        string
	kubeconfig string
}

func (p pki) cert(name string) string { return filepath.Join(p.dir, name+".crt") }
func (p pki) key(name string) string  { return filepath.Join(p.dir, name+".key") }

// ensurePKI creates the certificates and keys in pki/, unless a complete set exists: clients' credentials must be valid after a restart. The
// set is ca (signs the server's and the clients' certificates), server, admin, front-proxy-ca, front-proxy, and sa.key, which signs service
// account tokens.
func (d *dataDir) ensurePKI() (pki, error) {
	p := pki{dir: d.path("pki"), kubeconfig: d.path("kubeconfig")}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return p, fmt.Errorf("make pki directory: %w", err)
	}
	// sa.key is written last, so it exists only in a complete set.
	if _, err := os.Stat(p.key("sa")); err == nil {
		return p, nil
	}
	if err := p.generate(); err != nil {
		return p, fmt.Errorf("make certificates: %w", err)
	}
	return p, nil
}

func (p pki) generate() error {
	ca, err := p.issue("ca", authority("kubebridge-test-ca"), nil)
	if err != nil {
		return err
	}
	proxyCA, err := p.issue("front-proxy-ca", authority("kubebridge-test-front-proxy-ca"), nil)
	if err != nil {
		return err
	}
	server := leaf(pkix.Name{CommonName: "kube-apiserver"}, x509.ExtKeyUsageServerAuth)
	server.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	// 10.0.0.1 is the address of the Service default/kubernetes, at which pods reach the API server.
	server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.IPv4(10, 0, 0, 1)}
	admin := leaf(pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}, x509.ExtKeyUsageClientAuth)
	proxy := leaf(pkix.Name{CommonName: frontProxyName}, x509.ExtKeyUsageClientAuth)
	for _, c := range []struct {
		name     string
		template *x509.Certificate
		issuer   *issued
	}{{"server", server, ca}, {"admin", admin, ca}, {"front-proxy", proxy, proxyCA}} {
		if _, err := p.issue(c.name, c.template, c.issuer); err != nil {
			return err
		}
	}
	_, err = p.newKey("sa")
	return err
}

// writeKubeconfig writes the admin's kubeconfig (mode 0600, certificates embedded) for the API server at url.
func (p pki) writeKubeconfig(url string) error {
	var data [3][]byte
	for i, file := range []string{p.cert("ca"), p.cert("admin"), p.key("admin")} {
		var err error
		if data[i], err = os.ReadFile(file); err != nil {
			return fmt.Errorf("write kubeconfig: %w", err)
		}
	}
	cfg := api.NewConfig()
	cfg.Clusters["test"] = &api.Cluster{Server: url, CertificateAuthorityData: data[0]}
	cfg.AuthInfos["admin"] = &api.AuthInfo{ClientCertificateData: data[1], ClientKeyData: data[2]}
	cfg.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: "admin"}
	cfg.CurrentContext = "test"
	if err := clientcmd.WriteToFile(*cfg, p.kubeconfig); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// issued is a certificate with its key.
type issued struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// issue writes NAME.crt and NAME.key for template, signed by issuer, or self-signed if issuer is nil.
func (p pki) issue(name string, template *x509.Certificate, issuer *issued) (*issued, error) {
	key, err := p.newKey(name)
	if err != nil {
		return nil, err
	}
	if issuer == nil {
		issuer = &issued{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.cert, key.Public(), issuer.key)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", name, err)
	}
	return &issued{cert, key}, writePEM(p.cert(name), "CERTIFICATE", der)
}

func (p pki) newKey(name string) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key %s: %w", name, err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("make key %s: %w", name, err)
	}
	return key, writePEM(p.key(name), "EC PRIVATE KEY", der)
}

func writePEM(file, kind string, der []byte) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(pem.Encode(f, &pem.Block{Type: kind, Bytes: der}), f.Close())
}

func authority(name string) *x509.Certificate {
	c := leaf(pkix.Name{CommonName: name})
	c.IsCA = true
	c.KeyUsage |= x509.KeyUsageCertSign
	return c
}

// leaf returns a template of a certificate that is valid from an hour ago, in case a clock is set back.
func leaf(subject pkix.Name, usage ...x509.ExtKeyUsage) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               subject,
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           usage,
		BasicConstraintsValid: true,
	}
}
