package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kubebridge/kubebridge/internal/base/links"
)

// errForeign is returned for a file that no sink has written.
var errForeign = errors.New("it holds something else than events")

// ready makes sure that f is the file at the path, and that it ends after the last acknowledged batch.
func (s *Sink) ready() error {
	if s.f == nil {
		return s.reopen()
	}
	there, err := os.Stat(s.c.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return s.reopen()
	}
	if err != nil {
		return err
	}
	own, err := s.f.Stat()
	switch {
	case err != nil:
		return err
	case !os.SameFile(there, own):
		return s.reopen()
	case own.Size() > s.end: // the rest of a failed Write
		return s.f.Truncate(s.end)
	case own.Size() < s.end: // another process has truncated the file
		s.end, err = cutTorn(s.f)
	}
	return err
}

// reopen makes f the file at the path. After an error f is unchanged.
func (s *Sink) reopen() error {
	f, end, err := openFile(s.c.Path)
	if err != nil {
		return err
	}
	if s.f != nil {
		_ = s.f.Close() // all acknowledged lines are synced
	}
	s.f, s.end = f, end
	return nil
}

// rotate moves the file to Path.1, after it has moved the older files. When it
// is repeated after an error, it uses a number that is already free.
func (s *Sink) rotate() error {
	free := 1
	for free < s.c.Keep && exists(s.rotated(free)) {
		free++
	}
	for n := free; n > 0; n-- { // the oldest file is replaced
		if err := os.Rename(s.rotated(n-1), s.rotated(n)); err != nil {
			return err
		}
	}
	for n := s.c.Keep + 1; ; n++ { // remove files from a time when Keep was larger
		if err := os.Remove(s.rotated(n)); err != nil {
			break
		}
	}
	return s.reopen()
}

// rotated returns the path of the n-th file, counted from the current file.
func (s *Sink) rotated(n int) string {
	if n == 0 {
		return s.c.Path
	}
	return fmt.Sprintf("%s.%d", s.c.Path, n)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// openFile opens or creates a file, durably, and returns the end of its last line. It does not follow links of other users.
func openFile(path string) (_ *os.File, end int64, err error) {
	f, err := links.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o640) // readable for the group
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	if err := lockFile(f); err != nil {
		return nil, 0, fmt.Errorf("lock %s: %w: another sink or process writes it", path, err)
	}
	if err := checkOurs(f); err != nil {
		return nil, 0, err
	}
	if end, err = cutTorn(f); err != nil {
		return nil, 0, err
	}
	return f, end, syncDir(filepath.Dir(path))
}

// checkOurs refuses a file without events, so that a wrong path does not cut off the last line of another file.
func checkOurs(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errForeign
	}
	first := make([]byte, 1)
	n, err := f.ReadAt(first, 0)
	if n == 1 && first[0] != '{' {
		return errForeign
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}

// cutTorn cuts off an incomplete last line, and returns the size.
func cutTorn(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	end := info.Size()
	part := make([]byte, 64<<10)
	for end > 0 {
		from := max(0, end-int64(len(part)))
		n, err := f.ReadAt(part[:end-from], from)
		if err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(part[:n], '\n'); i >= 0 {
			end = from + int64(i) + 1
			break
		}
		end = from
	}
	if end == info.Size() {
		return end, nil
	}
	if err := f.Truncate(end); err != nil {
		return 0, err
	}
	return end, f.Sync()
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
