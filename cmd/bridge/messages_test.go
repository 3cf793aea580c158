package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
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

	command(t, "validate", "-c", "/nope/bridge.yaml").failed(t, exitConfig, "/nope/bridge.yaml", "-c")
	command(t, "validate", "--connect", "-c", path).failed(t, exitEnvironment, "connection refused", "check the server's address in the kubeconfig")
	if r := command(t, "run", "-c", unwritable, "--status-listen", "off"); r.code != exitEnvironment || !strings.Contains(r.err, "checkpoint.file.path") {
		t.Errorf("a directory that cannot be made: code %d, %s", r.code, r.err)
	}
	t.Setenv("KUBECONFIG", "/nope/kubeconfig")
	t.Setenv("HOME", t.TempDir())
	command(t, "validate", "--connect", "-c", path).failed(t, exitConfig, "KUBECONFIG (/nope/kubeconfig): there is no such file", "give --kubeconfig")
}

// A proxy that cannot be reached is not the server's address.
func TestProxyIsAbsent(t *testing.T) {
	path, _ := configFile(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, file, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://192.0.2.1", proxy-url: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`)
	r := command(t, "validate", "--connect", "-c", path, "--kubeconfig", file)
	r.failed(t, exitEnvironment, "proxyconnect tcp: dial tcp 127.0.0.1:1", "HTTPS_PROXY or proxy-url in the kubeconfig")
	if strings.Contains(r.err, "server's address") {
		t.Errorf("a wrong cause: %s", r.err)
	}
}

// A kubeconfig that cannot be used is named, with what is wrong in it. --kubeconfig and its key are input: exit code 2.
func TestKubeconfigIsWrong(t *testing.T) {
	path, _ := configFile(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	const parts = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}, {name: none, cluster: {insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: b, context: {cluster: c, user: u}}, {name: a, context: {cluster: nosuch, user: u}}, {name: d, context: {cluster: none, user: u}}]
`
	for text, why := range map[string]string{
		"":                               ": it is empty",
		"apiVersion: v1\nkind: Config\n": ": it is empty",
		parts:                            ": it has no current-context (contexts: a, b, d): choose one with --context or kubernetes.context",
		parts + "current-context: x\n":   `: it has no context "x" (contexts: a, b, d)`,
		parts + "current-context: a\n":   `: context "a" is for the cluster "nosuch", which is not in the file`,
		parts + "current-context: d\n":   `: cluster "none" has no server`,
		strings.ReplaceAll(parts, "https://127.0.0.1:1", "https://u:s3c ret@127.0.0.1:1") + "current-context: b\n":  `: cluster "c": its server is no URL like https://HOST:PORT`,
		strings.ReplaceAll(parts, `:1"`, `:1", proxy-url: "ftp://u:s3cret@127.0.0.1:1"`) + "current-context: b\n":   `: cluster "c": its proxy-url is no URL`,
		strings.ReplaceAll(parts, `:1"`, `:1", proxy-url: "http://u:s3 cret@127.0.0.1:1"`) + "current-context: b\n": `: cluster "c": its proxy-url is no URL`,
		"current-context: x\n": `: it has no context "x" (it has no contexts)`,
	} {
		write(t, file, text)
		t.Setenv("KUBECONFIG", "")
		r := command(t, "validate", "--connect", "-c", path, "--kubeconfig", file)
		r.failed(t, exitConfig, "kubeconfig "+file+why)
		if strings.Contains(r.err+r.out, "s3c") {
			t.Errorf("it prints the password: %s%s", r.err, r.out)
		}
		command(t, "state", "--at", "1", "--apply", "-c", path, "--kubeconfig", file).failed(t, exitConfig, "--kubeconfig "+file+why)
		t.Setenv("KUBECONFIG", file)
		command(t, "tail", "pods").failed(t, exitConfig, "KUBECONFIG ("+file+")"+why)
	}
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
	got := command(t, "validate", "-c", path)
	if want := "bridge: warning: " + path + ":3:59: sinks[0].nats.url: a password or token is sent without TLS"; got.code != exitOK || got.out != path+": ok: 1 resource, 1 sink\n" ||
		!strings.HasPrefix(got.err, want) || strings.Count(got.err, "\n") != 1 || strings.Contains(got.err, "hunter2") {
		t.Errorf("code %d, prints %q, warns %q", got.code, got.out, got.err)
	}
	log, _ := start(t, path)
	log.awaits(t, "sent without TLS")
}

// The password in an address is not printed, and it is used as before: a server behind a proxy may ask for it.
func TestPasswordInServerAddress(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		http.Error(w, fmt.Sprintf("seen %s and %d letters", user, len(password)), http.StatusTeapot)
	}))
	defer server.Close()
	path, _ := configFile(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	for address, want := range map[string]string{
		strings.Replace(server.URL, "//", "//u:s3cret@", 1):                                                "seen u and 6 letters",
		`https://u:s3cret@127.0.0.1:1", insecure-skip-tls-verify: true, certificate-authority-data: "eA==`: "set up TLS for https://127.0.0.1:1: ",
	} {
		write(t, file, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "`+address+`"}}]}`)
		r := command(t, "validate", "--connect", "-c", path, "--kubeconfig", file)
		if !strings.Contains(r.err, want) || strings.Contains(r.err, "s3c") {
			t.Errorf("want %q: %s", want, r.err)
		}
	}
}
