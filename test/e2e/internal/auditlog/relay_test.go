package auditlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// memory is a destination that fails every second time.
type memory struct {
	lines []string
	calls int
}

func (m *memory) Send(_ context.Context, lines [][]byte) error {
	if m.calls++; m.calls%2 == 1 {
		return errors.New("away")
	}
	for _, line := range lines {
		m.lines = append(m.lines, strings.TrimSpace(string(line)))
	}
	return nil
}

// Each disturbance does to the records what its name says, also when the log is rotated.
func TestRelay(t *testing.T) {
	want := []string{}
	for i := range 40 {
		want = append(want, fmt.Sprint("record ", i))
	}
	for _, c := range []struct {
		name string
		d    Disturbance
		is   func(got []string) bool
	}{
		{"none", None, func(got []string) bool { return slices.Equal(got, want) }},
		{"drop", Drop, func(got []string) bool { return len(got) > 10 && len(got) < 40 && slices.IsSortedFunc(got, byNumber) }},
		{"repeat", Repeat, func(got []string) bool {
			return slices.Equal(got, slices.Concat(want[:20], want[:20], want[20:], want[20:]))
		}},
		{"delay", Delay, func(got []string) bool { return slices.Equal(got, want) }},
		{"shuffle", Shuffle, func(got []string) bool {
			ordered := slices.Equal(got, want)
			slices.SortFunc(got, byNumber)
			return !ordered && slices.Equal(got, want)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			write := func(text string) {
				t.Helper()
				if err := (&File{Path: path}).Send(t.Context(), [][]byte{[]byte(text)}); err != nil {
					t.Fatal(err)
				}
			}
			write("before the relay\n")
			to := &memory{}
			r, err := NewRelay(path, 1, func(line []byte) bool { return bytes.HasPrefix(line, []byte("record")) }, to)
			if err != nil {
				t.Fatal(err)
			}
			step := func() {
				t.Helper()
				for range 2 { // the first one fails
					lines, err := r.read()
					if err != nil {
						t.Fatal(err)
					}
					r.pass(t.Context(), lines)
				}
			}
			r.Disturb(c.d)
			write(strings.Join(want[:19], "\n") + "\nother\n" + want[19][:3])
			write(want[19][3:] + "\n")
			step()
			if (c.d == Delay || c.d == Shuffle) && len(to.lines) > 0 {
				t.Errorf("%d records came, want none before the end of the disturbance", len(to.lines))
			}
			write(strings.Join(want[20:30], "\n") + "\n")
			if err := (&File{Path: path}).Rotate(); err != nil {
				t.Fatal(err)
			}
			write(strings.Join(want[30:], "\n") + "\n")
			step()
			r.Disturb(None)
			step()
			if !c.is(slices.Clone(to.lines)) {
				t.Errorf("got %q", to.lines)
			}
			if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 2 {
				t.Errorf("files %v, %v", files, err)
			}
			if err := r.file.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func byNumber(a, b string) int {
	var x, y int
	_, _ = fmt.Sscanf(a, "record %d", &x)
	_, _ = fmt.Sscanf(b, "record %d", &y)
	return x - y
}
