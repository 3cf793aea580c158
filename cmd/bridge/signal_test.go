package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// program is the program as a process.
type program struct {
	*exec.Cmd
	log   *screen
	ended chan struct{}
}

func launch(t *testing.T, args ...string) *program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{Cmd: exec.Command(self, args...), log: &screen{}, ended: make(chan struct{})}
	p.Env = append(os.Environ(), asProgram+"=1")
	p.Stdout, p.Stderr = p.log, p.log
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.Wait() // ProcessState has the result
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill() // it may have ended
		<-p.ended
	})
	return p
}

func (p *program) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// code waits for the end and returns the exit code, which is negative for a signal.
func (p *program) code(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
		return p.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("it does not end:\n%s", p.log)
		return 0
	}
}

// pipe makes a configuration file that blocks its reader until it is written.
// open returns when the program reads it.
func pipe(t *testing.T) (path string, open func() *os.File) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "bridge.yaml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, func() *os.File {
		t.Helper()
		var f *os.File
		var err error
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			f, err = os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
			if !errors.Is(err, syscall.ENXIO) || time.Now().After(end) {
				break
			}
		}
		if err != nil {
			t.Fatalf("nobody reads the configuration: %v", err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
}

// A SIGHUP that arrives while the bridge starts must not end it.
func TestHangUpWhileItStarts(t *testing.T) {
	absentCluster(t)
	file, _ := configFile(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	path, open := pipe(t)
	p := launch(t, "run", "-c", path, "--status-listen", "off", "--log-format", "json")
	w := open()
	p.signal(t, syscall.SIGHUP)
	if _, err := w.Write(bytes.TrimSpace(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	p.log.awaits(t, "waiting for the API server")
	p.signal(t, syscall.SIGHUP)
	p.signal(t, syscall.SIGTERM)
	if code := p.code(t); code != exitOK {
		t.Errorf("it ends with %d:\n%s", code, p.log)
	}
}

// Ctrl-C, and closing the terminal, end every command, whatever it waits for.
func TestSignalsEndEveryVerb(t *testing.T) {
	for _, args := range [][]string{
		{"run"}, {"validate"}, {"rbac"}, {"status"}, {"resync", "pods"}, {"checkpoint", "show"}, {"state", "--at", "2026-01-01T00:00:00Z"}, {"history", "pods", "a/b"},
	} {
		for _, s := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
			if args[0] == "run" && s == syscall.SIGHUP {
				continue // see TestHangUpWhileItStarts
			}
			t.Run(args[0]+" "+s.String(), func(t *testing.T) {
				path, open := pipe(t)
				p := launch(t, append(args, "-c", path)...)
				open()
				p.signal(t, s)
				if code := p.code(t); code != exitRuntime || !strings.Contains(p.log.String(), "interrupted") {
					t.Errorf("it ends with %d:\n%s", code, p.log)
				}
			})
		}
	}
}
