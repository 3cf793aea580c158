package logfile

import (
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// backupTime is the form of the time in the names of renamed files: backupTimeFormat in gopkg.in/natefinch/lumberjack.v2.
const backupTime = "2006-01-02T15-04-05.000"

const packedSuffix = ".gz"

// directory has the files of one log.
type directory struct {
	path           string // of the present file
	prefix, suffix string // of the names of renamed files
}

func newDirectory(path string) directory {
	name := filepath.Base(path)
	suffix := filepath.Ext(name)
	return directory{path, strings.TrimSuffix(name, suffix) + "-", suffix}
}

// entry is a file of a log.
type entry struct {
	path    string
	id      fileID
	present bool // it has the log's own name; the others were renamed
	packed  bool // it is compressed
}

// snapshot returns the files from the oldest to the present one as they were at one time. [ErrChanging]: they change all the time.
func (d directory) snapshot() ([]entry, error) {
	before, err := d.list()
	for range 10 {
		if err != nil {
			return nil, err
		}
		var after []entry
		after, err = d.list()
		if err == nil && slices.Equal(before, after) {
			return after, nil
		}
		before = after
	}
	if err == nil {
		err = ErrChanging
	}
	return nil, err
}

func (d directory) list() ([]entry, error) {
	dir := filepath.Dir(d.path)
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []entry // os.ReadDir sorts by name, which sorts renamed files by time
	var present []entry
	for _, file := range files {
		name := file.Name()
		e := entry{path: filepath.Join(dir, name), present: name == filepath.Base(d.path), packed: strings.HasSuffix(name, packedSuffix)}
		if !e.present && !d.isBackup(name) {
			continue
		}
		info, err := os.Stat(e.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		e.id = idOf(info)
		switch {
		case e.present:
			e.packed = false
			present = append(present, e)
		case e.packed && len(list) > 0 && list[len(list)-1].path+packedSuffix == e.path: // it is still being written
		default:
			list = append(list, e)
		}
	}
	return append(list, present...), nil
}

// name returns the name of the file before it was compressed.
func (e *entry) name() string { return strings.TrimSuffix(filepath.Base(e.path), packedSuffix) }

func (d directory) isBackup(name string) bool {
	text, ok := strings.CutPrefix(strings.TrimSuffix(name, packedSuffix), d.prefix)
	if !ok {
		return false
	}
	if text, ok = strings.CutSuffix(text, d.suffix); !ok {
		return false
	}
	_, err := time.Parse(backupTime, text)
	return err == nil
}

// open opens the file, and returns nil if the name has come to be that of another file, or of none.
func (e *entry) open() (*logFile, error) {
	file, err := os.Open(e.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil || idOf(info) != e.id {
		return nil, errors.Join(err, file.Close())
	}
	l := &logFile{File: file, id: e.id}
	if !e.packed {
		return l, nil
	}
	if l.unpacked, err = gzip.NewReader(file); err != nil {
		if isEnd(err) {
			err = nil
		}
		return nil, errors.Join(err, file.Close())
	}
	return l, nil
}
