package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
)

// Damage is an error, never an empty or shorter checkpoint. Otherwise every event would be published again, or the deletion of
// an object would never be published.
func TestDamage(t *testing.T) {
	glob := func(t *testing.T, path, pattern string) string {
		t.Helper()
		names, err := filepath.Glob(filepath.Join(path, pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("no %s in %s: %v", pattern, path, err)
		}
		return names[len(names)-1]
	}
	change := func(pattern string, change func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			name := glob(t, path, pattern)
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, change(b), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(pattern string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			if err := os.Remove(glob(t, path, pattern)); err != nil {
				t.Fatal(err)
			}
		}
	}
	half := func(b []byte) []byte { return b[:len(b)/2] }
	garble := func(b []byte) []byte {
		for i := len(b) / 3; i < len(b)/3+40 && i < len(b); i++ {
			b[i] ^= 0xa5
		}
		return b
	}
	for name, damage := range map[string]func(*testing.T, string){
		"marker garbled":          change(markerName, func([]byte) []byte { return []byte("what?") }),
		"marker empty":            change(markerName, func([]byte) []byte { return nil }),
		"manifest garbled":        change("MANIFEST-*", garble),
		"manifest half":           change("MANIFEST-*", half),
		"manifest empty":          change("MANIFEST-*", func([]byte) []byte { return nil }),
		"manifest gone":           remove("MANIFEST-*"),
		"manifest's marker gone":  remove("marker.manifest.*"),
		"format's marker gone":    remove("marker.format-version.*"),
		"table garbled":           change("*.sst", garble),
		"table half":              change("*.sst", half),
		"table empty":             change("*.sst", func([]byte) []byte { return nil }),
		"table gone":              remove("*.sst"),
		"everything else removed": func(t *testing.T, path string) { keepOnly(t, path, markerName) },
	} {
		t.Run(name, func(t *testing.T) {
			path := written(t)
			damage(t, path)
			err := readAll(path)
			if !errors.Is(err, checkpoint.ErrCorrupt) {
				t.Fatalf("error %v, want %v", err, checkpoint.ErrCorrupt)
			}
			if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "bridge checkpoint reset --sink audit") || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q", err)
			}
			if err := Reset(path); err != nil {
				t.Fatalf("reset of a damaged checkpoint: %v", err)
			}
			s, err := Open(path, testIdentity, Options{})
			if err != nil {
				t.Fatalf("after reset: %v", err)
			}
			defer s.Close()
			if got := filled(t, s); got != -1 {
				t.Errorf("after reset commit %d is there", got)
			}
		})
	}
}

func keepOnly(t *testing.T, path, keep string) {
	t.Helper()
	names, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if n.Name() != keep {
			if err := os.Remove(filepath.Join(path, n.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// readAll opens a checkpoint and reads it twice, because damage that one call has found must also be an error of the next one.
func readAll(path string) error {
	s, err := Open(path, testIdentity, Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	all := func() error {
		n := 0
		err := s.Scan(nil, func(_, v []byte) error {
			if n++; !bytes.HasPrefix(v, []byte("9 ")) && !bytes.HasPrefix(v, []byte("{")) {
				return fmt.Errorf("read %.10q, which was not written last", v)
			}
			return nil
		})
		if err == nil && n != 21 {
			return fmt.Errorf("%d keys of 21, and no error", n)
		}
		return err
	}
	first := all()
	if again := all(); first != nil && again == nil {
		return fmt.Errorf("%v at first, then nothing", first)
	}
	if first != nil {
		if err := s.Commit(context.Background(), fill(11)); err == nil {
			return fmt.Errorf("%v, yet it takes commits", first)
		}
	}
	return first
}

// Changed bytes, at any place, are detected.
func TestGarbledAnywhere(t *testing.T) {
	path := written(t)
	names, err := filepath.Glob(filepath.Join(path, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for range 60 {
		name := names[rand.IntN(len(names))]
		was, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(was) == 0 {
			continue
		}
		copyOf := testDir(t)
		if err := os.CopyFS(copyOf, os.DirFS(path)); err != nil {
			t.Fatal(err)
		}
		now := bytes.Clone(was)
		at := rand.IntN(len(now))
		now[at] ^= byte(1 + rand.IntN(255))
		if err := os.WriteFile(filepath.Join(copyOf, filepath.Base(name)), now, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := readAll(copyOf); err != nil && !errors.Is(err, checkpoint.ErrCorrupt) && !errors.Is(err, checkpoint.ErrNewer) && !errors.Is(err, checkpoint.ErrOlder) {
			t.Errorf("%s, byte %d of %d, %x to %x: %v", filepath.Base(name), at, len(was), was[at], now[at], err)
		}
	}
}
