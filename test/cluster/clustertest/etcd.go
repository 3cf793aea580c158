package clustertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
)

// Revision is etcd's current revision, the greatest resourceVersion handed out so far.
func (c *Cluster) Revision(ctx context.Context) (int64, error) {
	return c.etcd(ctx, "/v3/kv/range", map[string]any{"key": []byte{0}, "count_only": true})
}

// EtcdVersion is the version of the etcd server, such as "3.6.8".
func (c *Cluster) EtcdVersion(ctx context.Context) (string, error) {
	data, err := c.etcdRequest(ctx, http.MethodGet, "/version", nil)
	if err != nil {
		return "", err
	}
	var answer struct {
		Server string `json:"etcdserver"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return "", fmt.Errorf("etcd /version: read answer: %w", err)
	}
	return answer.Server, nil
}

// CompactEtcd makes etcd forget its history: resuming from a resourceVersion that was followed by at least one write is
// Gone. It writes a key of its own first and returns that write's revision, which is the one compacted at. Collections
// behind the API server's watch cache (all but core events, by default) go on being served from there.
func (c *Cluster) CompactEtcd(ctx context.Context) (int64, error) {
	rev, err := c.etcd(ctx, "/v3/kv/put", map[string]any{"key": []byte("/kubebridge/compaction")})
	if err != nil {
		return 0, err
	}
	return rev, c.CompactEtcdAt(ctx, rev)
}

// CompactEtcdAt makes etcd forget what was before rev. It returns when that is gone from disk too. A rev that is compacted
// already, or not yet reached, is an error.
func (c *Cluster) CompactEtcdAt(ctx context.Context, rev int64) error {
	_, err := c.etcd(ctx, "/v3/kv/compaction", map[string]any{"revision": strconv.FormatInt(rev, 10), "physical": true})
	return err
}

// etcd posts one request to etcd's JSON gateway and returns the revision in its answer's header.
func (c *Cluster) etcd(ctx context.Context, path string, request any) (int64, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return 0, fmt.Errorf("etcd %s: %w", path, err)
	}
	data, err := c.etcdRequest(ctx, http.MethodPost, path, body)
	if err != nil {
		return 0, err
	}
	var answer struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return 0, fmt.Errorf("etcd %s: read answer: %w", path, err)
	}
	return answer.Header.Revision, nil
}

// etcdRequest sends one request to etcd and returns the answer's body.
func (c *Cluster) etcdRequest(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.etcdURL+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("etcd %s: %w", path, err)
	}
	// One connection per call: an idle one would be a goroutine for leak detectors to find.
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("etcd %s: %w", path, err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("etcd %s: %w", path, err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("etcd %s: %s: %s", path, res.Status, data)
	}
	return data, nil
}

// SaveEtcd copies etcd's data to dir, which must not exist: a backup. The cluster must be down.
func (c *Cluster) SaveEtcd(dir string) error {
	return c.whileDown("save etcd", func(data string) error {
		return os.CopyFS(dir, os.DirFS(data))
	})
}

// RestoreEtcd puts back what SaveEtcd copied to dir. After Restart the cluster has the same identity and an older state,
// and gives out resourceVersions a second time for other things. The cluster must be down.
func (c *Cluster) RestoreEtcd(dir string) error {
	return c.whileDown("restore etcd", func(data string) error {
		return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(dir)))
	})
}

func (c *Cluster) whileDown(what string, do func(data string) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proc != nil {
		return fmt.Errorf("%s: the cluster is running, stop it first", what)
	}
	if err := do(filepath.Join(c.opts.DataDir, "etcd")); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
