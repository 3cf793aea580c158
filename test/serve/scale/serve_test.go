package scale

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// served is a `bridge serve`, which is started and killed several times at one address.
type served struct {
	t       *testing.T
	ctx     context.Context
	program string
	config  string
	data    string
	url     string // "": it has not listened yet
	flags   []string
	cmd     *exec.Cmd
	done    chan struct{}

	mu   sync.Mutex
	text bytes.Buffer
}

// newServed builds the program. Nothing is started.
func newServed(t *testing.T, dir, bus string, flags ...string) *served {
	t.Helper()
	s := &served{t: t, ctx: t.Context(), program: filepath.Join(dir, "bridge"), config: filepath.Join(dir, "bridge.yaml"), data: filepath.Join(dir, "serve"), flags: flags}
	build := exec.CommandContext(s.ctx, "go", "build", "-o", s.program, "./cmd/bridge")
	build.Dir = filepath.Join("..", "..", "..")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build bridge: %v\n%s", err, text)
	}
	config := fmt.Sprintf(`{cluster: %s, resources: [pods], sinks: [{name: audit, nats: {url: %q}}], checkpoint: {file: {path: %q}}, log: {format: json}}`,
		clusterName, bus, filepath.Join(dir, "checkpoint"))
	if err := os.WriteFile(s.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			t.Logf("bridge serve:\n%s", s.output())
		}
	})
	return s
}

func (s *served) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *served) output() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// start starts the program, and returns when it was started, once it listens.
func (s *served) start() (began time.Time) {
	s.t.Helper()
	address := strings.TrimPrefix(s.url, "http://")
	if address == "" {
		address = "127.0.0.1:0"
	}
	s.text.Reset()
	s.cmd = exec.Command(s.program, append([]string{"serve", "-c", s.config, "--data", s.data, "--listen", address}, s.flags...)...)
	s.cmd.Stdout, s.cmd.Stderr = s, s
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.done = make(chan struct{})
	started := make(chan error)
	began = time.Now()
	go func() {
		defer close(s.done)
		runtime.LockOSThread() // Linux sends the parent-death signal when this thread ends
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			_ = s.cmd.Wait() // the output says how it ended
		}
	}()
	if err := <-started; err != nil {
		s.t.Fatal(err)
	}
	s.until("bridge serve listens", func() error {
		for line := range strings.Lines(s.output()) {
			var entry struct{ Msg, Address string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "serving" {
				s.url = "http://" + entry.Address
				return nil
			}
		}
		return fmt.Errorf("it has not said where")
	})
	return began
}

// kill kills it as a crash does.
func (s *served) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may have ended
	<-s.done
	s.cmd = nil
}

// until waits until check returns nil, as long as the program runs.
func (s *served) until(what string, check func() error) {
	s.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-s.done:
			s.t.Fatalf("%s: bridge serve has ended", what)
		case <-s.ctx.Done():
			s.t.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}

// ready waits for /readyz.
func (s *served) ready() {
	s.t.Helper()
	s.until("/readyz", func() error {
		_, err := s.get("/readyz")
		return err
	})
}

// get returns an answer.
func (s *served) get(path string) ([]byte, error) { return s.getInto(new(bytes.Buffer), path) }

// getInto returns an answer in the memory of a buffer.
func (s *served) getInto(memory *bytes.Buffer, path string) ([]byte, error) {
	memory.Reset()
	r, err := http.NewRequestWithContext(s.ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return nil, err
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	_, err = memory.ReadFrom(a.Body)
	if err == nil && a.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %s", path, a.Status, memory)
	}
	return memory.Bytes(), err
}

// memory returns the resident bytes of the program, now and at most.
func (s *served) memory() (now, peak int64) {
	s.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch name {
		case "VmRSS":
			now = kb << 10
		case "VmHWM":
			peak = kb << 10
		}
	}
	return now, peak
}

// cpu returns how long the program has used a CPU.
func (s *served) cpu() time.Duration {
	s.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // from the third one of proc(5)
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// diskBytes returns the bytes of the files in a directory.
func diskBytes(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil
		}
		if info, err := e.Info(); err == nil { // others are removed meanwhile
			n += info.Size()
		}
		return nil
	})
	return n
}
