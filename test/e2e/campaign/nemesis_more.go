package campaign

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// restoreEtcd makes a backup of etcd, lets the workload continue, and restores the backup. The writes in between are undone, and their
// resourceVersions are assigned a second time. Writes of backUp move etcd's counter so far ahead before the bridge reads anything else that
// it probes the API server before the counter reaches that value again. In every second restore, the bridge does not reach the API server until
// further writes have passed that value: then only the newest objects show the restore.
func (n *nemesis) restoreEtcd(ctx context.Context, r *chance) error {
	dir := filepath.Join(n.dir, "backup")
	restored, err := n.backUp(ctx, dir)
	if err != nil {
		return err
	}
	select {
	case <-time.After(500*time.Millisecond + time.Duration(r.Int64N(int64(1500*time.Millisecond)))):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	overtaken := r.IntN(2) == 0
	n.load.pause.Lock()
	defer n.load.pause.Unlock()
	n.cluster.Kill()
	if overtaken {
		n.api.Refuse()
		defer n.api.Pass()
	}
	if err := n.cluster.RestoreEtcd(dir); err != nil {
		return err
	}
	restored(time.Now())
	if err := n.cluster.Restart(ctx); err != nil || !overtaken {
		return err
	}
	return n.count(ctx, 2*ahead)
}

// ahead is by how many writes the writes of backUp move etcd's counter ahead. It is more than the workload makes before the restore.
const ahead = 3000

// backUp makes a backup of etcd and of what the workload knows, at the same time. The bridge does not reach the API server between the backup and
// the end of the writes that move etcd's counter ahead. Call the returned function with the time at which the
// backup was restored.
func (n *nemesis) backUp(ctx context.Context, dir string) (func(time.Time), error) {
	n.load.pause.Lock()
	defer n.load.pause.Unlock()
	n.cluster.Kill()
	n.api.Refuse()
	defer n.api.Pass()
	if err := n.cluster.SaveEtcd(dir); err != nil {
		return nil, err
	}
	if err := n.cluster.Restart(ctx); err != nil {
		return nil, err
	}
	restored := n.load.backup()
	if n.gadgets == nil {
		return restored, n.count(ctx, ahead)
	}
	saved := n.gadgets.truth.backup()
	return func(back time.Time) {
		restored(back)
		n.gadgets.truth.restored(saved, back)
	}, n.count(ctx, ahead)
}

// count increases etcd's revision counter by making writes.
func (n *nemesis) count(ctx context.Context, writes int) error {
	body, err := json.Marshal(map[string]any{"key": []byte("/kubebridge/count")})
	if err != nil {
		return err
	}
	client := &http.Client{}
	defer client.CloseIdleConnections()
	const clients = 16
	g, ctx := errgroup.WithContext(ctx)
	for range clients {
		g.Go(func() error {
			for range writes / clients {
				if err := post(ctx, client, n.cluster.EtcdURL()+"/v3/kv/put", body); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func post(ctx context.Context, client *http.Client, url string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	said, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, res.Status, said)
	}
	return err
}

// askResync requests a resync of a resource, if the bridge is running.
func (n *nemesis) askResync(ctx context.Context, r *chance, i int) error {
	t := n.types[r.IntN(len(n.types))]
	path := n.socket(slices.Index(n.processes, n.current[i]))
	return ignoreAway(askAdmin(ctx, path, "/resync?resource="+url.QueryEscape(t.ResourceID())))
}

// askAdmin sends a command to a bridge's admin socket.
func askAdmin(ctx context.Context, path, command string) error {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	return post(ctx, client, "http://bridge"+command, nil)
}

// withoutOne removes a resource from the configuration for a time. The running bridge must notice that.
func (n *nemesis) withoutOne(ctx context.Context, r *chance) error {
	i := r.IntN(len(n.types)) // the entries of these types come first in the configuration
	n.taken[n.types[i].ResourceID()] = true
	without := func() error {
		less := n.wanted
		less.Resources = slices.Delete(slices.Clone(less.Resources), i, i+1)
		return n.configure(less)
	}
	for _, c := range []func() error{without, func() error { return n.configure(n.wanted) }} {
		n.mu.Lock()
		err := c()
		n.reload()
		n.mu.Unlock()
		if err != nil {
			return err
		}
		r.wait(ctx, 2*time.Second)
	}
	return nil
}
