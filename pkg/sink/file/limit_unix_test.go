//go:build unix

package file_test

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/pkg/sink/file"
)

// The disk becomes full in the middle of a line. Once there is room, the batch must be written at the same position, without
// leftovers of the failed attempts, even if the pipeline has made the batch shorter. The kernel's limit on the size of a file
// simulates the full disk.
func TestDiskFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	s := open(t, file.Config{Path: path})
	write(t, s, `{"n":1}`)

	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	free := limit(t, syscall.RLIMIT_FSIZE, 21) // in the middle of the third line
	var errs [3]error
	for i := range errs {
		_, errs[i] = s.Write(t.Context(), batch(`{"n":2}`, `{"n":3}`))
	}
	partial := text(t, path)
	free()

	for _, err := range errs {
		if err == nil {
			t.Error("Write to a full disk returned no error")
		}
	}
	if len(partial) != 21 {
		t.Fatalf("the file has %d bytes: the disk was not full in the middle of a line", len(partial))
	}
	write(t, s, `{"n":2}`)
	want := []string{`{"n":1}`, `{"n":2}`}
	if diff := cmp.Diff(want, everything(t, path)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// A rotation that fails half-way is tried again at every Write. It must not remove another old file each time.
func TestFailingRotationLosesNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		fail func(t *testing.T, path string) (heal func())
	}{
		{
			"before anything was moved", func(t *testing.T, path string) func() {
				must(t, os.MkdirAll(path+".3/full", 0o700))
				return func() { must(t, os.RemoveAll(path+".3")) }
			},
		},
		{
			"after all were moved", func(t *testing.T, _ string) func() { return limit(t, syscall.RLIMIT_NOFILE, 0) },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "events")
			s := open(t, file.Config{Path: path, MaxSize: 20, Keep: 3})
			for n := range 3 {
				write(t, s, fmt.Sprintf(`{"n":"before %d"}`, n))
			}
			want := append(everything(t, path), `{"n":"after"}`)
			heal := c.fail(t, path)
			var errs [5]error
			for i := range errs {
				_, errs[i] = s.Write(t.Context(), batch(`{"n":"after"}`))
			}
			heal()
			for i, err := range errs {
				if err == nil {
					t.Fatalf("Write %d returned no error", i)
				}
			}
			write(t, s, `{"n":"after"}`)
			if diff := cmp.Diff(want, everything(t, path)); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}

// limit lowers one of the process's limits until free is called.
func limit(t *testing.T, resource int, to uint64) (free func()) {
	t.Helper()
	var was syscall.Rlimit
	must(t, syscall.Getrlimit(resource, &was))
	lower := was
	lower.Cur = to
	must(t, syscall.Setrlimit(resource, &lower))
	return func() { must(t, syscall.Setrlimit(resource, &was)) }
}
