package textfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A password that an editor has saved with a byte order mark is the password without it.
func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	for text, want := range map[string]string{"\ufeffhunter2\r\n": "hunter2\r\n", "hunter2": "hunter2", "": "", "\ufeff": "", "a\ufeffb": "a\ufeffb"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(path); err != nil || got != want {
			t.Errorf("%q is read as %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"\xff\xfeh\x00", "\xfe\xff\x00h"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(path); !errors.Is(err, ErrUTF16) || !strings.Contains(err.Error(), path) || got != "" {
			t.Errorf("%q is read as %q, %v", text, got, err)
		}
	}
	if _, err := Read(path + ".none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
}

// A wrong file in place of a CA is named, also one that Windows has written.
func TestCAs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.pem")
	for text, want := range map[string]string{"": " has no certificate in PEM", "-----BEGIN CERTIFICATE-----\n": " has no certificate in PEM", "\xff\xfeh\x00": "UTF-16"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := CAs(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := CAs(path + ".none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
}
