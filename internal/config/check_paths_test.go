package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A directory where a file is needed, and the other way round, is found before the bridge runs.
func TestFileOrDirectory(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	const text = `
cluster: c
resources: [pods]
sinks:
- {name: a, file: {path: FILE}}
- {name: b, nats: {embedded: {dir: DIR/embedded}}}
checkpoint: {file: {path: DIR/checkpoint}}
buffer: {path: DIR/buffer}
audit: {path: DIR/audit, file: FILE}
secrets: {hashKeyFile: FILE}
`
	good := strings.NewReplacer("FILE", file, "DIR", dir).Replace(text)
	if _, err := parse("file", []byte(good), nil, testEnv); err != nil {
		t.Errorf("%v\n%s", err, good)
	}
	bad := strings.NewReplacer("FILE", dir, "DIR/embedded", file, "DIR/checkpoint", file, "DIR/buffer", file, "DIR/audit", file).Replace(text)
	_, err := parse("file", []byte(bad), nil, testEnv)
	for _, path := range []string{"sinks[0].file.path", "audit.file", "secrets.hashKeyFile"} {
		if want := fmt.Sprintf(": %s: %s is a directory: name a file in it", path, dir); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("no %s in\n%v", want, err)
		}
	}
	for _, path := range []string{"sinks[1].nats.embedded.dir", "checkpoint.file.path", "buffer.path", "audit.path"} {
		if want := fmt.Sprintf(": %s: %s is a file: name a directory", path, file); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("no %s in\n%v", want, err)
		}
	}
}
