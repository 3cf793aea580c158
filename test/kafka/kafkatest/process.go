package kafkatest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// process is a running broker.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process is gone
	err  error         // the error of Wait; valid when done is closed
}

// startProcess starts a command, and appends its output to the file log.
func startProcess(cmd *exec.Cmd, log string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open broker log: %w", err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = diesWithParent()
	started := make(chan error)
	go func() {
		defer close(p.done)
		defer out.Close()
		// Linux sends the parent-death signal when the thread that started the child ends, so this thread waits for the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		<-p.done
		return nil, fmt.Errorf("start broker: %w", err)
	}
	return p, nil
}

// running reports whether the process has not ended yet.
func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// signal sends sig; a process that is already gone is no error.
func (p *process) signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to broker: %w", sig, err)
	}
	return nil
}
