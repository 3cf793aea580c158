package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
)

// cluster is shared by all tests that do not stop it.
var cluster *clustertest.Cluster

func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, m)
	stop()
	if err == nil && code == 0 {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(ctx context.Context, m *testing.M) (code int, err error) {
	if cluster, err = clustertest.Launch(ctx, clustertest.Options{}); err != nil {
		return 1, err
	}
	code = m.Run()
	return code, cluster.Close()
}

// within is a context for everything that a test does.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func clientOf(t *testing.T, c *clustertest.Cluster) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// namespace makes a namespace of the test's own.
func namespace(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "library-"}}
	ns, err := client.CoreV1().Namespaces().Create(within(t), ns, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// A copy of the example must compile and work.
func TestProgramPrintsChanges(t *testing.T) {
	ctx, client := within(t), clientOf(t, cluster)
	ns := namespace(t, client)
	binary := filepath.Join(t.TempDir(), "library")
	if text, err := exec.CommandContext(ctx, "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	configMaps := client.CoreV1().ConfigMaps(ns)
	create := func(name string) *corev1.ConfigMap {
		t.Helper()
		c, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	before := create("before")

	program := exec.CommandContext(ctx, binary, "cm", "deployments.apps")
	program.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig())
	var complaints strings.Builder
	program.Stderr = &complaints
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var seen []string
	await := func(want string) {
		t.Helper()
		for lines.Scan() { // the context ends the program, and so its output
			if seen = append(seen, lines.Text()); lines.Text() == want {
				return
			}
		}
		t.Fatalf("never saw %q in\n%s\n%s", want, strings.Join(seen, "\n"), complaints.String())
	}
	line := func(kind string, c *corev1.ConfigMap) string {
		return fmt.Sprintf("%s v1 ConfigMap %s %s %s", kind, ns, c.Name, c.ResourceVersion)
	}
	await(line("listed", before))
	during := create("during")
	await(line("added", during))
	during.Data = map[string]string{"a": "b"}
	if during, err = configMaps.Update(ctx, during, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(line("modified", during))
	if err := configMaps.Delete(ctx, "before", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "deleted v1 ConfigMap "+ns+" before ") {
	}
	if err := program.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
	}
	if err := program.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, complaints.String())
	}
	for _, name := range []string{"cm", "deployments.apps"} {
		if want := name + ": context canceled"; !strings.Contains(complaints.String(), want) {
			t.Errorf("%q is not in %s", want, complaints.String())
		}
	}
}

// A program that only watches must not depend on Kafka, NATS or a database, and a program that only reads events must not
// depend on a Kubernetes client.
func TestDependencies(t *testing.T) {
	const module = "github.com/kubebridge/kubebridge"
	buses := []string{
		"github.com/twmb/franz-go", "github.com/segmentio/kafka-go", "github.com/nats-io", "github.com/cockroachdb/pebble",
		module + "/pkg/sink", module + "/pkg/checkpoint", module + "/internal",
	}
	for _, x := range []struct {
		pkg, has string
		not      []string
	}{
		{".", module + "/pkg/source", buses},
		{module + "/pkg/event", "sigs.k8s.io/json", append([]string{"k8s.io"}, buses...)},
	} {
		out, err := exec.CommandContext(within(t), "go", "list", "-deps", x.pkg).Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("%v\n%s", err, exit.Stderr)
		} else if err != nil {
			t.Fatal(err)
		}
		deps := strings.Fields(string(out))
		if !slices.Contains(deps, x.has) {
			t.Errorf("%s does not even depend on %s: %d packages", x.pkg, x.has, len(deps))
		}
		for _, dep := range deps {
			if dep == module+"/internal/base/scan" { // it knows no bus
				continue
			}
			if slices.ContainsFunc(x.not, func(not string) bool { return dep == not || strings.HasPrefix(dep, not+"/") }) {
				t.Errorf("%s depends on %s", x.pkg, dep)
			}
		}
	}
}
