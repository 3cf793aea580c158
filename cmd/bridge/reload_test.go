package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kubebridge/kubebridge/internal/config"
)

const patience = time.Minute

// follower runs a reloader with a short interval on a real file.
type follower struct {
	t       *testing.T
	path    string
	applied chan *config.Config
	hangUps chan os.Signal
	logs    *observer.ObservedLogs
}

func configText(resources string) string {
	return fmt.Sprintf("cluster: prod\nresources: [%s]\ncheckpoint: {file: {path: /cp}}\nsinks: [{name: a, stdout: {}}]\n", resources)
}

func follow(t *testing.T, path string, every time.Duration) *follower {
	t.Helper()
	r, f := newFollower(t, path, every)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return f
}

func newFollower(t *testing.T, path string, every time.Duration) (*reloader, *follower) {
	t.Helper()
	parse := func(text []byte) (*config.Config, error) { return config.Parse(path, text, nil) }
	running, err := parse([]byte(configText("pods")))
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zapcore.InfoLevel)
	f := &follower{t: t, path: path, applied: make(chan *config.Config, 10), hangUps: make(chan os.Signal), logs: logs}
	return &reloader{
		path: path, every: every, hangUps: f.hangUps, parse: parse, running: running, log: zap.New(core),
		apply: func(c *config.Config) { f.applied <- c },
	}, f
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// applies awaits the next reload and checks its first resource.
func (f *follower) applies(resource string) {
	f.t.Helper()
	select {
	case c := <-f.applied:
		if got := c.Resources[0].Resource; got != resource {
			f.t.Errorf("%s was applied, want %s", got, resource)
		}
	case <-time.After(patience):
		f.t.Fatalf("%s was not applied; log: %v", resource, f.logs.All())
	}
}

// says awaits the nth log line of a level and checks its parts.
func (f *follower) says(level zapcore.Level, n int, parts ...string) {
	f.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		lines := f.logs.FilterLevelExact(level).All()
		if len(lines) > n {
			f.t.Fatalf("%d %s lines, want %d: %v", len(lines), level, n, lines)
		}
		if len(lines) == n {
			text := fmt.Sprint(lines[n-1].Message, lines[n-1].ContextMap())
			for _, part := range parts {
				if !strings.Contains(text, part) {
					f.t.Errorf("%q does not say %q", text, part)
				}
			}
			return
		}
		if time.Now().After(end) {
			f.t.Fatalf("%d %s lines, want %d", len(lines), level, n)
		}
	}
}

// A changed file takes effect, whatever way it was replaced.
func TestReloadFollowsTheFile(t *testing.T) {
	link := func(t *testing.T, target, name string) {
		t.Helper()
		next := name + ".next"
		if err := os.Symlink(target, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, name); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(t *testing.T, dir, path, text string, n int){
		"written in place": func(t *testing.T, _, path, text string, _ int) { write(t, path, text) },
		"renamed over": func(t *testing.T, dir, path, text string, _ int) {
			write(t, filepath.Join(dir, "new"), text)
			if err := os.Rename(filepath.Join(dir, "new"), path); err != nil {
				t.Fatal(err)
			}
		},
		// As the kubelet does: bridge.yaml → ..data/bridge.yaml, ..data → ..<time>.
		"a ConfigMap's volume": func(t *testing.T, dir, path, text string, n int) {
			version := filepath.Join(dir, fmt.Sprintf("..%d", n))
			if err := os.Mkdir(version, 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(version, "bridge.yaml"), text)
			link(t, filepath.Base(version), filepath.Join(dir, "..data"))
			if _, err := os.Lstat(path); err != nil {
				link(t, "..data/bridge.yaml", path)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "bridge.yaml")
			change(t, dir, path, configText("pods"), 0)
			f := follow(t, path, 5*time.Millisecond)
			for n, resource := range []string{"nodes", "services", "pods"} {
				change(t, dir, path, configText(resource), n+1)
				f.applies(resource)
				f.says(zap.InfoLevel, n+1, "configuration reloaded", "resources")
			}
		})
	}
}

// An invalid file neither stops the bridge nor changes its configuration.
func TestReloadKeepsTheOldConfiguration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bridge.yaml")
	write(t, path, configText("nope*"))
	f := follow(t, path, 5*time.Millisecond)
	f.says(zap.ErrorLevel, 1, "keeping the previous one", path+":2:13", "nope*")
	write(t, path, "cluster: prod\nresources: [")
	f.says(zap.ErrorLevel, 2, path+":2:")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	f.says(zap.ErrorLevel, 3, "no such file")
	write(t, path, configText("pods")+"# back again\n")
	write(t, path, configText("nodes"))
	f.applies("nodes")
	if len(f.applied) > 0 {
		t.Errorf("more was applied: %v", (<-f.applied).Resources)
	}
}

// An invalid file is logged once, not at each read.
func TestReloadSaysAMistakeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bridge.yaml")
	r, f := newFollower(t, path, time.Hour)
	for _, text := range []string{configText("nope*"), configText("nope*") + "# the same mistake\n"} {
		write(t, path, text)
		for range 4 {
			r.look(false)
		}
		f.says(zap.ErrorLevel, 1, "nope*")
	}
	for _, n := range []int{2, 3} { // well in between
		write(t, path, configText("pods"))
		r.look(false)
		r.look(false)
		write(t, path, configText("nope*"))
		r.look(false)
		r.look(false)
		f.says(zap.ErrorLevel, n, "nope*")
	}
}

// The entries of a file that changes anything else wait for the restart, too. The log level does not.
func TestReloadNamesWhatNeedsARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bridge.yaml")
	write(t, path, strings.ReplaceAll(configText("nodes"), "prod", "other")+"log: {level: debug, format: json}\n")
	f := follow(t, path, 5*time.Millisecond)
	f.applies("pods")
	f.says(zap.WarnLevel, 1, "need a restart", "[cluster resources log.format]")
	f.says(zap.InfoLevel, 1, "[log.level]")
	write(t, path, configText("services")+"log: {level: debug}\n")
	f.applies("services")
	f.says(zap.InfoLevel, 2, "[resources]")
}

// SIGHUP takes effect at once, and is logged each time.
func TestReloadOnHangUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bridge.yaml")
	write(t, path, configText("nodes"))
	f := follow(t, path, time.Hour)
	f.hangUps <- syscall.SIGHUP
	f.applies("nodes")
	f.says(zap.InfoLevel, 1, "[resources]")
	f.hangUps <- syscall.SIGHUP
	f.says(zap.InfoLevel, 2, "no reloadable setting")
	write(t, path, configText("nope*"))
	for n := range 2 {
		f.hangUps <- syscall.SIGHUP
		f.says(zap.ErrorLevel, n+1, "nope*")
	}
}

// The first half of a file that is being written in place can be valid. It must
// not close the collections of the other half.
func TestReloadWaitsForTheWholeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bridge.yaml")
	r, f := newFollower(t, path, time.Hour)
	whole := strings.Replace(configText("nodes"), "resources: [nodes]\n", "", 1) + "resources:\n- nodes\n- pods\n"
	write(t, path, strings.TrimSuffix(whole, "- pods\n"))
	r.look(false)
	write(t, path, whole)
	r.look(false)
	if len(f.applied) > 0 {
		t.Fatal("half of the file was applied, or the file at its first look")
	}
	r.look(false)
	if len(f.applied) != 1 {
		t.Fatal("the file was not applied")
	}
	if c := <-f.applied; len(c.Resources) != 2 {
		t.Errorf("applied: %v", c.Resources)
	}
	r.look(false)
	if len(f.applied) > 0 {
		t.Error("the same file was applied twice")
	}
}

// `bridge run -c <(…)`: reading a pipe again would never return, or find an empty
// configuration.
func TestReloadLeavesPipesAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f := follow(t, path, time.Millisecond)
	f.says(zap.InfoLevel, 1, "from a pipe")
}
