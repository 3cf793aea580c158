package e2e

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/kubebridge/kubebridge/internal/base/hashkey"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// Replicas that start at the same time put one key into an empty Secret, and all of them use it.
func TestHashKeyIsMadeOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	_, err := w.kube.Create(w.soon(), kube.Secrets, "key", kube.Fields{})
	w.must(err)
	secret := hashkey.Secret{Client: w.cluster.RESTConfig(), Namespace: w.ns, Name: "key", Log: zap.NewNop()}
	if key, err := secret.Find(w.soon()); err != nil || key != nil {
		t.Fatalf("an empty Secret has the key %x, error %v", key, err)
	}
	keys := make([][]byte, 8)
	var group errgroup.Group
	for i := range keys {
		group.Go(func() (err error) {
			keys[i], err = secret.Key(w.soon())
			return err
		})
	}
	w.must(group.Wait())
	found, err := secret.Find(w.soon())
	w.must(err)
	if len(found) != 32 {
		t.Errorf("the Secret has a key of %d bytes", len(found))
	}
	for i, key := range keys {
		if !bytes.Equal(key, found) {
			t.Errorf("process %d has the key %x, the Secret %x", i, key, found)
		}
	}
}

// If the key cannot be read or is invalid, the bridge ends with an error that names the remedy. It never hashes with another key.
func TestHashKeyCannotBeHad(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.Secrets}})
	w.config.Secrets = map[string]any{"hashKeySecret": w.ns + "/key"}
	refused := func(words ...string) {
		t.Helper()
		for _, args := range [][]string{{"run"}, {"validate", "--connect"}} {
			p := w.launch(append(args, "-c", w.writeConfig(w.config))...)
			w.exits(p, exitEnvironment)
			says(t, p.Log()+p.Output(), words...)
		}
	}
	refused("there is no Secret "+w.ns+"/key", "make an empty one")
	_, err := w.kube.Create(w.soon(), kube.Secrets, "key", kube.Fields{"stringData": map[string]any{hashkey.Entry: "short"}})
	w.must(err)
	refused("secrets.hashKeySecret "+w.ns+"/key", `entry "key" has 5 bytes`, "at least 16 random ones")

	long := base64.StdEncoding.EncodeToString([]byte("sixteen bytes or more"))
	_, err = w.kube.Patch(w.soon(), kube.Secrets, "key", fmt.Sprintf(`{"data":{%q:%q}}`, hashkey.Entry, long))
	w.must(err)
	w.start()
	w.settle(kube.Secrets)
	w.stop()
}
