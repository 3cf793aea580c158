package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a new user meets first says what is wrong, where, and what to do.
func TestFirstMistakes(t *testing.T) {
	absentCluster(t)
	path, checkpoints := configFile(t)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	unwritable := filepath.Join(t.TempDir(), "bridge.yaml")
	write(t, unwritable, strings.ReplaceAll(string(text), checkpoints, "/proc/nope/cp"))

	bridge(t, "validate", "-c", "/nope/bridge.yaml").failed(t, exitConfig, "/nope/bridge.yaml", "-c")
	bridge(t, "validate", "--connect", "-c", path).failed(t, exitEnvironment, "connection refused", "check the server's address in the kubeconfig")
	if r := bridge(t, "run", "-c", unwritable, "--status-listen", "off"); r.code != exitEnvironment || !strings.Contains(r.err, "checkpoint.file.path") {
		t.Errorf("a directory that cannot be made: code %d, %s", r.code, r.err)
	}
	t.Setenv("KUBECONFIG", "/nope/kubeconfig")
	t.Setenv("HOME", t.TempDir())
	bridge(t, "validate", "--connect", "-c", path).failed(t, exitEnvironment, "no kubeconfig at KUBECONFIG (/nope/kubeconfig)", "--kubeconfig")
}
