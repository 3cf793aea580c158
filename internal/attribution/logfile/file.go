package logfile

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
)

const (
	// headBytes is how much of the start of a file identifies it. An audit event has its auditID among the first 200 bytes.
	headBytes = 1 << 10
	// leastHead is how much identifies a file without its inode.
	leastHead = 200
)

var errTruncated = errors.New("truncated")

// fileID identifies a file as long as it exists.
type fileID struct {
	Device uint64 `json:"device,omitzero"`
	Inode  uint64 `json:"inode,omitzero"`
}

// logFile is a file that is being read. One that is compressed does not change.
type logFile struct {
	*os.File
	id       fileID
	unpacked *gzip.Reader // nil: it is not compressed
	offset   int64        // of what is read next, unpacked
	head     []byte       // the first bytes, as far as they were read, at most headBytes
}

// is reports whether the file is the one that info describes.
func (l *logFile) is(info fs.FileInfo) bool {
	own, err := l.Stat()
	return err == nil && os.SameFile(own, info)
}

// read reads on. At the end it returns 0. With errTruncated, the file is read from its start next.
func (l *logFile) read(b []byte) (n int, err error) {
	if l.unpacked != nil {
		n, err = io.ReadFull(l.unpacked, b)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = nil
		}
	} else {
		n, err = l.ReadAt(b, l.offset)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if l.unpacked == nil {
		// After the read: if the file was truncated before it, and written again, then the bytes at the start are others now.
		if err := l.check(l.offset + int64(n)); err != nil {
			l.offset, l.head = 0, nil
			return 0, err
		}
	}
	if more := headBytes - len(l.head); more > 0 && int64(len(l.head)) == l.offset {
		l.head = append(l.head, b[:min(n, more)]...)
	}
	l.offset += int64(n)
	return n, nil
}

// check returns errTruncated if the file is shorter than it was, or begins with other bytes.
func (l *logFile) check(size int64) error {
	info, err := l.Stat()
	if err != nil {
		return err
	}
	start := make([]byte, len(l.head))
	if _, err := l.ReadAt(start, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if info.Size() < size || !bytes.Equal(start, l.head) {
		return errTruncated
	}
	return nil
}

// position returns a position in the file.
func (l *logFile) position(offset int64) Position {
	head := l.head[:min(int64(len(l.head)), offset)]
	return Position{fileID: l.id, Offset: offset, Head: digest(head), HeadBytes: len(head)}
}

func digest(head []byte) string {
	sum := sha256.Sum256(head)
	return hex.EncodeToString(sum[:8])
}

// among returns the index of the file in a list, -1 if it is not there. It may have been compressed since it was opened.
func (l *logFile) among(list []entry) (int, error) {
	for i := range list {
		if !list[i].packed && l.unpacked == nil && list[i].id == l.id && list[i].id != (fileID{}) {
			return i, nil
		}
	}
	at, file, err := search(list, l.position(l.offset))
	if file != nil {
		err = file.Close()
	}
	return at, err
}

// search opens the file that a position is in, by its inode first, and returns its index. nil: it is not in the list.
func search(list []entry, p Position) (int, *logFile, error) {
	for _, byID := range []bool{true, false} {
		for i, e := range list {
			if byID && (e.packed || e.id != p.fileID || e.id == (fileID{})) || !byID && p.HeadBytes < leastHead {
				continue
			}
			file, err := e.openAt(p)
			if err != nil || file != nil {
				return i, file, err
			}
		}
	}
	return -1, nil, nil
}

// openAt opens the file at a position, and returns nil if it is not the file that the position is in.
func (e *entry) openAt(p Position) (*logFile, error) {
	file, err := e.open()
	if file == nil || err != nil {
		return nil, err
	}
	ok, err := file.goTo(p)
	if !ok || err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// goTo moves to a position, and reports whether it is in this file. The file was just opened.
func (l *logFile) goTo(p Position) (bool, error) {
	var from io.Reader = l.unpacked
	if l.unpacked == nil {
		from = io.NewSectionReader(l, 0, 1<<62)
	}
	head := make([]byte, min(headBytes, p.Offset))
	n, err := io.ReadFull(from, head)
	if err != nil && !isEnd(err) {
		return false, err
	}
	if n < len(head) || p.HeadBytes > n || digest(head[:p.HeadBytes]) != p.Head {
		return false, nil
	}
	if l.unpacked != nil {
		_, err = io.CopyN(io.Discard, l.unpacked, p.Offset-int64(n))
	} else if err = l.check(p.Offset); errors.Is(err, errTruncated) {
		return false, nil
	}
	if err != nil && !isEnd(err) {
		return false, err
	}
	l.offset, l.head = p.Offset, head
	return err == nil, nil
}

// isEnd reports whether a file has ended before its time. A compressed file may be one that is still being written.
func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
