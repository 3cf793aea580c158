// Package logfile follows the file of the API server's audit log backend (--audit-log-path), also when it is rotated, and across restarts.
//
// The API server rotates with gopkg.in/natefinch/lumberjack.v2: it renames audit.log to audit-2026-11-26T02-19-22.123.log in the same
// directory, and creates audit.log. Later it may compress the renamed file to .log.gz, and it removes the oldest ones. A [Follower] reads
// renamed files to their end and in the order of their names. If the clock of the API server is set back, a file can get a name before those that were
// read already: it is read next, and that is a gap, because the order of the lines is not known. It recognizes a file by device and inode together with its first bytes, because
// inodes are used again, or by its first bytes alone, because device numbers change when a machine starts, and compression makes another file.
//
// Each complete line is read once, or a [GapError] is returned: a file that is due was removed, or the file was truncated. Lines that
// another program's copytruncate removes before they are read are lost. That is noticed by the first bytes, unless none of the file was read.
// Behind a gap, lines can come again: if the file is not found, the follower begins with the oldest one.
package logfile

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
)

const (
	defaultMaxLine = 32 << 20
	defaultPoll    = 250 * time.Millisecond
	chunkBytes     = 1 << 20
	// maxNames bounds the names in a position.
	maxNames = 100
)

// Options of a [Follower]. Path and Parser are required.
type Options struct {
	Path   string
	Parser *audit.Parser
	// MaxLine limits the bytes of a line. Longer ones count as unparsable. 0 means 32 MiB. An audit event has at most about
	// 25 MiB: twice an object of 1.5 MiB (the limit of etcd) and 1 MiB of headers, of which each byte takes up to six in JSON.
	MaxLine int
	// Poll is the interval at which Wait looks for more. 0 means 250 ms.
	Poll time.Duration
}

// Position is a place in a log: behind a line of one of its files. The zero value is the start of the present file.
type Position struct {
	fileID
	Offset int64 `json:"offset,omitzero"`
	// Head is a digest of the first HeadBytes bytes of the file.
	Head      string `json:"head,omitzero"`
	HeadBytes int    `json:"headBytes,omitzero"`
	// Read has the names of the newest renamed files that were read to their ends, sorted, with a slash between two of them.
	Read string `json:"read,omitzero"`
}

// Chunk is what some lines have, and the position behind them.
type Chunk struct {
	audit.Batch
	Position Position
}

// GapError is returned where lines may be missing. The follower continues with what is there.
type GapError struct{ Why string }

func (e *GapError) Error() string { return "audit log: lines may be missing: " + e.Why }

// ErrChanging is returned by Next if files were renamed or removed while it looked for the next one. There may be lines that it has not read. The caller
// waits, and calls it again.
var ErrChanging = errors.New("audit log: its files are being renamed")

// errNoFile is returned if none of the files is there any more, for example because the directory is not mounted.
var errNoFile = fmt.Errorf("no file of the log is there: %w", fs.ErrNotExist)

// Follower reads a log. It is for one goroutine.
type Follower struct {
	options Options
	dir     directory
	from    Position // behind the last line that was returned

	started bool
	file    *logFile        // that is being read; nil: none is open
	final   bool            // the file was renamed, so nothing will be added to it
	done    int64           // where in the file the last line ends that was returned
	skipped int64           // bytes behind it that belong to a line that is too long
	buffer  []byte          // what was read behind them
	torn    int             // files that ended in the middle of a line
	read    map[string]bool // names of renamed files that were read to their ends, but for the oldest ones
}

// Open returns a follower of a log from a position on. The file needs not exist yet.
func Open(o Options, from Position) *Follower {
	o.MaxLine = cmp.Or(o.MaxLine, defaultMaxLine)
	o.Poll = cmp.Or(o.Poll, defaultPoll)
	return &Follower{options: o, dir: newDirectory(o.Path), from: from}
}

// Next returns the next lines. Its errors are io.EOF if there is none yet, a *[GapError], [ErrChanging], and those of the file system, after which it
// can be called again. io.EOF says that all lines were returned that were written before the call. When the follower
// begins with a file without a position, it returns a chunk without lines first: with its position, this file is read on also if it is renamed before a
// line of it is kept.
func (f *Follower) Next() (Chunk, error) {
	for {
		if f.file == nil {
			if err := f.start(); err != nil {
				return Chunk{}, err
			}
			if f.from == (Position{}) && f.file.id != (fileID{}) {
				f.from = f.position(0)
				return Chunk{Position: f.from}, nil
			}
		}
		n, err := f.fill()
		if err != nil {
			return Chunk{}, err
		}
		if c, ok := f.lines(); ok {
			return c, nil
		}
		if n > 0 {
			continue
		}
		if err := f.leave(); err != nil {
			return Chunk{}, err
		}
	}
}

// Wait waits for the poll interval. It returns an error if ctx ends before.
func (f *Follower) Wait(ctx context.Context) error {
	t := time.NewTimer(f.options.Poll)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close closes the file that is open. Next opens it again.
func (f *Follower) Close() error {
	if f.file == nil {
		return nil
	}
	old := f.file
	f.file, f.skipped, f.buffer = nil, 0, nil
	return old.Close()
}

// start opens the file at the position.
func (f *Follower) start() error {
	list, err := f.dir.snapshot()
	if err != nil {
		return fmt.Errorf("follow audit log: %w", err)
	}
	switch {
	case len(list) == 0 && (f.started || f.from != (Position{})):
		return fmt.Errorf("follow audit log: %w", errNoFile)
	case len(list) == 0:
		return io.EOF
	case f.from != (Position{}):
		at, file, err := search(list, f.from)
		if err != nil {
			return fmt.Errorf("follow audit log: %w", err)
		}
		if file == nil {
			f.from, f.started = Position{}, true
			return &GapError{"the file that was read last is not there any more"}
		}
		f.read = map[string]bool{}
		for name := range strings.SplitSeq(f.from.Read, "/") { // others may have been renamed since, also to a name that sorts before these
			f.read[name] = true
		}
		delete(f.read, "") // there was no name
		f.use(file, list[at])
		return nil
	case f.started: // behind a gap
		f.hasRead(nil)
		return f.open(list[0])
	case list[len(list)-1].present:
		f.hasRead(list[:len(list)-1])
		return f.open(list[len(list)-1])
	}
	return io.EOF
}

// hasRead notes that these files, and no others, were read to their ends.
func (f *Follower) hasRead(list []entry) {
	f.read = map[string]bool{}
	for i := range list {
		f.read[list[i].name()] = true
	}
}

// position returns a position in the file that is being read.
func (f *Follower) position(offset int64) Position {
	p := f.file.position(offset)
	names := slices.Sorted(maps.Keys(f.read))
	p.Read = strings.Join(names[max(0, len(names)-maxNames):], "/")
	return p
}

// open begins to read a file from its start. [ErrChanging]: it was renamed or removed since it was listed.
func (f *Follower) open(e entry) error {
	file, err := e.open()
	if err != nil {
		return fmt.Errorf("follow audit log: %w", err)
	}
	if file == nil {
		return ErrChanging
	}
	f.use(file, e)
	return nil
}

func (f *Follower) use(file *logFile, e entry) {
	if f.file != nil {
		_ = f.file.Close()
	}
	if f.skipped+int64(len(f.buffer)) > 0 {
		f.torn++
	}
	f.started, f.file, f.final = true, file, !e.present
	f.done, f.skipped, f.buffer = file.offset, 0, f.buffer[:0]
}

// fill reads more into the buffer, and returns how many bytes.
func (f *Follower) fill() (int, error) {
	have := len(f.buffer)
	f.buffer = slices.Grow(f.buffer, chunkBytes)
	n, err := f.file.read(f.buffer[have : have+chunkBytes])
	f.buffer = f.buffer[:have+n]
	if errors.Is(err, errTruncated) {
		f.done, f.skipped, f.buffer = 0, 0, f.buffer[:0]
		return 0, &GapError{"the file was truncated"}
	}
	if err != nil {
		return 0, fmt.Errorf("follow audit log: %w", err)
	}
	return n, nil
}

// lines takes the complete lines from the buffer.
func (f *Follower) lines() (c Chunk, ok bool) {
	end := bytes.LastIndexByte(f.buffer, '\n') + 1
	if end > 0 {
		text := f.buffer[:end]
		if f.skipped > 0 { // the rest of a line that is too long
			_, text, _ = bytes.Cut(text, []byte("\n"))
			c.Fail(errTooLong)
		}
		f.parse(text, &c.Batch)
		f.done += f.skipped + int64(end)
		f.skipped = 0
		f.buffer = append(f.buffer[:0], f.buffer[end:]...)
	}
	if f.skipped > 0 || len(f.buffer) > f.options.MaxLine {
		f.skipped += int64(len(f.buffer))
		f.buffer = f.buffer[:0]
	}
	if end == 0 {
		return c, false
	}
	for ; f.torn > 0; f.torn-- {
		c.Fail(errTorn)
	}
	f.from = f.position(f.done)
	c.Position = f.from
	return c, true
}

// parse parses complete lines, of which some may be too long although they were read at once.
func (f *Follower) parse(text []byte, b *audit.Batch) {
	for line := range bytes.Lines(text) {
		if len(line) > f.options.MaxLine {
			b.Fail(errTooLong)
			continue
		}
		f.options.Parser.Lines(line, b)
	}
}

// leave is called at the end of a file. It returns io.EOF if more may come, [ErrChanging] if something may be there that was not read, and nil if there
// is something to read.
func (f *Follower) leave() error {
	if !f.final {
		info, err := os.Stat(f.options.Path)
		if err == nil && f.file.is(info) {
			return io.EOF
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("follow audit log: %w", err)
		}
		f.final = true // what was written before it was renamed is read next
		return nil
	}
	list, err := f.dir.snapshot()
	if err != nil {
		return fmt.Errorf("follow audit log: %w", err)
	}
	at, err := f.file.among(list)
	switch {
	case err != nil:
		return fmt.Errorf("follow audit log: %w", err)
	case len(list) == 0:
		return fmt.Errorf("follow audit log: %w", errNoFile)
	case at < 0:
		f.hasRead(nil)
		if err := f.open(list[0]); err != nil {
			return err
		}
		return &GapError{"the file that was read last was removed before the next one was read"}
	case list[at].present:
		f.final = false // it had another name for a while
		return ErrChanging
	}
	next := f.next(list, at)
	if next < 0 { // it is not there yet
		return io.EOF
	}
	if err := f.open(list[next]); err != nil {
		return err
	}
	if next < at {
		return &GapError{"files were not renamed in the order of their names, as if the clock of the API server was set back"}
	}
	return nil
}

// next returns the index of the file behind one that was read to its end, -1 if it is not there yet. It is the first one, in the order of names, that is
// not read and has not come back from the time before: it is behind the newest one that was read with a lower name.
func (f *Follower) next(list []entry, at int) int {
	name, before := list[at].name(), ""
	for read := range f.read {
		if read < name {
			before = max(before, read)
		}
	}
	maps.DeleteFunc(f.read, func(read string, _ bool) bool { return read < before })
	f.read[name] = true
	return slices.IndexFunc(list, func(e entry) bool {
		return !f.read[e.name()] && (e.present || e.name() > name || before != "" && e.name() > before)
	})
}

var (
	errTooLong = errors.New("a line of the audit log is too long")
	errTorn    = errors.New("a line of the audit log has no end")
)
