package bridge

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a process of the program, with its output, also after it has ended.
type Process struct {
	Args []string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended

	mu     sync.Mutex
	stderr bytes.Buffer
	stdout bytes.Buffer
	status string        // address it serves its status on
	listen chan struct{} // closed when status is known
}

// Start runs a binary. Its standard error is read as the bridge's log, JSON lines.
func Start(binary string, args ...string) (*Process, error) {
	p := &Process{Args: args, cmd: exec.Command(binary, args...), done: make(chan struct{}), listen: make(chan struct{})}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Stdout = writer(func(b []byte) { p.mu.Lock(); p.stdout.Write(b); p.mu.Unlock() })
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	started := make(chan error)
	go func() {
		defer close(p.done)
		// Linux sends the parent-death signal when the thread that started the child ends, so keep that thread alive.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.readLog(stderr)
		_ = p.cmd.Wait() // its error is in ProcessState
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	return p, nil
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

func (p *Process) readLog(r io.Reader) {
	for lines := bufio.NewReader(r); ; {
		line, err := lines.ReadBytes('\n')
		p.mu.Lock()
		p.stderr.Write(line)
		p.mu.Unlock()
		var entry struct{ Msg, Address string }
		if json.Unmarshal(line, &entry) == nil && entry.Msg == "status listens" && p.status == "" {
			p.status = entry.Address
			close(p.listen)
		}
		if err != nil {
			return
		}
	}
}

// Log returns what the process has written to standard error.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// Output returns what the process has written to standard output.
func (p *Process) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stdout.String()
}

// Listens reports whether the process serves its status, or did before it ended.
func (p *Process) Listens() bool {
	select {
	case <-p.listen:
		return true
	default:
		return false
	}
}

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Kill kills the process and returns when it has ended.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// Signal sends a signal. It does nothing if the process has ended.
func (p *Process) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// Wait waits for the process to end and returns its exit code; -1 if a signal has ended it.
func (p *Process) Wait(timeout time.Duration) (int, error) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-time.After(timeout):
		return 0, fmt.Errorf("%s still runs after %s", strings.Join(p.Args, " "), timeout)
	}
}

// PID returns the ID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Memory returns a size from /proc/PID/status, such as VmRSS or VmHWM, in bytes.
func (p *Process) Memory(field string) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			kB, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			return kB << 10, err
		}
	}
	return 0, errors.New("no " + field + " in /proc")
}
