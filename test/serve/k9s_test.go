package serve

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
	"github.com/hinshun/vt10x"
	corev1 "k8s.io/api/core/v1"
)

// terminal is a k9s that runs in a terminal.
type terminal struct {
	w      *world
	screen vt10x.Terminal
	keys   *os.File
}

// k9s starts k9s with a kubeconfig, in the namespace.
func (w *world) k9s(kubeconfig string) *terminal {
	w.t.Helper()
	program := os.Getenv("K9S")
	if program == "" {
		w.t.Fatal("K9S is not set: run make serve-clients, which builds k9s")
	}
	dir := w.t.TempDir()
	w.must(os.WriteFile(filepath.Join(dir, "config.yaml"), []byte("k9s: {skipLatestRevCheck: true, disablePodCounting: true}\n"), 0o600))
	log := filepath.Join(dir, "k9s.log")
	cmd := exec.CommandContext(w.ctx, program, "--kubeconfig", kubeconfig, "-n", w.ns, "-c", "pods", "--splashless", "--logoless", "--crumbsless", "--logFile", log)
	cmd.Env = []string{"HOME=" + dir, "K9S_CONFIG_DIR=" + dir, "TERM=xterm-256color", "PATH=" + os.Getenv("PATH")}
	keys, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: 220})
	w.must(err)
	x := &terminal{w, vt10x.New(vt10x.WithSize(220, 50)), keys}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for from := bufio.NewReader(keys); x.screen.Parse(from) == nil; { // an error: it has ended
			continue
		}
	}()
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		<-done
		_ = keys.Close()
		if w.t.Failed() {
			text, _ := os.ReadFile(log)
			w.t.Logf("k9s shows\n%s\nand has logged\n%s", x.screen, text)
		}
	})
	return x
}

// kubeconfig writes a kubeconfig for `bridge serve`. user is empty, or has a token.
func (w *world) kubeconfig(server, ca, user string) string {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "kubeconfig")
	w.must(os.WriteFile(path, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: mirror, clusters: [{name: mirror, cluster: {server: %q, certificate-authority: %q}}],
  contexts: [{name: mirror, context: {cluster: mirror, user: user}}], users: [{name: user, user: {%s}}]}`, server, ca, user), 0o600))
	return path
}

// press sends keys.
func (x *terminal) press(keys string) {
	x.w.t.Helper()
	_, err := x.keys.WriteString(keys)
	x.w.must(err)
}

// rows returns what is in the frame, without ages and the widths of columns.
func (x *terminal) rows() string {
	var rows []string
	for line := range strings.Lines(x.screen.String()) {
		_, row, ok := strings.Cut(line, "│")
		row = strings.Trim(spaces.ReplaceAllString(ages.ReplaceAllString(row, "AGE"), " "), "│ \n")
		if ok && row != "" {
			rows = append(rows, row)
		}
	}
	return strings.Join(rows, "\n")
}

// shows waits until the screen has all texts.
func (x *terminal) shows(texts ...string) {
	x.w.t.Helper()
	x.w.eventually(fmt.Sprintf("k9s shows %q", texts), func() string {
		screen := x.screen.String()
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return "it shows\n" + screen
			}
		}
		return ""
	})
}

// sameRows waits until k9s shows the same of the API server and of `bridge serve`, with a row.
func (w *world) sameRows(real, served *terminal, what, row string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("k9s shows the same of %s (-API server +bridge serve)", what), func() string {
		want := real.rows()
		if !strings.Contains("\n"+want, "\n"+row) {
			return fmt.Sprintf("of the API server it lacks %q:\n%s", row, want)
		}
		return cmp.Diff(want, served.rows())
	})
}

// A user of k9s who may read the pods of one namespace sees them, and nothing else.
func TestK9sAuth(t *testing.T) {
	w := newWorld(t)
	w.furnish()
	w.ready()
	kubeconfig, token := w.reader()
	address, cert := w.serveUsers()
	w.must(buildKubectl())
	reader := &kubectlAt{w, []string{"--kubeconfig", w.kubeconfig(address, cert, "token: "+token)}, t.TempDir()}
	w.eventually("the reader is known", func() string {
		out, errs, _ := reader.run("get", "pods")
		if !strings.Contains(out, "Running") {
			return errs
		}
		return ""
	})
	real, served := w.k9s(kubeconfig), w.k9s(reader.flags[1])
	w.sameRows(real, served, "pods", "a ● 1/1 Running 0 10.2.0.1 node-1")
	served.press("\x0b") // kill, which the user may do in the cluster
	served.shows(`(delete) access denied for user on resource "a":v1/pods`)
	for _, x := range []*terminal{real, served} {
		x.press(":configmaps\r")
		x.shows("access denied")
	}
	w.setPod("d", "10.2.0.4", corev1.PodRunning)
	for _, x := range []*terminal{real, served} {
		x.press(":pods\r")
	}
	w.sameRows(real, served, "pods after a change", "d ● 1/1 Running 0 10.2.0.4")
}

// A user of k9s sees at `bridge serve` what k9s shows of the API server, also when it changes and after `bridge serve` was killed, and cannot
// write. At a time of the past k9s shows what was there then.
func TestK9s(t *testing.T) {
	w := newWorld(t)
	w.furnish()
	w.furnishTargets()
	w.ready()
	began := time.Now().UTC().Format(time.RFC3339Nano)
	real, served := w.k9s(cluster.Kubeconfig()), w.k9s(w.kubeconfig(w.url, "", ""))
	same := func(what, row string) { t.Helper(); w.sameRows(real, served, what, row) }
	same("pods", "a ● 1/1 Running 0 10.2.0.1 node-1")
	for _, x := range []struct{ keys, row string }{
		{"widgets", "a red 0 top"},
		{"deployments", "shop 0/2 0 0 AGE"},
		{"configmaps", "a 1 AGE"},
		{"nodes", "node-1 Ready"},
		{"services", "shop ClusterIP"},
		{"ingresses", "shop "},
		{"events", "AGE Normal Pulled"},
		{"namespaces", w.ns},
		{"customresourcedefinitions", "widgets shop.example.com Widget v1 Namespaced"},
		{"pods", "a ● 1/1 Running"},
	} {
		real.press(":" + x.keys + "\r")
		served.press(":" + x.keys + "\r")
		same(x.keys, x.row)
	}
	for keys, row := range map[string]string{"d": "Node: node-1/10.1.0.1", "y": "apiVersion: v1"} {
		real.press(keys)
		served.press(keys)
		same("a pod behind the key "+keys, row)
		real.press("\x1b")
		served.press("\x1b")
		same("pods", "a ● 1/1 Running")
	}
	served.press("\x0b") // kill
	served.shows(`(delete) access denied for user on resource "a":v1/pods`)

	w.setPod("d", "10.2.0.4", corev1.PodRunning)
	w.remove("pods/c")
	same("pods after changes", "d ● 1/1 Running 0 10.2.0.4")
	w.kill()
	w.createPod("late", "node-1", nil)
	w.restart()
	same("pods after bridge serve was killed", "late ● 0/1 Pending")
	w.eventually("the time is known", func() string {
		a, err := http.Get(w.url + "/at/" + began + "/api")
		if err != nil {
			return err.Error()
		}
		a.Body.Close()
		if a.StatusCode == http.StatusGatewayTimeout {
			return a.Status
		}
		return ""
	})
	past := w.k9s(w.kubeconfig(w.url+"/at/"+began, "", ""))
	past.shows("10.2.0.3", "Pending")
	if rows := past.rows(); strings.Contains(rows, "late") || strings.Contains(rows, "10.2.0.4") {
		t.Errorf("at %s k9s shows\n%s", began, rows)
	}
}
