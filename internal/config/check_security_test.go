package config

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const minimal = "cluster: prod\nresources: [pods]\ncheckpoint: {file: {path: /x}}\n"

// A setting that is unsafe but may be intended causes a warning with its place and the remedy. A safe setting causes
// none.
func TestWarnings(t *testing.T) {
	kafka := func(more string) string {
		return minimal + "sinks: [{name: a, kafka: {delivery: at-least-once, brokers: [" + more + "}}]"
	}
	nats := func(more string) string { return minimal + "sinks: [{name: a, nats: {" + more + "}}]" }
	audit := func(more, client string) string {
		return "cluster: c\nresources: [pods]\nsinks: [{name: a, kafka: {brokers: ['kafka:9092']}}]\naudit: {path: /a, " + more + ", webhook: {listen: ':8444', certFile: /c, keyFile: /k, " + client + "}}\n"
	}
	for name, c := range map[string]struct{ text, want string }{
		"embedded, for all":          {nats(`embedded: {dir: /n, listen: "0.0.0.0:4222"}`), "file:4:54: sinks[0].nats.embedded.listen: everybody who reaches 0.0.0.0:4222 can read all events: set auth.username"},
		"embedded, every address":    {nats(`embedded: {dir: /n, listen: ":4222"}`), "everybody who reaches :4222"},
		"embedded, here":             {nats(`embedded: {dir: /n, listen: "127.0.0.1:4222"}`), ""},
		"embedded, certificates":     {nats(`embedded: {dir: /n, listen: ":4222", tls: {cert: /c, key: /k, clientCA: /ca}}`), ""},
		"embedded, a bare password":  {nats(`auth: {username: u, password: hunter2}, embedded: {dir: /n, listen: ":4222"}`), "the password of subscribers is sent without TLS"},
		"embedded, a login":          {nats(`auth: {username: u, password: hunter2}, embedded: {dir: /n, listen: ":4222", tls: {cert: /c, key: /k}}`), ""},
		"leaf":                       {nats(`embedded: {dir: /n, leaf: {url: "nats-leaf://u:hunter2@hub:7422"}}`), "sinks[0].nats.embedded.leaf.url: a password is sent without TLS"},
		"nats, a password":           {nats(`url: "nats://u:hunter2@nats:4222"`), "file:4:31: sinks[0].nats.url: a password or token is sent without TLS"},
		"nats, a token":              {nats(`url: "nats://nats:4222", auth: {token: hunter2}`), "a password or token is sent without TLS"},
		"nats, over TLS":             {nats(`url: "tls://u:hunter2@nats:4222"`), ""},
		"nats, with a CA":            {nats(`url: "nats://u:hunter2@nats:4222", tls: {ca: /ca}`), ""},
		"nats, here":                 {nats(`url: "nats://u:hunter2@localhost:4222,nats://u:hunter2@[::1]:4222"`), ""},
		"nats, signs":                {nats(`url: "nats://nats:4222", auth: {creds: /c}`), ""},
		"kafka, a password":          {kafka(`"kafka:9092"], sasl: {mechanism: PLAIN, username: u, password: hunter2}`), "sinks[0].kafka.sasl: PLAIN sends the password as it is, and TLS is off"},
		"kafka, a token":             {kafka(`"kafka:9092"], sasl: {mechanism: OAUTHBEARER, tokenFile: /t}`), "OAUTHBEARER sends the token as it is"},
		"kafka, over TLS":            {kafka(`"kafka:9092"], sasl: {mechanism: PLAIN, username: u, password: hunter2}, tls: {enabled: true}`), ""},
		"kafka, proves its password": {kafka(`"kafka:9092"], sasl: {mechanism: SCRAM-SHA-512, username: u, password: hunter2}`), ""},
		"login, a bare token":        {minimal + "sinks: [{name: a, stdout: {}}]\nstatus: {listen: \":8080\", login: {kubernetes: true}}", "file:5:27: status.login: tokens are sent without TLS"},
		"login, over TLS":            {minimal + "sinks: [{name: a, stdout: {}}]\nstatus: {listen: \":8080\", login: {kubernetes: true}, tls: {cert: /c, key: /k}}", ""},
		"login, here":                {minimal + "sinks: [{name: a, stdout: {}}]\nstatus: {login: {kubernetes: true}}", ""},
		"audit, late records":        {audit("settle: 20s", "tokenFile: /t"), "audit.settle: 20s is shorter than 31s, and an API server waits up to 30s before it sends a batch"},
		"audit, in time":             {audit("settle: 31s", "tokenFile: /t"), ""},
		"audit, complete":            {audit("settle: 1s, complete: true", "tokenFile: /t"), ""},
		"audit, any certificate":     {audit("settle: 1m", "clientCAFile: /ca"), "audit.webhook.clientCAFile: every client with a certificate of this CA could say who made a change"},
		"audit, one certificate":     {audit("settle: 1m", "clientCAFile: /ca, clientNames: [kube-apiserver]"), ""},
		"audit, a short wait":        {audit("wait: 2s", "tokenFile: /t"), "audit.wait: 2s is shorter than 31s, and an API server waits up to 30s before it sends a batch: set --audit-webhook-batch-max-wait to less than 2s. The bridge cannot see that flag"},
		"audit, a long wait":         {audit("wait: 31s", "tokenFile: /t"), ""},
		"audit, complete, with wait": {audit("wait: 1s, complete: true", "tokenFile: /t"), ""},
		"audit, a file, with wait":   {minimal + "sinks: [{name: a, stdout: {}}]\naudit: {path: /a, file: /f, wait: 1s}", ""},
		"audit, plain":               {"cluster: c\nresources: [pods]\nsinks: [{name: a, format: plain, kafka: {brokers: ['127.0.0.1:9092']}}]\naudit: {path: /a, file: /f, wait: 1s}", "sinks[0].format: changes of this sink do not wait (audit.wait): the format plain has no place for who made a change"},
		"audit, wait without input":  {minimal + "sinks: [{name: a, stdout: {}}]\naudit: {wait: 1s}", "audit.wait: no change waits: set audit.path and an input"},
		"audit, a standby":           {audit("settle: 1m", "tokenFile: /t") + "leaderElection: {enabled: true, leaseName: l, namespace: n}", "audit.webhook: only the leader listens"},
		"kafka, compacted":           {kafka(`"127.0.0.1:9092"], tombstones: true`), "sinks[0].kafka.tombstones: topics are compacted"},
		"kafka, here":                {kafka(`"127.0.0.1:9092"], sasl: {mechanism: PLAIN, username: u, password: hunter2}`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse("file", []byte(c.text), nil, testEnv)
			if err != nil {
				t.Fatal(err)
			}
			all := strings.Join(got.Warnings(), "\n")
			if c.want == "" && all != "" || !strings.Contains(all, c.want) || strings.Contains(all, "hunter2") || len(got.Warnings()) > 1 {
				t.Errorf("warns %q, want %q", all, c.want)
			}
		})
	}
}

// Hashing hides nothing if the key can be guessed, or if others can read or replace it.
func TestHashKeyFile(t *testing.T) {
	random := make([]byte, 32)
	rand.Read(random)
	for name, c := range map[string]struct {
		key        []byte
		mode       os.FileMode
		warn, fail string
	}{
		"random":           {key: random, mode: 0o600},
		"of a Secret":      {key: random, mode: 0o440},
		"16 random bytes":  {key: random[:16], mode: 0o600},
		"in hexadecimal":   {key: []byte(hex.EncodeToString(random) + "\n"), mode: 0o600},
		"in base64":        {key: []byte(base64.StdEncoding.EncodeToString(random[:24])), mode: 0o600},
		"read by all":      {key: random, mode: 0o644, warn: "everyone on this machine may read"},
		"written by all":   {key: random, mode: 0o666, fail: "everyone on this machine may write"},
		"short":            {key: random[:15], mode: 0o600, fail: "15 bytes are too few for a key: use at least 16"},
		"zeros":            {key: make([]byte, 32), mode: 0o600, fail: "holds 1 different bytes"},
		"one letter":       {key: bytes.Repeat([]byte("ab"), 20), mode: 0o600, fail: "holds 2 different bytes"},
		"a word":           {key: []byte("passwordpassword\n"), mode: 0o600, warn: "holds a text that could be guessed (at most 75 bits)"},
		"16 hex digits":    {key: []byte("0123456789abcdef"), mode: 0o600, warn: "at most 64 bits"},
		"a date and a pin": {key: []byte("20261123-4711-0815"), mode: 0o600, warn: "at most 97 bits"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "key")
			if err := os.WriteFile(path, c.key, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, c.mode); err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprintf("%ssinks: [{name: a, stdout: {}}]\nsecrets: {hashKeyFile: %s}\n", minimal, path)
			got, err := parse("file", []byte(text), nil, testEnv)
			if c.fail != "" {
				if err == nil || !strings.Contains(err.Error(), "file:5:24: secrets.hashKeyFile: ") || !strings.Contains(err.Error(), c.fail) {
					t.Errorf("got %v, want %q", err, c.fail)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			all := strings.Join(got.Warnings(), "\n")
			if c.warn == "" && all != "" || !strings.Contains(all, c.warn) || len(c.key) < 32 && c.warn != "" && strings.Contains(all, strings.TrimSpace(string(c.key))) {
				t.Errorf("warns %q, want %q", all, c.warn)
			}
		})
	}
}

// A bridge that is tried out on a laptop is not reachable from the network. In a pod it is, because probes come from
// the network.
func TestStatusListensWhereItMay(t *testing.T) {
	for host, want := range map[string]string{"": "127.0.0.1:8080", "10.0.0.1": ":8080"} {
		c, err := parse("file", []byte(minimal+"sinks: [{name: a, stdout: {}}]\n"), nil, func(name string) (string, bool) {
			if name == "KUBERNETES_SERVICE_HOST" {
				return host, true
			}
			return "", false
		})
		if err != nil {
			t.Fatal(err)
		}
		if c.Status.Listen != want {
			t.Errorf("KUBERNETES_SERVICE_HOST=%s: %q", host, c.Status.Listen)
		}
	}
}
