package file_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kubebridge/kubebridge/internal/base/links"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/file"
	"github.com/kubebridge/kubebridge/pkg/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The outage of a file sink is a missing directory, as with a volume that is not mounted.
func TestSuite(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) *sinktest.Harness {
		dir := filepath.Join(t.TempDir(), "volume")
		must(t, os.Mkdir(dir, 0o755))
		c := file.Config{Path: filepath.Join(dir, "events.jsonl"), MaxSize: 64 << 10, Keep: 100_000}
		return &sinktest.Harness{
			New: func(t *testing.T) sink.Sink { return newSink(t, c) },
			Read: func(t *testing.T) []sinktest.Message {
				var msgs []sinktest.Message
				for _, line := range everything(t, c.Path) {
					msgs = append(msgs, sinktest.Message{Value: []byte(line)})
				}
				return msgs
			},
			Stop:  func(t *testing.T) { must(t, os.Rename(dir, dir+".away")) },
			Start: func(t *testing.T) { must(t, os.Rename(dir+".away", dir)) },
		}
	})
}

// A line that a crash has cut off must not be joined to the next one, and acknowledged lines must not be removed with it.
func TestTornLineIsCutOff(t *testing.T) {
	whole := `{"n":1}` + "\n" + `{"n":2}` + "\n"
	for _, c := range []struct{ name, found, kept string }{
		{"half a line", whole + `{"n":3`, whole},
		{"a line without its end", whole + `{"n":3}`, whole},
		{"blocks that were never written", whole + strings.Repeat("\x00", 200_000), whole},
		{"nothing but half a line", `{"n":`, ""},
		{"all whole", whole, whole},
		{"empty", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "events")
			must(t, os.WriteFile(path, []byte(c.found), 0o600))
			s := open(t, file.Config{Path: path})
			write(t, s, `{"n":"next"}`)
			if got, want := text(t, path), c.kept+`{"n":"next"}`+"\n"; got != want {
				t.Errorf("the file holds %.100q, want %.100q", got, want)
			}
		})
	}
}

// Consumers follow the rotated files by number. They expect whole batches, that the oldest files are removed first, and no more
// files than configured.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	line := func(n int) string { return fmt.Sprintf(`{"n":"%03d"}`, n) } // 12 bytes with its end
	for _, stale := range []int{4, 5, 7} {                               // left from a larger keep; 7 does not belong to the sink
		must(t, os.WriteFile(fmt.Sprintf("%s.%d", path, stale), nil, 0o600))
	}
	s := open(t, file.Config{Path: path, MaxSize: 40, Keep: 3})
	write(t, s, slices.Repeat([]string{line(0)}, 10)...) // larger than the limit of a file, with no earlier file to rotate
	if _, err := os.Stat(path + ".1"); err == nil {
		t.Error("an empty file was rotated")
	}
	for n := range 20 {
		write(t, s, line(2*n), line(2*n+1))
	}
	write(t, s, slices.Repeat([]string{line(40)}, 10)...) // larger than the limit of a file

	got := map[string]int{}
	for _, name := range []string{"", ".1", ".2", ".3", ".4", ".5", ".7"} {
		if raw, err := os.ReadFile(path + name); err == nil {
			got[name] = bytes.Count(raw, []byte("\n"))
		}
	}
	want := map[string]int{"": 10, ".1": 2, ".2": 2, ".3": 2, ".7": 0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines per file (-want +got):\n%s", diff)
	}
	lines := append([]string{line(34), line(35), line(36), line(37), line(38), line(39)}, slices.Repeat([]string{line(40)}, 10)...)
	if diff := cmp.Diff(lines, everything(t, path)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// People move, truncate and remove such files. logrotate does this in both of its modes.
func TestFileTakenAway(t *testing.T) {
	for _, c := range []struct {
		name string
		take func(t *testing.T, path string)
		left string
	}{
		{"moved", func(t *testing.T, path string) { must(t, os.Rename(path, path+".moved")) }, ""},
		{"removed", func(t *testing.T, path string) { must(t, os.Remove(path)) }, ""},
		{"emptied", func(t *testing.T, path string) { must(t, os.Truncate(path, 0)) }, ""},
		{"cut in a line", func(t *testing.T, path string) { must(t, os.Truncate(path, 12)) }, `{"n":1}` + "\n"},
		{"replaced", func(t *testing.T, path string) {
			must(t, os.Rename(path, path+".moved"))
			must(t, os.WriteFile(path, []byte("{}\n"), 0o600))
		}, "{}\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "events")
			s := open(t, file.Config{Path: path})
			write(t, s, `{"n":1}`, `{"n":2}`)
			c.take(t, path)
			write(t, s, `{"n":3}`)
			if got, want := text(t, path), c.left+`{"n":3}`+"\n"; got != want {
				t.Errorf("the file holds %q, want %q", got, want)
			}
		})
	}
}

// With a wrong path, the sink must not remove the last line of another program's file.
func TestForeignFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "passwd")
	const foreign = "root:x:0:0:root\nnobody:x:65534" // no line break at its end
	must(t, os.WriteFile(path, []byte(foreign), 0o600))
	s := newSink(t, file.Config{Path: path})
	var refused *sink.RefusedError
	if err := s.Open(t.Context(), nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), path) || refused.Hint == "" {
		t.Errorf("Open: %v, want a RefusedError that names the file and says what to do", err)
	}
	if got := text(t, path); got != foreign {
		t.Errorf("the file holds %q, want what it held", got)
	}

	path = filepath.Join(t.TempDir(), "events")
	s = open(t, file.Config{Path: path})
	must(t, os.Remove(path))
	must(t, os.WriteFile(path, []byte(foreign), 0o600))
	if _, err := s.Write(t.Context(), batch("{}")); err == nil || errors.As(err, &refused) {
		t.Errorf("Write: %v, want an error to be tried again: only Open refuses", err)
	}
}

// Another user who may create files in the directory must not make the sink write through a link to a file of the sink's user.
func TestLinkOfAnotherUser(t *testing.T) {
	dir, victim := t.TempDir(), filepath.Join(t.TempDir(), "victim")
	must(t, os.WriteFile(victim, []byte("{}\ntorn"), 0o600))
	path := filepath.Join(dir, "events")
	s := open(t, file.Config{Path: path})
	write(t, s, `{"n":1}`)
	must(t, os.Remove(path))
	must(t, os.Symlink(victim, path))
	if os.Geteuid() != 0 {
		t.Log("only root can make links of other users")
		return
	}
	must(t, os.Lchown(path, 12345, 12345))
	if _, err := s.Write(t.Context(), batch("{}")); !errors.Is(err, links.ErrForeign) {
		t.Errorf("Write: %v", err)
	}
	if err := newSink(t, file.Config{Path: path}).Open(t.Context(), nil); !errors.Is(err, links.ErrForeign) {
		t.Errorf("Open: %v", err)
	}
	if got := text(t, victim); got != "{}\ntorn" {
		t.Errorf("the file that the link leads to holds %q", got)
	}
	must(t, os.Remove(path))
	write(t, s, `{"n":2}`)
}

// The second writer must wait, and must not mistake the end of the first writer's batch for a torn line.
func TestOneWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	c := file.Config{Path: path, MaxSize: 20}
	first := open(t, c)
	for n := range 3 { // the lock also holds after a rotation
		write(t, first, fmt.Sprintf(`{"n":"first %d"}`, n))
		must(t, os.WriteFile(path, []byte(text(t, path)+`{"n":`), 0o600))
		second := newSink(t, c)
		if err := second.Open(t.Context(), nil); err == nil || !strings.Contains(err.Error(), path) {
			t.Fatalf("Open by a second sink: %v, want an error that names the file", err)
		}
		if !strings.HasSuffix(text(t, path), `{"n":`) {
			t.Fatal("the second sink cut the file of the first")
		}
	}
	must(t, first.Close())
	write(t, open(t, c), `{"n":"second"}`)
	want := []string{`{"n":"first 0"}`, `{"n":"first 1"}`, `{"n":"first 2"}`, `{"n":"second"}`}
	if diff := cmp.Diff(want, everything(t, path)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestOneLinePerEvent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	s := open(t, file.Config{Path: path})
	write(t, s, "{\n  \"id\": \"a\\nb\"\n}", `{"id":"c"}`)
	if got, want := text(t, path), "{\"id\":\"a\\nb\"}\n{\"id\":\"c\"}\n"; got != want {
		t.Errorf("the file holds %q, want %q", got, want)
	}
	var record *sink.RecordError
	if _, err := s.Write(t.Context(), batch(`{"id":"d"}`, "{\n")); !errors.As(err, &record) || record.Index != 1 {
		t.Errorf("Write of a record with incomplete JSON returns %v, want a RecordError of record 1", err)
	}
	write(t, s, `{"id":"d"}`)
	if n := len(everything(t, path)); n != 3 {
		t.Errorf("the file holds %d lines, want 3", n)
	}
}

func TestConfigMistakes(t *testing.T) {
	_, err := file.New(file.Options{Config: file.Config{MaxSize: -1, Keep: -2}})
	if err == nil {
		t.Fatal("New took it")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 3 {
		t.Fatalf("New: %q, want three lines", err)
	}
	for i, want := range []string{"path: ", "maxSize: -1", "keep: -2"} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d is %q, want it to begin with %q", i, lines[i], want)
		}
	}
}

func newSink(t *testing.T, c file.Config) *file.Sink {
	t.Helper()
	s, err := file.New(file.Options{Config: c})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func open(t *testing.T, c file.Config) *file.Sink {
	t.Helper()
	s := newSink(t, c)
	must(t, s.Open(t.Context(), nil))
	return s
}

func batch(values ...string) *event.Batch {
	b := &event.Batch{Seq: 1}
	for _, v := range values {
		b.Records = append(b.Records, event.Record{Value: []byte(v)})
	}
	return b
}

func write(t *testing.T, s *file.Sink, values ...string) {
	t.Helper()
	_, err := s.Write(t.Context(), batch(values...))
	must(t, err)
}

// everything returns every line of the file and of its rotated files, oldest first.
func everything(t *testing.T, path string) (lines []string) {
	t.Helper()
	for n := 0; ; n++ {
		name := path
		if n > 0 {
			name = fmt.Sprintf("%s.%d", path, n)
		}
		raw, err := os.ReadFile(name)
		if n > 0 && errors.Is(err, os.ErrNotExist) {
			return lines
		}
		must(t, err)
		if len(raw) > 0 {
			lines = append(strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n"), lines...)
		}
	}
}

func text(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	must(t, err)
	return string(raw)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
