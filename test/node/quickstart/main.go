// Program quickstart runs the code blocks of a page, one after another, as a reader would who pastes them into terminals. It is built
// for an empty Debian root: scripts/quickstart.sh.
//
// It prints each block with the time that it took, and ends with the first that fails.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience is for an until: what a block prints follows soon on what it waits for, but the first block may have to build.
const (
	patience = 15 * time.Minute
	grace    = 20 * time.Second // between Ctrl-C and SIGKILL
)

func main() {
	list := flag.Bool("list", false, "only list the blocks, and what happens to each")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, flag.Arg(0), *list); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, page string, list bool) error {
	raw, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	all, err := blocks(string(raw))
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	r := reader{ctx: ctx, terminals: map[string]*session{}}
	defer r.leave()
	for _, b := range all {
		where := fmt.Sprintf("%s:%d", page, b.line)
		if list || b.skip != "" {
			fmt.Printf("%-28s %s\n", where, b.describe())
			continue
		}
		began := time.Now()
		if err := r.follow(b); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		fmt.Printf("%-28s %6.1f s  %s\n", where, time.Since(began).Seconds(), b.describe())
	}
	return nil
}

// describe is the block's first line, and what happens to it.
func (b block) describe() string {
	first, rest, _ := strings.Cut(b.text, "\n")
	if rest != "" {
		first += " ..."
	}
	switch {
	case b.skip != "":
		return "not run: " + b.skip + ": " + first
	case b.file != "":
		return "saved as " + b.file
	case b.until != "":
		return fmt.Sprintf("%s, until %q", first, b.until)
	default:
		return first
	}
}

// reader has terminals, and in each of them at most one block that runs.
type reader struct {
	ctx       context.Context
	terminals map[string]*session
}

func (r *reader) follow(b block) error {
	if b.file != "" {
		return os.WriteFile(b.file, []byte(b.text), 0o644)
	}
	if before := r.terminals[b.terminal]; before != nil {
		before.interrupt()
	}
	s, err := start(b)
	if err != nil {
		return err
	}
	r.terminals[b.terminal] = s
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-s.seen:
		return nil
	case <-s.ended:
		if b.until == "" && s.err == nil {
			return nil
		}
		err = fmt.Errorf("it ended: %w", errors.Join(s.err, fmt.Errorf("without %q", b.until)))
	case <-timer.C:
		err = fmt.Errorf("it did not print %q in %s", b.until, patience)
	case <-r.ctx.Done():
		err = context.Cause(r.ctx)
	}
	return fmt.Errorf("%w\n%s\nprinted:\n%s", err, b.text, s.printed())
}

// leave closes every terminal.
func (r *reader) leave() {
	for _, s := range r.terminals {
		s.interrupt()
	}
}

// session is a block that runs, in a process group of its own.
type session struct {
	cmd   *exec.Cmd
	until []byte
	seen  chan struct{} // closed when until was printed
	ended chan struct{} // closed when it has ended, with err
	err   error

	mu  sync.Mutex
	out bytes.Buffer
}

func start(b block) (*session, error) {
	s := &session{cmd: exec.Command("bash", "-ec", b.text), until: []byte(b.until), seen: make(chan struct{}), ended: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = s, s
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		s.err = s.cmd.Wait()
		close(s.ended)
	}()
	return s, nil
}

// Write keeps what is printed, and looks for the text that the block runs until.
func (s *session) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out.Write(p)
	if len(s.until) > 0 && bytes.Contains(s.out.Bytes(), s.until) {
		close(s.seen)
		s.until = nil
	}
	return len(p), nil
}

func (s *session) printed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

// interrupt presses Ctrl-C, and waits until the block has ended.
func (s *session) interrupt() {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		_ = syscall.Kill(-s.cmd.Process.Pid, sig) // nothing is left of a block that has ended
		select {
		case <-s.ended:
			return
		case <-time.After(grace):
		}
	}
}
