package clustertest

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// After a crash of the API server, clients must find the same objects at the same address with the same credentials.
func TestKillAndRestart(t *testing.T) {
	ctx, c := t.Context(), Start(t, Options{EventTTL: time.Minute, ExtraArgs: []string{"--watch-cache=false"}})
	ns := namespace(t, c)
	user, err := c.KubeconfigFor("bob")
	if err != nil {
		t.Fatal(err)
	}
	account, err := c.KubeconfigForServiceAccount(ctx, ns, "bridge")
	if err != nil {
		t.Fatal(err)
	}
	core := clientFor(t, c.Kubeconfig()).CoreV1()
	created, err := core.ConfigMaps(ns).Create(ctx, configMap("kept"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	line := c.ReadyLine()

	c.Kill()
	refusesConnections(t, c)
	if err := c.Pause(); err == nil {
		t.Error("a killed cluster was paused")
	}
	if err := c.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if c.ReadyLine() != line {
		t.Errorf("after the restart %q, before %q", c.ReadyLine(), line)
	}
	kept, err := core.ConfigMaps(ns).Get(ctx, "kept", metav1.GetOptions{})
	if err != nil || kept.UID != created.UID || kept.ResourceVersion != created.ResourceVersion {
		t.Errorf("config map %s at %s, %v; want %s at %s", kept.UID, kept.ResourceVersion, err, created.UID, created.ResourceVersion)
	}
	if got := whoami(t, clientFor(t, user)); got != "bob" {
		t.Errorf("user %q, want bob", got)
	}
	if got, want := whoami(t, clientFor(t, account)), "system:serviceaccount:"+ns+":bridge"; got != want {
		t.Errorf("user %q, want %q", got, want)
	}
}

// An etcd put back to an earlier state keeps the cluster's identity and gives its resourceVersions out again.
func TestSaveAndRestoreEtcd(t *testing.T) {
	ctx, c := t.Context(), Start(t, Options{})
	backup := filepath.Join(t.TempDir(), "etcd")
	if err := c.SaveEtcd(backup); err == nil {
		t.Error("a running etcd was saved")
	}
	core := clientFor(t, c.Kubeconfig()).CoreV1()
	before, err := core.Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Stop(), c.SaveEtcd(backup), c.Restart(ctx)); err != nil {
		t.Fatal(err)
	}
	late, err := core.ConfigMaps("default").Create(ctx, configMap("late"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Stop(), c.RestoreEtcd(backup), c.Restart(ctx)); err != nil {
		t.Fatal(err)
	}
	after, err := core.Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil || after.UID != before.UID {
		t.Errorf("kube-system's uid %q, %v; want %q", after.UID, err, before.UID)
	}
	if _, err := core.ConfigMaps("default").Get(ctx, "late", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("config map %s made after the backup: %v, want not found", late.UID, err)
	}
}

// A stop that waited for watches would take a minute each time.
func TestStopEndsOpenWatches(t *testing.T) {
	ctx, c := t.Context(), Start(t, Options{})
	w, err := clientFor(t, c.Kubeconfig()).CoreV1().ConfigMaps("").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	start := time.Now()
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("stopped after %s", took)
	}
	refusesConnections(t, c)
	if err := c.Stop(); err != nil {
		t.Errorf("second stop: %v", err)
	}
}

func TestPauseAndResume(t *testing.T) {
	ctx, c := t.Context(), Start(t, Options{})
	client := clientFor(t, c.Kubeconfig())
	if err := c.Pause(); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	if _, err := client.CoreV1().Namespaces().List(short, metav1.ListOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("paused cluster answered: %v", err)
	}
	if err := c.Resume(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("resumed cluster: %v", err)
	}
	// Stop has to wake what it stops.
	if err := errors.Join(c.Pause(), c.Stop()); err != nil {
		t.Error(err)
	}
}

func TestLaunchSaysWhatIsWrong(t *testing.T) {
	for name, tc := range map[string]struct {
		opts Options
		want string
	}{
		"unknown flag":   {Options{ExtraArgs: []string{"--no-such-flag=1"}}, "unknown flag: --no-such-flag"},
		"directory used": {Options{DataDir: shared.DataDir()}, "in use by another cluster"},
		"port used":      {Options{Port: port(t, shared)}, "cannot be used"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Launch(t.Context(), tc.opts)
			if err == nil {
				t.Fatal(errors.Join(errors.New("launched"), c.Close()))
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %q does not say %q", err, tc.want)
			}
		})
	}
}

// A test binary that is killed (a timeout, an impatient developer) must not leave API servers behind.
func TestDiesWithParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux signals a child that its parent died")
	}
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+t.TempDir())
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err := errors.Join(err, child.Process.Signal(syscall.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // "signal: killed"
	server, err := url.Parse(field(line, "server"))
	if err != nil || server.Host == "" {
		t.Fatalf("ready line %q: %v", line, err)
	}
	eventually(t, "see the cluster gone", func(context.Context) (bool, error) {
		return !accepts(server.Host), nil
	})
}

func accepts(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

func refusesConnections(t *testing.T, c *Cluster) {
	t.Helper()
	for _, u := range []string{c.Server(), c.EtcdURL()} {
		if accepts(u[strings.Index(u, "//")+2:]) {
			t.Errorf("%s accepts connections, want none", u)
		}
	}
}

func port(t *testing.T, c *Cluster) int {
	t.Helper()
	u, err := url.Parse(c.Server())
	if err != nil {
		t.Fatal(err)
	}
	n, err := net.LookupPort("tcp", u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func whoami(t *testing.T, client *kubernetes.Clientset) string {
	t.Helper()
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo.Username
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
