package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/sink"
)

const scalarTail = "\nresources: [pods]\nsinks: [{name: a, file: {path: /f}}]\ncheckpoint: {file: {path: /cp}}\n"

// References stand for values of every type: a number, a switch, a duration and a size, also below a list and where a
// merged map is overridden.
func TestReferencesOfEveryType(t *testing.T) {
	env := map[string]string{"N": "8", "TRUE": "true", "FALSE": "false", "D": "30s", "S": "2Gi", "B": "1048576"}
	size := filepath.Join(t.TempDir(), "size")
	if err := os.WriteFile(size, []byte("64Mi\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := `
cluster: c
kubernetes: {concurrentLists: "${env:N}"}
shutdown: {timeout: "${env:D}"}
leaderElection: {enabled: "${env:FALSE}"}
buffer: {path: /b, maxBytes: "${env:S}", maxAge: "${env:N}h"}
resources:
- &pods {resource: pods, resync: "${env:N}h", metadataOnly: "${env:TRUE}", buffer: "${env:FALSE}"}
- {<<: *pods, resource: services, resync: 2h, metadataOnly: }
sinks:
- {name: a, file: {path: /f, maxSize: "${file:` + size + `}"}}
- {name: b, nats: {url: "nats://n:4222", stream: {create: "${env:TRUE}", maxBytes: "${env:B}"}}}
checkpoint: {file: {path: /cp}}
`
	c, err := parse("file", []byte(text), nil, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil {
		t.Fatal(err)
	}
	pods, services := c.Resources[0], c.Resources[1]
	for _, x := range []struct{ got, want any }{
		{c.Kubernetes.ConcurrentLists, 8},
		{c.Shutdown.Timeout, 30 * time.Second},
		{c.LeaderElection.Enabled, false},
		{c.Buffer.MaxBytes, sink.Bytes(2 << 30)},
		{c.Buffer.MaxAge, 8 * time.Hour},
		{pods.Resync, 8 * time.Hour},
		{pods.MetadataOnly, true},
		{*pods.Buffer, false},
		{services.Resync, 2 * time.Hour},
		{services.MetadataOnly, false},
		{*services.Buffer, false},
		{c.Sinks[0].File.MaxSize, sink.Bytes(64 << 20)},
		{*c.Sinks[1].NATS.Stream.Create, true},
		{c.Sinks[1].NATS.Stream.MaxBytes, sink.Bytes(1 << 20)},
	} {
		if x.got != x.want {
			t.Errorf("got %v, want %v", x.got, x.want)
		}
	}
}

// A setting of a type that is neither a text nor a scalar could not be a reference, and its value would be lost.
func TestEveryTypeIsKnown(t *testing.T) {
	var walk func(of reflect.Type, path string)
	walk = func(of reflect.Type, path string) {
		if _, ok := scalarOf(of); ok {
			return
		}
		switch of.Kind() {
		case reflect.String:
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(of.Elem(), path)
		case reflect.Struct:
			for f := range of.Fields() {
				if key := f.Tag.Get("yaml"); key != "" {
					walk(f.Type, join(path, key))
				}
			}
		default:
			t.Errorf("%s has the type %s, which is not in scalars", path, of)
		}
	}
	walk(reflect.TypeFor[Config](), "")
}

// A message names the reference that causes a mistake, and says when it is empty. It does not show its value.
func TestReferencesThatDoNotFit(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`kubernetes: {concurrentLists: "${env:WORD}"}`, `file:2:31: kubernetes.concurrentLists: expected a whole number, which ${env:WORD} does not stand for`},
		{`shutdown: {timeout: "${env:WORD}"}`, `file:2:21: shutdown.timeout: expected a duration such as 30s, 1h30m or 7d, which ${env:WORD} does not stand for`},
		{`buffer: {maxBytes: "${env:WORD}"}`, `file:2:20: buffer.maxBytes: expected a number of bytes such as 10Gi, which ${env:WORD} does not stand for`},
		{`leaderElection: {enabled: "${env:EMPTY}"}`, `file:2:27: leaderElection.enabled: expected true or false, and ${env:EMPTY} is empty`},
		{`kubernetes: {concurrentLists: "${env:NONE}"}`, `file:2:31: kubernetes.concurrentLists: the environment has no NONE`},
		{`kubernetes: {concurrentLists: "${env:ZERO}"}`, `file:2:31: kubernetes.concurrentLists: it is not valid with what ${env:ZERO} stands for, and that is not shown: look there`},
		{`log: {level: "${env:EMPTY}"}`, `file:2:14: log.level: "${env:EMPTY}" is not one of debug, info, warn, error: ${env:EMPTY} is empty`},
		{`log: {level: "${file:/dev/null}"}`, `file:2:14: log.level: "${file:/dev/null}" is not one of debug, info, warn, error: ${file:/dev/null} is empty`},
		{`log: {level: "${env:WORD}"}`, `file:2:14: log.level: "${env:WORD}" is not one of debug, info, warn, error`},
	} {
		env := map[string]string{"WORD": "hunter2", "EMPTY": "", "ZERO": "0"}
		_, err := parse("file", []byte("cluster: c\n"+c.text+scalarTail), nil, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		if err == nil || err.Error() != c.want {
			t.Errorf("got:\n%v\nwant:\n%s", err, c.want)
		}
	}
}

// An empty password is no mistake for the bridge, and most often one of the user.
func TestEmptyTextIsAWarning(t *testing.T) {
	text := `
cluster: c
resources: [pods]
sinks: [{name: a, nats: {url: "nats://n:4222", auth: {token: "${env:EMPTY}"}, subject: "k8s${env:EMPTY}.{name}"}}]
`
	c, err := parse("file", []byte(text), nil, func(string) (string, bool) { return "", true })
	if err != nil {
		t.Fatal(err)
	}
	want := "file:4:62: sinks[0].nats.auth.token: ${env:EMPTY} is empty, and so is this text"
	if got := strings.Join(c.Warnings(), "\n"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// Editors for Windows begin a file with a byte order mark, and PowerShell writes UTF-16.
func TestByteOrderMark(t *testing.T) {
	const bom, utf16 = "\ufeff", "\xff\xfep\x00w\x00"
	dir := t.TempDir()
	for name, text := range map[string]string{"bom": bom + "hunter2\r\n", "utf16": utf16} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := func(name string) string {
		return "cluster: c\nresources: [pods]\nsinks: [{name: a, nats: {url: \"nats://n\", auth: {token: \"${file:" + filepath.Join(dir, name) + "}\"}}}]\n"
	}
	for _, head := range []string{bom, bom + "# a comment\n", bom + "---\n"} {
		c, err := parse("file", []byte(head+text("bom")), nil, testEnv)
		if err != nil {
			t.Errorf("%q: %v", head, err)
		} else if got := c.Sinks[0].NATS.Auth.Token; got != "hunter2" {
			t.Errorf("the token is %q", got)
		}
	}
	const hint = "it is UTF-16, as some programs for Windows write it: save it as UTF-8"
	if _, err := parse("file", []byte(utf16), nil, testEnv); err == nil || err.Error() != "file: "+hint {
		t.Errorf("a configuration in UTF-16: %v", err)
	}
	if _, err := parse("file", []byte(text("utf16")), nil, testEnv); err == nil || !strings.HasSuffix(err.Error(), hint) {
		t.Errorf("a token in UTF-16: %v", err)
	}
}

// What people write for durations and sizes means what it says, in each key.
func TestUnits(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1d": 24 * time.Hour, "1d12h": 36 * time.Hour, "1h 30m": 90 * time.Minute, "7d 1s": 7*24*time.Hour + time.Second, "90m": 90 * time.Minute,
	} {
		c, err := parse("file", []byte("cluster: c\nbuffer: {maxAge: "+text+"}"+scalarTail), nil, testEnv)
		if err != nil || c.Buffer.MaxAge != want {
			t.Errorf("%s: %v, %v", text, c, err)
		}
	}
	for _, text := range []string{"P1D", "1 day", "d", "1.5d", "9999999999999d", "20", "-"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%s is %s", text, got)
		}
	}
	for text, want := range map[string]sink.Bytes{"1073741824": 1 << 30, `"1073741824"`: 1 << 30, "1Gi": 1 << 30, "1.5Gi": 3 << 29, "1G": 1e9} {
		all := "cluster: c\nbuffer: {maxBytes: X}\naudit: {maxBytes: X}\nresources: [pods]\ncheckpoint: {file: {path: /cp}}\nsinks:\n" +
			"- {name: a, file: {path: /f, maxSize: X}}\n- {name: b, nats: {embedded: {dir: /d, maxBytes: X, maxMemory: X}, stream: {maxBytes: X}}}\n"
		c, err := parse("file", []byte(strings.ReplaceAll(all, "X", text)), nil, testEnv)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		nats := c.Sinks[1].NATS
		for _, got := range []sink.Bytes{c.Buffer.MaxBytes, c.Audit.MaxBytes, c.Sinks[0].File.MaxSize, nats.Embedded.MaxBytes, nats.Embedded.MaxMemory, nats.Stream.MaxBytes} {
			if got != want {
				t.Errorf("%s is %d", text, got)
			}
		}
	}
}
