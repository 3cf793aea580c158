package clustertest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// process is the running program.
type process struct {
	cmd   *exec.Cmd
	ready chan string   // receives the ready line, once
	done  chan struct{} // closed when the process is gone
	err   error         // how it ended; valid after done
}

// startProcess runs the program with its stderr appended to the file log.
func startProcess(binary string, args []string, log string) (*process, error) {
	stderr, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open cluster log: %w", err)
	}
	p := &process{cmd: exec.Command(binary, args...), ready: make(chan string, 1), done: make(chan struct{})}
	p.cmd.Stderr = stderr
	p.cmd.SysProcAttr = diesWithParent()
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start cluster program: %w", err), stderr.Close())
	}
	started := make(chan error)
	go func() {
		defer close(p.done)
		defer stderr.Close()
		// Linux sends the parent-death signal when the THREAD that started the child ends, so this one stays with it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "ready ") {
				select {
				case p.ready <- lines.Text():
				default:
				}
			}
		}
		p.err = p.cmd.Wait()
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start cluster program: %w", err)
	}
	return p, nil
}

// signal sends sig; a process that is already gone is no error.
func (p *process) signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to cluster: %w", sig, err)
	}
	return nil
}
