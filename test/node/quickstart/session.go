package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	grace = 20 * time.Second // between Ctrl-C and SIGKILL
	ctrlC = "\x03"
)

// session is a block that runs in a terminal of its own: programs print differently, and buffer what they print, without one.
type session struct {
	cmd      *exec.Cmd
	terminal *os.File
	ended    chan struct{} // closed when it has ended, with err
	err      error

	mu  sync.Mutex
	out strings.Builder
}

func start(b block) (*session, error) {
	terminal, inner, err := openTerminal()
	if err != nil {
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	defer inner.Close()
	s := &session{cmd: exec.Command("bash", "-ec", b.text), terminal: terminal, ended: make(chan struct{})}
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = inner, inner, inner
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		terminal.Close()
		return nil, err
	}
	go func() {
		s.read() // until the last process that has the terminal ends
		s.err = s.cmd.Wait()
		terminal.Close()
		close(s.ended)
	}()
	return s, nil
}

// openTerminal returns both ends of a new pseudo-terminal.
func openTerminal() (outer, inner *os.File, err error) {
	outer, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			outer.Close()
		}
	}()
	if err := unix.IoctlSetPointerInt(int(outer.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, err
	}
	number, err := unix.IoctlGetInt(int(outer.Fd()), unix.TIOCGPTN)
	if err != nil {
		return nil, nil, err
	}
	inner, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	return outer, inner, err
}

// read keeps what is printed.
func (s *session) read() {
	buf := make([]byte, 32<<10)
	for {
		n, err := s.terminal.Read(buf)
		s.mu.Lock()
		s.out.Write(buf[:n])
		s.mu.Unlock()
		if err != nil {
			return // EIO: nothing has the other end any more
		}
	}
}

func (s *session) printed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

// await returns when the text has been printed.
func (s *session) await(ctx context.Context, text string) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(s.printed(), text) {
		select {
		case <-tick.C:
		case <-s.ended:
			if strings.Contains(s.printed(), text) {
				return nil
			}
			return fmt.Errorf("it ended (%v) and did not print %q", s.cmd.ProcessState, text)
		case <-ctx.Done():
			return fmt.Errorf("it did not print %q: %w", text, context.Cause(ctx))
		}
	}
	return nil
}

// succeed returns when the block has ended.
func (s *session) succeed(ctx context.Context) error {
	select {
	case <-s.ended:
		return s.err
	case <-ctx.Done():
		return fmt.Errorf("it did not end: %w", context.Cause(ctx))
	}
}

// interrupt presses Ctrl-C, and waits until the block has ended.
func (s *session) interrupt() {
	select {
	case <-s.ended:
		return
	default:
	}
	_, _ = s.terminal.WriteString(ctrlC) // fails if it has just ended
	select {
	case <-s.ended:
	case <-time.After(grace):
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	}
}
