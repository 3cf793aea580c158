package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
)

// build is what the program under test is built from.
type build struct {
	commit string
	dirty  bool // files differ from the commit, or are not in it
}

func buildOf(ctx context.Context) (b build, err error) {
	if b.commit, err = git(ctx, "rev-parse", "HEAD"); err != nil {
		return b, err
	}
	status, err := git(ctx, "status", "--porcelain")
	b.dirty = status != ""
	return b, err
}

func git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = bridge.Root()
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find out which commit is tried: git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
