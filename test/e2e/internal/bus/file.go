package bus

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// ReadFiles reads what a file sink has written to path and what was rotated from it, oldest first, and how many files that
// are. No bridge may be writing. The error is about a line that is no valid event, or is not complete.
func ReadFiles(path string) (messages []Message, files int, err error) {
	for exists(fmt.Sprintf("%s.%d", path, files+1)) {
		files++
	}
	for n := files; n >= 0; n-- {
		name := path
		if n > 0 {
			name = fmt.Sprintf("%s.%d", path, n)
		}
		content, err := os.ReadFile(name)
		if err != nil && !(n == 0 && errors.Is(err, fs.ErrNotExist)) { // rotated, and killed then
			return nil, 0, err
		}
		number := 0
		for line := range bytes.Lines(content) {
			number++
			if !bytes.HasSuffix(line, []byte("\n")) {
				return nil, 0, fmt.Errorf("%s:%d is torn: %.200s", name, number, line)
			}
			m, err := parseAlone(line)
			if err != nil {
				return nil, 0, fmt.Errorf("%s:%d: %w: %.2000s", name, number, err, line)
			}
			m.Place = fmt.Sprintf("%s:%d", name, number)
			messages = append(messages, m)
		}
	}
	return messages, files + 1, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
