package auth

import (
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/kubebridge/kubebridge/internal/base/httpserver"
)

// Certificates knows the users of client certificates: the common name and, as groups, the organizations. It checks a
// certificate for each request, because a connection lasts longer than it. Any goroutine may use it.
type Certificates struct {
	path string
	log  *zap.Logger
	last atomic.Pointer[x509.CertPool]
	now  func() time.Time
}

// NewCertificates reads the CAs, in PEM, as it does for each request. While the file cannot be read, the last valid one
// counts.
func NewCertificates(path string, log *zap.Logger) (*Certificates, error) {
	c := &Certificates{path: path, log: log, now: time.Now}
	pool, err := httpserver.ReadCAs(path)
	c.last.Store(pool)
	return c, err
}

// User returns the user of a chain of certificates, as the client has sent it; nil if it has no common name.
func (c *Certificates) User(chain []*x509.Certificate) (*User, error) {
	pool, err := httpserver.ReadCAs(c.path)
	if err != nil {
		c.log.Debug("CA of client certificates not read, keeping the previous one", zap.Error(err))
		pool = c.last.Load()
	} else {
		c.last.Store(pool)
	}
	between := x509.NewCertPool()
	for _, other := range chain[1:] {
		between.AddCert(other)
	}
	_, err = chain[0].Verify(x509.VerifyOptions{
		Roots: pool, Intermediates: between, CurrentTime: c.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, errUnknown
	}
	name := chain[0].Subject
	if name.CommonName == "" {
		return nil, nil
	}
	id := fmt.Sprintf("X509SHA256=%x", sha256.Sum256(chain[0].Raw)) // as the API server identifies it
	extra := map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/credential-id": {id}}
	info := authenticationv1.UserInfo{Username: name.CommonName, Groups: slices.Clone(name.Organization), Extra: extra}
	return (&User{UserInfo: info}).complete(), nil
}
