// Program quickstart runs the code blocks of a page, one after another, as a reader would who pastes them into terminals. It is built
// for an empty Debian root: scripts/quickstart.sh.
//
// It prints each block with the time that it took, and ends with the first that fails.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// patience is how long a block may take. The first one has to build an API server.
const patience = 20 * time.Minute

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
	case b.prints != "":
		return fmt.Sprintf("%s, and terminal %s prints %q", first, b.other, b.prints)
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
	ctx, cancel := context.WithTimeoutCause(r.ctx, patience, fmt.Errorf("not within %s", patience))
	defer cancel()
	if b.until != "" {
		err = s.await(ctx, b.until)
	} else {
		err = s.succeed(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w\n%s\nprinted:\n%s", err, b.text, s.printed())
	}
	other := r.terminals[b.other]
	if other == nil {
		return nil
	}
	if err := other.await(ctx, b.prints); err != nil {
		return fmt.Errorf("terminal %s: %w\nprinted:\n%s", b.other, err, other.printed())
	}
	return nil
}

// leave closes every terminal.
func (r *reader) leave() {
	for _, s := range r.terminals {
		s.interrupt()
	}
}
