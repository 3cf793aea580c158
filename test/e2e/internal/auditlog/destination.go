package auditlog

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// File is a log for one bridge. Its zero value is not usable: Path is required.
type File struct {
	Path string

	mu sync.Mutex
}

// Send appends lines.
func (f *File) Send(_ context.Context, lines [][]byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	out, err := os.OpenFile(f.Path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = out.Write(bytes.Join(lines, nil))
	return errors.Join(err, out.Close())
}

// Rotate renames the file as kube-apiserver does. The next lines begin another one.
func (f *File) Rotate() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := os.Rename(f.Path, strings.TrimSuffix(f.Path, ".log")+time.Now().UTC().Format("-2006-01-02T15-04-05.000")+".log")
	if errors.Is(err, os.ErrNotExist) { // nothing was written yet
		return nil
	}
	return err
}

// Webhook sends batches to the audit webhooks of the replicas of a bridge, of which one accepts them.
type Webhook struct {
	addresses []string
	token     string
	client    *http.Client
	last      int // index of the one that has accepted the last batch
}

// NewWebhook returns a client of webhooks at the addresses, which take this token. It gives up a request after five seconds: the bridge may be
// stopped.
func NewWebhook(token string, addresses ...string) *Webhook {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true} // a test checks the bridge's certificate elsewhere
	return &Webhook{addresses: addresses, token: token, client: &http.Client{Transport: transport, Timeout: 5 * time.Second}}
}

// Send sends lines as one batch.
func (w *Webhook) Send(ctx context.Context, lines [][]byte) error {
	list := struct {
		Kind       string            `json:"kind"`
		APIVersion string            `json:"apiVersion"`
		Items      []json.RawMessage `json:"items"`
	}{Kind: "EventList", APIVersion: "audit.k8s.io/v1"}
	for _, line := range lines {
		list.Items = append(list.Items, line)
	}
	body, err := json.Marshal(list)
	if err != nil {
		return err
	}
	for range w.addresses {
		if err = w.post(ctx, w.addresses[w.last], body); err == nil {
			return nil
		}
		w.last = (w.last + 1) % len(w.addresses)
	}
	return err
}

func (w *Webhook) post(ctx context.Context, address string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+"/audit", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+w.token)
	res, err := w.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the webhook at %s answered %s", address, res.Status)
	}
	return nil
}
