package clustertest

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// childEnv makes the test binary a program that launches a cluster, says where, and waits to be killed.
const childEnv = "CLUSTERTEST_LAUNCH_IN"

// shared is the cluster of all tests that leave it running. Each works in a namespace of its own.
var shared *Cluster

func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	dir := os.Getenv(childEnv)
	c, err := Launch(ctx, Options{DataDir: dir})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if dir != "" {
		fmt.Println(c.ReadyLine())
		<-ctx.Done()
		os.Exit(1)
	}
	shared = c
	code := m.Run()
	if err := c.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// clientFor is a typed client for a kubeconfig.
func clientFor(t *testing.T, kubeconfig string) *kubernetes.Clientset {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// namespace makes a namespace for t in c, and deletes it afterwards.
func namespace(t *testing.T, c *Cluster) string {
	t.Helper()
	ns, err := clientFor(t, c.Kubeconfig()).CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.DeleteNamespace(context.Background(), ns.Name); err != nil {
			t.Error(err)
		}
	})
	return ns.Name
}

// eventually polls done until it holds, for a minute at most.
func eventually(t *testing.T, what string, done func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, done); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
