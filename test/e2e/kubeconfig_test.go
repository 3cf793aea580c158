package e2e

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
)

// inPod runs the arguments behind a directory as they would run in a pod: the directory is that of the service account.
const inPod = `set -e
mkdir -p /run/secrets
mount -t tmpfs tmpfs /run/secrets
mkdir -p /run/secrets/kubernetes.io
cp -r "$1" /run/secrets/kubernetes.io/serviceaccount
shift
exec "$@"`

// serviceAccount writes what a pod of the namespace finds of a service account, and returns the directory.
func (w *world) serviceAccount() string {
	w.t.Helper()
	token, _ := w.token()
	dir := filepath.Join(w.dir, "serviceaccount")
	w.must(os.Mkdir(dir, 0o700))
	for name, text := range map[string][]byte{"token": []byte(token), "ca.crt": w.cluster.RESTConfig().CAData, "namespace": []byte(w.ns)} {
		w.must(os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	return dir
}

// A kubeconfig that somebody names never leads to the cluster of the pod: the bridge would stream that cluster instead, and a
// restore would write to it.
func TestNamedKubeconfigInPod(t *testing.T) {
	t.Parallel()
	if err := exec.CommandContext(t.Context(), "unshare", "-rm", "true").Run(); err != nil {
		t.Skipf("no mount namespaces: %v", err)
	}
	w := newWorld(t, options{})
	account := "system:serviceaccount:" + w.ns + ":bridge"
	w.allow(account, "namespaces", "get", "list", "watch")
	files := w.serviceAccount()
	server, err := url.Parse(w.cluster.Server())
	w.must(err)
	bus := filepath.Join(w.dir, "bridge.yaml")
	w.must(os.WriteFile(bus, []byte("cluster: here\nresources: [namespaces]\ncheckpoint: {file: {path: "+w.dir+"/cp}}\nsinks: [{name: out, nats: {url: \"nats://"+w.nats.Addr()+"\"}}]\n"), 0o600))
	write := func(name, text string) string {
		path := filepath.Join(w.dir, name)
		w.must(os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	const remote = `{apiVersion: v1, kind: Config, clusters: [{name: r, cluster: {server: "https://192.0.2.1:6443"}}], users: [{name: u, user: {token: t}}], `
	noContext := write("no-context", remote+`contexts: [{name: b, context: {cluster: r, user: u}}, {name: a, context: {cluster: r, user: u}}]}`)
	noCluster := write("no-cluster", remote+`contexts: [{name: a, context: {cluster: x, user: u}}], current-context: a}`)
	empty := write("empty", "")
	pod := func(kubeconfig string, args ...string) *bridge.Process {
		t.Helper()
		p, err := bridge.Start("unshare", append([]string{
			"-rm", "env", "KUBERNETES_SERVICE_HOST=" + server.Hostname(), "KUBERNETES_SERVICE_PORT=" + server.Port(),
			"HOME=" + w.dir, "KUBECONFIG=" + kubeconfig, "sh", "-c", inPod, "sh", files, binary,
		}, args...)...)
		w.must(err)
		t.Cleanup(p.Kill)
		return p
	}
	p := pod("", "validate", "--connect", "-c", bus)
	w.exits(p, 0) // the pod's own account works
	for _, c := range []struct{ file, why string }{
		{empty, empty + ": it is empty"},
		{noContext, noContext + ": it has no current-context (contexts: a, b): choose one with --context"},
		{noCluster, noCluster + `: context "a" is for the cluster "x", which is not in the file`},
	} {
		for _, args := range [][]string{
			{"validate", "--connect", "-c", bus},
			{"run", "-c", bus},
			{"run", "--dry-run", "-c", bus},
			{"tail", "namespaces"},
			{"state", "--at", "10m", "--apply", "--force", "-c", bus},
			{"estimate", "-c", bus},
		} {
			p := pod("", append(args, "--kubeconfig", c.file)...)
			w.exits(p, 2)
			says(t, p.Log()+p.Output(), c.why)
		}
		p := pod(c.file, "tail", "namespaces") // KUBECONFIG names it
		w.exits(p, 2)
		says(t, p.Log()+p.Output(), "KUBECONFIG ("+c.file+"): ")
	}
	missing := filepath.Join(w.dir, "missing")
	p = pod(missing, "tail", "namespaces")
	w.exits(p, 2)
	says(t, p.Log()+p.Output(), "KUBECONFIG ("+missing+"): there is no such file")
}
