package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func none(context.Context, string, string) ([]string, error) { return nil, nil }

// serve runs a server until the test ends or the returned function is called.
func serve(t *testing.T, o Options) (stop func()) {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func TestResync(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "state", "admin.sock")
	serve(t, Options{Socket: socket, Resync: func(_ context.Context, sink, resource string) ([]string, error) {
		switch resource {
		case "widgets":
			return nil, &NotFoundError{`no sink has "widgets"`}
		case "nodes":
			return nil, errors.New("the bus is away")
		case "idle":
			return nil, nil
		}
		return []string{resource + "@" + sink, "pods?namespace=a&labels=b=c,d"}, nil
	}})
	for _, sink := range []string{"", "a&b"} {
		got, err := Resync(t.Context(), socket, sink, "pods?namespace=a&labels=x in (y)")
		if want := []string{"pods?namespace=a&labels=x in (y)@" + sink, "pods?namespace=a&labels=b=c,d"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("started %q, %v; want %q", got, err, want)
		}
	}
	var unknown *NotFoundError
	if _, err := Resync(t.Context(), socket, "", "widgets"); !errors.As(err, &unknown) || unknown.Error() != `no sink has "widgets"` {
		t.Errorf("an unknown resource: %v", err)
	}
	if _, err := Resync(t.Context(), socket, "", "nodes"); err == nil || errors.As(err, &unknown) || !strings.HasSuffix(err.Error(), ": the bus is away") {
		t.Errorf("a failure: %v", err)
	}
	if got, err := Resync(t.Context(), socket, "", "idle"); err != nil || len(got) != 0 {
		t.Errorf("nothing to do: %q, %v", got, err)
	}
	if _, err := Resync(t.Context(), socket, "", ""); err == nil || !strings.Contains(err.Error(), "no resource") {
		t.Errorf("no resource: %v", err)
	}
}

// The description of a checkpoint is returned unchanged. A sink that the bridge does not have open is a NotFoundError.
func TestCheckpoint(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "admin.sock")
	serve(t, Options{Socket: socket, Resync: none, Checkpoint: func(_ context.Context, sink string) (json.RawMessage, error) {
		if sink != "audit & more" {
			return nil, &NotFoundError{"no sink " + sink}
		}
		return json.RawMessage(`{"plan":7}`), nil
	}})
	if held, err := Checkpoint(t.Context(), socket, "audit & more"); err != nil || string(held) != `{"plan":7}` {
		t.Errorf("it says %s, %v", held, err)
	}
	var unknown *NotFoundError
	if _, err := Checkpoint(t.Context(), socket, "x"); !errors.As(err, &unknown) || unknown.Error() != "no sink x" {
		t.Errorf("an unknown sink: %v", err)
	}
	if _, err := Checkpoint(t.Context(), socket+".none", "x"); !errors.Is(err, ErrNoBridge) {
		t.Errorf("no bridge: %v", err)
	}
}

// A page in a browser, or a scraper, must not be able to start anything.
func TestOnlyPostChangesSomething(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "admin.sock")
	serve(t, Options{Socket: socket, Resync: func(context.Context, string, string) ([]string, error) {
		t.Error("it was resynced")
		return nil, nil
	}})
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", socket) },
	}}
	resp, err := client.Get("http://bridge" + resyncPath + "?resource=pods")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET is answered with %s", resp.Status)
	}
}

// A process that can open the socket can command the bridge, so only the bridge's user may open it.
func TestMode(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "admin.sock")
	stop := serve(t, Options{Socket: socket, Resync: none})
	info, err := os.Lstat(socket)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Fatalf("the socket is %v, %v", info, err)
	}
	left := func() []os.DirEntry {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return entries
	}
	if e := left(); len(e) != 1 {
		t.Errorf("beside the socket there is more: %v", e)
	}
	stop()
	if e := left(); len(e) != 0 {
		t.Errorf("after the end there is %v", e)
	}
	if _, err := Resync(t.Context(), socket, "", "pods"); !errors.Is(err, ErrNoBridge) || !strings.Contains(err.Error(), socket) {
		t.Errorf("after the end: %v", err)
	}
}

// kill -9 leaves the socket's file behind. The next start must replace it without manual work.
func TestStaleSocketIsReplaced(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "admin.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if _, err := Resync(t.Context(), socket, "", "pods"); !errors.Is(err, ErrNoBridge) {
		t.Errorf("nobody listens: %v", err)
	}
	serve(t, Options{Socket: socket, Resync: none})
	if _, err := Resync(t.Context(), socket, "", "pods"); err != nil {
		t.Errorf("the new one: %v", err)
	}
}

func TestLiveSocketIsRefused(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "admin.sock")
	serve(t, Options{Socket: socket, Resync: none})
	if _, err := New(Options{Socket: socket, Resync: none}); err == nil || !strings.Contains(err.Error(), socket+": in use by another process") {
		t.Errorf("the second one: %v", err)
	}
	if _, err := Resync(t.Context(), socket, "", "pods"); err != nil {
		t.Errorf("the first one afterwards: %v", err)
	}
}

// A mistyped socket path in the configuration must not delete a file.
func TestOtherFilesAreKept(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "notes")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Socket: file, Resync: none}); err == nil || !strings.Contains(err.Error(), "is no socket") {
		t.Errorf("a file: %v", err)
	}
	if text, err := os.ReadFile(file); string(text) != "mine" {
		t.Errorf("the file holds %q, %v", text, err)
	}
	if _, err := New(Options{Socket: filepath.Join(file, "x"), Resync: none}); err == nil {
		t.Error("a file was taken for a directory")
	}
}

// A bridge that ends must not remove the socket of the bridge that has replaced it.
func TestSocketOfASuccessorIsKept(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "admin.sock")
	stop := serve(t, Options{Socket: socket, Resync: none})
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	serve(t, Options{Socket: socket, Resync: none})
	stop()
	if _, err := Resync(t.Context(), socket, "", "pods"); err != nil {
		t.Errorf("the second one: %v", err)
	}
}

// A stop must not wait until a resync is complete, and must not leave it running.
func TestStopEndsACommand(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "admin.sock")
	begun, ended := make(chan struct{}), make(chan struct{})
	stop := serve(t, Options{Socket: socket, Resync: func(ctx context.Context, _, _ string) ([]string, error) {
		defer close(ended)
		close(begun)
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	answer := make(chan error, 1)
	go func() {
		_, err := Resync(context.WithoutCancel(t.Context()), socket, "", "pods")
		answer <- err
	}()
	<-begun
	stop()
	select {
	case <-ended:
	default:
		t.Error("the command outlives the server")
	}
	if err := <-answer; err == nil {
		t.Error("the client received no error, though the command was canceled")
	}
}
