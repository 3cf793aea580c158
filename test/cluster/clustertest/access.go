package clustertest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// credentialLife is how long a user's certificate or a service account's token is good: longer than any test.
const credentialLife = 24 * time.Hour

// KubeconfigFor writes a kubeconfig for a user known by a client certificate and returns its path. The user may do what
// RBAC grants to it or to its groups, at first nothing but discovery. A second call for the same user overwrites the file;
// a certificate given out earlier stays good.
func (c *Cluster) KubeconfigFor(user string, groups ...string) (string, error) {
	cert, key, err := c.sign(pkix.Name{CommonName: user, Organization: groups})
	if err != nil {
		return "", fmt.Errorf("make certificate for user %s: %w", user, err)
	}
	return c.writeKubeconfig(user, &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
}

// KubeconfigForServiceAccount makes the service account if it does not exist (the namespace must), requests a token for it
// and writes a kubeconfig that uses it. It returns the file's path. The token is good for a day, or until the account is
// deleted.
func (c *Cluster) KubeconfigForServiceAccount(ctx context.Context, namespace, name string) (string, error) {
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return "", fmt.Errorf("token for service account %s/%s: %w", namespace, name, err)
	}
	accounts := client.CoreV1().ServiceAccounts(namespace)
	_, err = accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("create service account %s/%s: %w", namespace, name, err)
	}
	seconds := int64(credentialLife / time.Second)
	token, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token for service account %s/%s: %w", namespace, name, err)
	}
	return c.writeKubeconfig("system:serviceaccount:"+namespace+":"+name, &api.AuthInfo{Token: token.Status.Token})
}

func (c *Cluster) writeKubeconfig(user string, auth *api.AuthInfo) (string, error) {
	dir := filepath.Join(c.opts.DataDir, "users")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	cfg := api.NewConfig()
	cfg.Clusters["test"] = &api.Cluster{Server: c.config.Host, CertificateAuthorityData: c.config.CAData}
	cfg.AuthInfos["user"] = auth
	cfg.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: "user"}
	cfg.CurrentContext = "test"
	path := filepath.Join(dir, url.PathEscape(user)+".kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	return path, nil
}

// sign makes a client certificate with the cluster's CA, whose key lies in the data directory; both results are PEM.
func (c *Cluster) sign(subject pkix.Name) (certPEM, keyPEM []byte, err error) {
	pki := filepath.Join(c.opts.DataDir, "pki")
	ca, err := tls.LoadX509KeyPair(filepath.Join(pki, "ca.crt"), filepath.Join(pki, "ca.key"))
	if err != nil {
		return nil, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(credentialLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), nil
}
