package console

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/internal/base/terminal"
	"github.com/kubebridge/kubebridge/internal/base/textfile"
	"github.com/kubebridge/kubebridge/internal/operate/status"
)

// maxBytes is the largest accepted answer, enough for about 300,000 collections.
const maxBytes = 128 << 20

// timeout bounds how long a bridge may take to answer.
const timeout = 10 * time.Second

// Target is the address of a bridge's status, with certificates and token.
type Target struct {
	Address   string // host:port, also behind http:// or https://
	CA        string // PEM file; "": the system's
	Cert      string // PEM file of the bridge's certificate itself, instead of its CA
	Token     string
	TokenFile string // instead of Token
}

// Ask returns the status of a bridge, also as it was sent.
func (at *Target) Ask(ctx context.Context) (*status.Report, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	address := at.Address
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(address, "/")+"/api/status", nil)
	if err != nil {
		return nil, nil, err
	}
	token := at.Token
	if at.TokenFile != "" {
		text, err := textfile.Read(at.TokenFile)
		if err != nil {
			return nil, nil, fmt.Errorf("read the token: %w", err)
		}
		token = strings.TrimSpace(text)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	protocol, err := at.tls()
	if err != nil {
		return nil, nil, err
	}
	// No proxy is used: the bridge runs on this machine, or its port is forwarded to this machine.
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: protocol}}).Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxBytes))
	if err != nil {
		return nil, nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("it answers %s: %s", answer.Status, terminal.Cell(string(body[:min(len(body), 500)])))
	}
	var r status.Report
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, nil, fmt.Errorf("the answer is not the status of a bridge: %w", err)
	}
	return &r, body, nil
}

// tls returns the TLS configuration. With the bridge's own certificate it compares the certificate instead of host
// names, since on the bridge's machine the address is an IP address.
func (at *Target) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if at.CA != "" {
		roots, err := textfile.CAs(at.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = roots
	}
	if at.Cert == "" {
		return c, nil
	}
	text, err := os.ReadFile(at.Cert)
	if err != nil {
		return nil, err
	}
	own, rest := pem.Decode(text)
	for own != nil && own.Type != "CERTIFICATE" {
		own, rest = pem.Decode(rest)
	}
	if own == nil {
		return nil, fmt.Errorf("%s holds no certificate", at.Cert)
	}
	c.InsecureSkipVerify = true // VerifyConnection compares the certificate itself
	c.VerifyConnection = func(s tls.ConnectionState) error {
		if !bytes.Equal(s.PeerCertificates[0].Raw, own.Bytes) {
			return fmt.Errorf("the bridge's certificate is not the one in %s", at.Cert)
		}
		return nil
	}
	return c, nil
}
