package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/operate/admin"
)

// screen is a buffer for a standard stream. Several goroutines may read and write it.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// awaits waits until the screen shows part.
func (s *screen) awaits(t *testing.T, part string) {
	t.Helper()
	for end := time.Now().Add(patience); !strings.Contains(s.String(), part); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not say %q:\n%s", part, s)
		}
	}
}

// absentCluster writes a default kubeconfig whose server does not answer.
func absentCluster(t *testing.T) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, path, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: t}}]
current-context: c
`)
	t.Setenv("KUBECONFIG", path)
}

// start runs the bridge with a configuration until stop is called, which returns
// the exit code.
func start(t *testing.T, path string, args ...string) (log *screen, stop func() int) {
	t.Helper()
	return startWith(t, nil, path, args...)
}

// startWith is start with the SIGHUPs that the bridge gets.
func startWith(t *testing.T, hangUps <-chan os.Signal, path string, args ...string) (log *screen, stop func() int) {
	t.Helper()
	log = &screen{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() {
		done <- execute(ctx, append([]string{"run", "-c", path, "--status-listen", "off"}, args...), streams{out: log, err: log, in: strings.NewReader(""), hangUps: hangUps})
	}()
	stop = sync.OnceValue(func() int {
		cancel()
		return <-done
	})
	t.Cleanup(func() { stop() })
	return log, stop
}

// A bridge that still waits for its cluster reloads its configuration and accepts commands.
func TestRunReloadsAndTakesCommands(t *testing.T) {
	absentCluster(t)
	path, checkpoints := configFile(t)
	hangUps := make(chan os.Signal)
	log, stop := startWith(t, hangUps, path)
	log.awaits(t, "waiting for the API server")

	command(t, "resync", "widgets.example.com", "-c", path).failed(t, exitRuntime, "does not know its cluster yet")
	command(t, "resync", "pods", "--sink", "nope", "--socket", filepath.Join(checkpoints, "admin.sock")).failed(t, exitRuntime, "does not know its cluster yet")

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "[pods,", "[nodes,", 1) + "log: {level: debug}\n"
	write(t, path, changed)
	hangUps <- syscall.SIGHUP
	log.awaits(t, `"settings":["resources","log.level"]`)
	write(t, path, changed+"name: other\n")
	hangUps <- syscall.SIGHUP
	log.awaits(t, `"settings":["name"]`)

	second, stopSecond := start(t, path)
	second.awaits(t, "in use by another process")
	if code := stopSecond(); code != exitEnvironment {
		t.Errorf("a second bridge ends with %d", code)
	}
	if code := stop(); code != exitOK {
		t.Errorf("the bridge ends with %d:\n%s", code, log)
	}
	if _, err := os.Lstat(filepath.Join(checkpoints, "admin.sock")); err == nil {
		t.Error("the socket is left behind")
	}
}

// resync needs the same flags as run, because they decide where the socket is.
func TestRunWithFlags(t *testing.T) {
	absentCluster(t)
	path, _ := configFile(t)
	elsewhere := filepath.Join(t.TempDir(), "cp")
	log, _ := start(t, path, "--checkpoint-path", elsewhere, "--log-level", "warn")
	log.awaits(t, "waiting for the API server")
	command(t, "resync", "widgets.example.com", "-c", path).failed(t, exitEnvironment, "no bridge listens")
	command(t, "resync", "widgets.example.com", "-c", path, "--checkpoint-path", elsewhere).failed(t, exitRuntime, "does not know its cluster yet")
	if strings.Contains(log.String(), `"level":"info"`) {
		t.Errorf("--log-level warn: it says\n%s", log)
	}
}

func TestRunWithoutDoors(t *testing.T) {
	absentCluster(t)
	path, checkpoints := configFile(t)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, string(text)+"admin: {socket: off}\n")
	log, _ := start(t, path)
	log.awaits(t, "accepts no commands")
	log.awaits(t, "waiting for the API server")
	if _, err := os.Lstat(filepath.Join(checkpoints, "admin.sock")); err == nil {
		t.Error("there is a socket")
	}
	command(t, "resync", "pods", "-c", path).failed(t, exitConfig, path, "admin.socket is off")
}

// resync is tested with an admin socket that answers like a bridge with collections.
func TestResync(t *testing.T) {
	path, checkpoints := configFile(t)
	socket := filepath.Join(checkpoints, "admin.sock")
	command(t, "resync", "pods", "-c", path).failed(t, exitEnvironment, socket, "no bridge listens", "is it running")
	command(t, "resync").failed(t, exitConfig, "see bridge resync --help")

	s, err := admin.New(admin.Options{Socket: socket, Resync: func(_ context.Context, sink, resource string) ([]string, error) {
		switch resource {
		case "pods":
			return []string{"pods?namespace=a", fmt.Sprintf("pods?namespace=%s", sink)}, nil
		case "busy":
			return nil, fmt.Errorf("the bridge is stopping")
		}
		return nil, &admin.NotFoundError{Message: fmt.Sprintf("no sink watches a resource %q", resource)}
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	want := "pods?namespace=a: resync started\npods?namespace=live: resync started\n"
	if got := command(t, "resync", "pods", "--sink", "live", "-c", path).ok(t); got != want {
		t.Errorf("prints %q, want %q", got, want)
	}
	command(t, "resync", "nope", "--socket", socket).failed(t, exitConfig, `"nope"`)
	command(t, "resync", "busy", "--socket", socket).failed(t, exitRuntime, "the bridge is stopping")
}
