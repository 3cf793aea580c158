package main

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/internal/bus/nats"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/operate/status"
)

// TestStatusVerb requests the status of a bridge without a cluster, and checks the exit
// code and the table.
func TestStatusVerb(t *testing.T) {
	absentCluster(t)
	path, _ := configFile(t)
	log, stop := start(t, path, "--status-listen", "127.0.0.1:0")
	defer stop()
	log.awaits(t, "status listens")
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(log.String()[strings.Index(log.String(), "status listens"):])
	log.awaits(t, "waiting for the API server")
	got := command(t, "status", "--address", address)
	if got.code != exitRuntime || !strings.Contains(got.out, "not ready") || !strings.Contains(got.out, "127.0.0.1:1") || !strings.Contains(got.out, "COLLECTION") {
		t.Errorf("code %d, prints\n%s\n%s", got.code, got.out, got.err)
	}
	got = command(t, "status", "--address", address, "-o", "json")
	var r status.Report
	if err := json.Unmarshal([]byte(got.out), &r); err != nil || got.code != exitRuntime || r.Cluster != "prod" || len(r.ConfigDigest) != 64 {
		t.Errorf("code %d, %v, prints\n%s", got.code, err, got.out)
	}
	if code := stop(); code != exitOK {
		t.Errorf("run ends with %d", code)
	}
	command(t, "status", "--address", address).failed(t, exitEnvironment, address, "--address")
	command(t, "status", "-o", "yaml").failed(t, exitConfig, "json")
	command(t, "status", "-c", path, "--status-listen", "off").failed(t, exitConfig, "status.listen is off")
	command(t, "status", "-c", path, "--status-listen", ":1").failed(t, exitEnvironment, "127.0.0.1:1")
}

// TestStatusBehindALogin: the command takes certificate and token from the configuration or from flags. Without them, the error
// says what is missing.
func TestStatusBehindALogin(t *testing.T) {
	absentCluster(t)
	dir := t.TempDir()
	cert, key, token := filepath.Join(dir, "cert"), filepath.Join(dir, "key"), filepath.Join(dir, "token")
	ca := httptest.NewUnstartedServer(nil) // for its certificate
	ca.StartTLS()
	defer ca.Close()
	pair := ca.TLS.Certificates[0]
	private, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write(t, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})))
	write(t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	write(t, token, "0123456789abcdef0123456789abcdef")
	for _, file := range []string{key, token} {
		if err := os.Chmod(file, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path, _ := configFile(t)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	configured := func(port string) {
		write(t, path, string(text)+"\nstatus: {listen: \"127.0.0.1:"+port+"\", tls: {cert: "+cert+", key: "+key+"}, login: {tokenFile: "+token+"}}\n")
	}
	configured("0")
	log, stop := start(t, path, "--status-listen", "127.0.0.1:0")
	defer stop()
	log.awaits(t, "status listens")
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(log.String()[strings.Index(log.String(), "status listens"):])
	log.awaits(t, "waiting for the API server")
	configured(address[strings.LastIndexByte(address, ':')+1:])
	for name, args := range map[string][]string{
		"by the configuration": {"-c", path},
		"by hand":              {"--address", "https://" + address, "--ca", cert, "--token-file", token},
	} {
		if got := command(t, append([]string{"status"}, args...)...); got.code != exitRuntime || !strings.Contains(got.out, "COLLECTION") {
			t.Errorf("%s: code %d, prints\n%s\n%s", name, got.code, got.out, got.err)
		}
	}
	command(t, "status", "--address", "https://"+address, "--token-file", token).failed(t, exitEnvironment, "certificate")
	command(t, "status", "--address", "https://"+address, "--ca", cert).failed(t, exitEnvironment, "401", "a login is required")
	command(t, "status", "--address", address, "--token-file", token).failed(t, exitEnvironment, "HTTPS server")
	other := filepath.Join(dir, "other")
	write(t, other, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: append([]byte{0}, pair.Certificate[0]...)})))
	write(t, path, string(text)+"\nstatus: {listen: \""+address+"\", tls: {cert: "+other+", key: "+key+"}, login: {tokenFile: "+token+"}}\n")
	command(t, "status", "-c", path).failed(t, exitEnvironment, "the bridge's certificate is not the one in "+other)
}

// TestStatusOfAReadyBridge: troubled collections come first, and unknown values are marked.
func TestStatusOfAReadyBridge(t *testing.T) {
	n := int64(7)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		records := &status.Audit{MaxBytes: 1 << 30, Records: 12, Refused: map[string]uint64{"full": 3}}
		_ = json.NewEncoder(w).Encode(status.Report{Name: "b", Cluster: "c", Ready: true, Audit: records, Sinks: []status.Sink{{
			Name: "live", Ready: true, Attribution: &status.Attribution{Exact: 5, Waiting: 2}, Collections: []status.Collection{
				{ID: "pods", State: "watching", Objects: &n, Position: "42"},
				{ID: "secrets", Route: "audit.c", State: "waiting", Error: "forbidden:\nno"},
			},
		}}})
	}))
	defer s.Close()
	out := command(t, "status", "--address", s.Listener.Addr().String()).ok(t)
	pods, secrets := strings.Index(out, "\npods "), strings.Index(out, "\nsecrets ")
	if pods < 0 || secrets < 0 || pods < secrets || !strings.Contains(out, "forbidden: no") || !strings.Contains(out, "audit.c") || !strings.Contains(out, "the sink's") || !strings.Contains(out, "–") {
		t.Errorf("prints\n%s", out)
	}
	for _, line := range []string{"audit records: 0 B of 1.0 GiB, 12 records stored, 3 requests refused (3 full)\n", "attribution, sink live: 5 exact, 2 waiting\n"} {
		if !strings.Contains(out, line) {
			t.Errorf("%q is missing in\n%s", line, out)
		}
	}
}

// TestNoCredentialsAreShown: the status contains no credentials, because its readers may not be allowed to
// write to the bus.
func TestNoCredentialsAreShown(t *testing.T) {
	for url, want := range map[string]string{
		"nats://user:s3cret@one:4222, tls://token@two:4222": "nats://one:4222, tls://two:4222",
		"user:s3cret@three:4222":                            "three:4222",
		"nats://user:s3cret%zz@four:4222":                   "four:4222",
	} {
		if got := kindOf(&config.Config{}, &config.Sink{NATS: &nats.Config{URL: url}}).Address; got != want {
			t.Errorf("%s is shown as %q", url, got)
		}
	}
}

// TestCompletion: the completion scripts use the program's name.
func TestCompletion(t *testing.T) {
	if out := command(t, "completion", "bash").ok(t); !strings.Contains(out, "bridge") {
		t.Errorf("prints %q", out)
	}
}

// The busiest collections come first, and those with unknown rates last. status --watch repeats the output until it is interrupted.
func TestTop(t *testing.T) {
	slow, fast, lag := 0.5, 20.0, 3.0
	asked := make(chan struct{}, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		_ = json.NewEncoder(w).Encode(status.Report{Name: "b", Cluster: "c", Sinks: []status.Sink{{
			Name: "live", Ready: true, Collections: []status.Collection{
				{ID: "configmaps", State: "watching"}, {ID: "pods", State: "watching", Rate: &slow}, {ID: "events", State: "watching", Rate: &fast, Lag: &lag},
			},
		}}})
	}))
	defer s.Close()
	out := command(t, "top", "--address", s.URL).ok(t)
	if !regexp.MustCompile(`(?s)\nevents +live +20(\.0)? +3(\.0)? ?s.*\npods +live +0\.5 .*\nconfigmaps +live +– `).MatchString(out) {
		t.Errorf("top prints\n%s", out)
	}
	for len(asked) > 0 {
		<-asked
	}
	text, errs, stop := startBridge(t, "status", "--watch", "--address", s.URL)
	<-asked
	<-asked
	text.awaits(t, "COLLECTION")
	if code := stop(); code != exitOK {
		t.Errorf("status --watch ends with %d: %s", code, errs)
	}
	command(t, "top", "--address", "127.0.0.1:1").failed(t, exitEnvironment, "no bridge answers at 127.0.0.1:1")
}

// Who asks a running bridge, or prints permissions, has no password of the bus: the command needs only what it uses of the configuration.
func TestCommandsWithoutThePasswords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bridge.yaml")
	text := `{cluster: prod, resources: [pods], checkpoint: {file: {path: /nowhere}}, status: {listen: "127.0.0.1:1"}, sinks: [
  {name: a, kafka: {brokers: ["kafka:9092"], topic: t, sasl: {mechanism: PLAIN, username: u, password: "${env:BUS_PASSWORD}"}}},
  {name: b, nats: {url: "tls://nats:4222", auth: {username: u, password: "${file:/nowhere/password}"}}}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := command(t, "validate", "-c", path); got.code != exitConfig || !strings.Contains(got.err, "the environment has no BUS_PASSWORD") {
		t.Errorf("validate: code %d, %s", got.code, got.err)
	}
	command(t, "status", "-c", path).failed(t, exitEnvironment, "no bridge answers at 127.0.0.1:1")
	command(t, "top", "-c", path).failed(t, exitEnvironment, "no bridge answers at 127.0.0.1:1")
	command(t, "resync", "pods", "-c", path).failed(t, exitEnvironment, "/nowhere/admin.sock")
	for _, args := range [][]string{{"rbac", "-c", path}, {"rbac", "--bus", "-c", path}} {
		if out := command(t, args...).ok(t); !strings.Contains(out, "prod") && !strings.Contains(out, "pods") || strings.Contains(out, "BUS_PASSWORD") {
			t.Errorf("%v prints\n%s", args, out)
		}
	}
	command(t, "status", "-c", path, "--status-listen", "nonsense").failed(t, exitConfig, "status.listen")
}

// On a standby, bridge status and bridge top say who leads and how to reach it, and print no empty tables.
func TestStatusOfAStandby(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(status.Report{
			Name: "b", Cluster: "c", Ready: true, Sinks: []status.Sink{}, Election: &status.Election{Role: status.Standby, Holder: "bridge-0_a"},
			LeaderStatus: leaderStatus("bridge-0", ":8081", "streaming"),
		})
	}))
	defer s.Close()
	for _, verb := range []string{"status", "top"} {
		out := command(t, verb, "--address", s.Listener.Addr().String()).ok(t)
		if !strings.Contains(out, "standby") || !strings.Contains(out, "kubectl -n streaming port-forward bridge-0 8081") || strings.Contains(out, "COLLECTION") {
			t.Errorf("%s prints\n%s", verb, out)
		}
	}
}
