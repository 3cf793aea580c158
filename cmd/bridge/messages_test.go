package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The errors of typical first mistakes say what is wrong, where, and what to do.
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

// A warning does not break scripts: exit code and standard output are those of a configuration without warnings.
func TestWarningsBreakNothing(t *testing.T) {
	absentCluster(t)
	path := filepath.Join(t.TempDir(), "bridge.yaml")
	write(t, path, `cluster: prod
resources: [pods]
sinks: [{name: live, nats: {delivery: at-least-once, url: "nats://u:hunter2@192.0.2.1:4222"}}]
admin: {socket: "off"}
checkpoint: {file: {path: `+t.TempDir()+`}}
`)
	got := bridge(t, "validate", "-c", path)
	if want := "bridge: warning: " + path + ":3:59: sinks[0].nats.url: a password or token is sent without TLS"; got.code != exitOK || got.out != path+": ok: 1 resource, 1 sink\n" ||
		!strings.HasPrefix(got.err, want) || strings.Count(got.err, "\n") != 1 || strings.Contains(got.err, "hunter2") {
		t.Errorf("code %d, prints %q, warns %q", got.code, got.out, got.err)
	}
	log, _ := start(t, path)
	log.awaits(t, "sent without TLS")
}
