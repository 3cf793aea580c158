package file

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/kubebridge/internal/base/diskguard"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
)

// Pebble accepts a log that ends too early as the log of a crash, and does not detect a
// missing log file. So the number of commits is kept twice: in the database, where each
// commit adds 1, and in a separate file, which is written after the commit is
// synced. The database must have at least as many commits as the file says.
//
// The file is in the page cache as soon as it is written, which is enough after
// kill -9. It is synced at most once per countSync, which bounds the cost of a commit. After a power
// failure the number may be older by this time.
const (
	countName = "COMMITS"
	countSync = time.Second

	// The file is always this long, and written in place. Disks write the 512 bytes of
	// a sector as a whole, also when the power fails.
	countFormat = "%020d %08x\n"
	countBytes  = 30
)

// countKey is below every key of a checkpoint, which are text.
var countKey = []byte{0}

var countOne = binary.AppendUvarint(nil, 1)

// countMerger adds numbers, so that the sum is too low if a log file between two others is
// missing.
var countMerger = &pebble.Merger{
	Name: "kubebridge.sum",
	Merge: func(_, value []byte) (pebble.ValueMerger, error) {
		s := new(sum)
		return s, s.MergeNewer(value)
	},
}

type sum uint64

func (s *sum) MergeNewer(value []byte) error {
	n, length := binary.Uvarint(value)
	if length <= 0 {
		return fmt.Errorf("%w: the number of commits does not parse", checkpoint.ErrCorrupt)
	}
	*s += sum(n)
	return nil
}

func (s *sum) MergeOlder(value []byte) error { return s.MergeNewer(value) }

func (s *sum) Finish(bool) ([]byte, io.Closer, error) {
	return binary.AppendUvarint(nil, uint64(*s)), nil, nil
}

// storedCommits returns how many commits a database has.
func storedCommits(db *pebble.DB) (uint64, error) {
	value, closer, err := db.Get(countKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var s sum
	err = s.MergeNewer(value)
	return uint64(s), cmp.Or(err, closer.Close())
}

// checkCommits returns ErrCorrupt when a database has fewer commits than were
// synced.
func checkCommits(db *pebble.DB, synced uint64) (stored uint64, err error) {
	stored, err = storedCommits(db)
	if err == nil && stored < synced {
		err = fmt.Errorf("%w: it has %d commits, and %d were synced: a log file (*.log), or its end, is missing", checkpoint.ErrCorrupt, stored, synced)
	}
	return stored, err
}

// syncedCommits reads the file of a checkpoint: at least this number of commits was synced.
func syncedCommits(on vfs.FS, path string) (uint64, error) {
	f, err := on.Open(on.PathJoin(path, countName))
	if err != nil {
		return 0, err
	}
	text, err := io.ReadAll(io.LimitReader(f, countBytes))
	if err = cmp.Or(err, f.Close()); err != nil {
		return 0, err
	}
	var n uint64
	if _, err := fmt.Sscanf(string(text), "%d", &n); err != nil || !bytes.Equal(text, countText(n)) {
		return 0, fmt.Errorf("%w: its file %s does not parse", checkpoint.ErrCorrupt, countName)
	}
	return n, nil
}

// countText is what the file holds: the number and its checksum.
func countText(n uint64) []byte {
	return fmt.Appendf(nil, countFormat, n, crc32.ChecksumIEEE(binary.BigEndian.AppendUint64(nil, n)))
}

// counter writes the file of an open checkpoint. Writes that fail freeze the disk.
type counter struct {
	file   vfs.File
	made   uint64
	synced time.Time
}

// newCounter makes the file, or opens the existing one. made is the number of commits
// of the database.
func newCounter(disk *diskguard.Guard, path string, made uint64, create bool) (*counter, error) {
	c := &counter{made: made}
	name := disk.PathJoin(path, countName)
	var err error
	if !create {
		c.file, err = disk.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
		return c, err
	}
	if c.file, err = disk.Create(name, vfs.WriteCategoryUnspecified); err != nil {
		return nil, err
	}
	return c, c.write()
}

// add counts a commit, which has been synced.
func (c *counter) add() error {
	c.made++
	if err := c.write(); err != nil {
		return err
	}
	if now := time.Now(); now.Sub(c.synced) >= countSync {
		c.synced = now
		return c.file.SyncData()
	}
	return nil
}

func (c *counter) write() error {
	_, err := c.file.WriteAt(countText(c.made), 0)
	return err
}

func (c *counter) close() error {
	return cmp.Or(c.file.Sync(), c.file.Close())
}
