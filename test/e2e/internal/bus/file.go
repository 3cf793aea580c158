package bus

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// ReadFiles reads the file of a file sink at path and the files rotated from it, oldest first, and returns the number of
// files. No bridge may be writing. It returns an error for a line that is not a valid event, or is not complete.
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
		if err != nil && !(n == 0 && errors.Is(err, fs.ErrNotExist)) { // absent if the bridge was killed right after a rotation
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
