package feed

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// streams is the number of concurrent requests that kube-apiserver allows on one
// HTTP/2 connection.
const streams = 100

// Listen serves over TLS and HTTP/2 on a free port of this machine until ctx is
// cancelled. It passes a kubeconfig for the server, and the base URL, to ready.
func (s *Server) Listen(ctx context.Context, ready func(kubeconfig []byte, url string) error) error {
	cert, authority, err := certificate()
	if err != nil {
		return fmt.Errorf("make a certificate: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: s, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13},
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: streams}, ReadHeaderTimeout: time.Minute,
	}
	url := "https://" + listener.Addr().String()
	config, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: "bench",
		Clusters:       map[string]*clientcmdapi.Cluster{"bench": {Server: url, CertificateAuthorityData: authority}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"bench": {Token: "bench"}},
		Contexts:       map[string]*clientcmdapi.Context{"bench": {Cluster: "bench", AuthInfo: "bench"}},
	})
	if err == nil {
		err = ready(config, url)
	}
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ServeTLS(listener, "", ""); ctx.Err() == nil {
		return fmt.Errorf("serve the API: %w", err)
	}
	return nil
}

func certificate() (cert tls.Certificate, authority []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, nil, err
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return cert, nil, err
	}
	authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, authority, nil
}
