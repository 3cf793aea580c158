package file

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/kubebridge/internal/base/diskguard"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
)

const (
	cacheBytes    = 32 << 20 // smaller inventories use less
	memTableBytes = 2 << 20
	// Full memtables that wait for the disk count as bytes of the cache: at most three
	// of them, 6 of 32 MiB.
	memTables = 3
	openFiles = 100
	// firstLevelBytes is the size of the first level below L0. Changes are merged with this level before they are merged with all of
	// a large inventory. With pebble's default of 64 MiB there would be one level, and every few memtables would rewrite each of its
	// tables.
	firstLevelBytes = 8 << 20
	// indexBytes is large enough for a table's index to be one block, which saves
	// the search of one block per look-up.
	indexBytes = 256 << 10
)

// openPebble opens the database in a directory that inspect has found to be a checkpoint or
// empty. The caller holds l and keeps it.
func openPebble(path string, l *pebble.Lock, disk *diskguard.Guard, opts Options, create bool) (db *pebble.DB, err error) {
	o := &pebble.Options{
		FS:         disk,
		DisableWAL: opts.memory,
		Lock:       l,
		ReadOnly:   opts.readOnly,
		// A missing database is damage, and must not be replaced by an empty store.
		ErrorIfNotExists: !create,
		Logger:           logger{disk},
		Merger:           countMerger,
		EventListener: &pebble.EventListener{
			BackgroundError: disk.Fail,
			DataCorruption:  func(i pebble.DataCorruptionInfo) { disk.Fail(i.Details) },
		},
		CacheSize:                   cacheBytes,
		MemTableSize:                memTableBytes,
		MemTableStopWritesThreshold: memTables,
		MaxOpenFiles:                openFiles,
		LBaseMaxBytes:               firstLevelBytes,
		// The format is fixed, so that an older program can still open the database after a newer
		// library has written it. This format distinguishes damage in the log from its end.
		FormatMajorVersion: pebble.FormatTableFormatV6,
	}
	for i := range o.Levels {
		o.Levels[i].IndexBlockSize = indexBytes
	}
	if opts.CacheBytes > 0 {
		o.CacheSize = opts.CacheBytes
	}
	o.Experimental.FileCacheShards = 1
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionNone })
	defer func() {
		if r := recover(); r != nil { // damaged files can make pebble panic
			db, err = nil, fmt.Errorf("%w: %v", checkpoint.ErrCorrupt, r)
		}
	}()
	return pebble.Open(path, o)
}

// logger keeps pebble from ending the process, and from writing to its log.
type logger struct{ disk *diskguard.Guard }

func (logger) Infof(string, ...any)  {}
func (logger) Errorf(string, ...any) {}

func (l logger) Fatalf(format string, args ...any) {
	for _, a := range args {
		if err, ok := a.(error); ok { // the text may hold a stack trace
			l.disk.Fail(err)
			return
		}
	}
	l.disk.Fail(fmt.Errorf(format, args...))
}

// classify distinguishes damage from errors of the system.
func classify(err error) error {
	if err == nil || errors.Is(err, checkpoint.ErrCorrupt) {
		return err
	}
	// A missing file is also damage.
	if pebble.IsCorruptionError(err) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", checkpoint.ErrCorrupt, firstLine{err})
	}
	return err
}

// classifyOpen is classify for errors of opening the database. Many of these errors about damaged
// files have no type.
func classifyOpen(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return classify(err)
	}
	return fmt.Errorf("%w: %w", checkpoint.ErrCorrupt, firstLine{err})
}

// firstLine is an error without the details that pebble appends.
type firstLine struct{ error }

func (e firstLine) Error() string {
	text, _, _ := strings.Cut(e.error.Error(), "\n")
	return text
}

func (e firstLine) Unwrap() error { return e.error }
