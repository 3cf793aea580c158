package spool

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// MaxFrameBytes is the largest payload of a frame.
	MaxFrameBytes = 64 << 20
	// MaxMetaBytes is the largest metadata of a chain.
	MaxMetaBytes = 1 << 20
	// MaxNameBytes is the longest name of a stream.
	MaxNameBytes = 1 << 10
	// LeastKeyBytes is the shortest Options.Key.
	LeastKeyBytes = 16

	blockBytes          = 256 << 10 // frames in a block, unless a frame is larger or Flush is called
	defaultSegmentBytes = 64 << 20
	openFiles           = 64 // that are open for appending; each reader has at most one more, while it reads
)

// Options of a spool. The zero value is usable.
type Options struct {
	// MaxBytes limits the bytes of all segments, and of frames that were appended and not flushed. 0 means no limit.
	MaxBytes int64
	// SegmentBytes is the length from which on a segment is ended and another one begins. 0 means 64 MiB, or a sixteenth of MaxBytes
	// where that is less: only whole segments are deleted, so a small spool needs small ones.
	SegmentBytes int64
	// Key seals the frames: at least LeastKeyBytes, which must be random. Nil: frames are not encrypted. Segments that were written with
	// another key, or with none, are left alone and cannot be read: see ErrKey.
	Key []byte
	// Local seals the streams of [Spool.LocalStream] with a key that is kept in the directory, so that they can be read with any Key. It keeps
	// no secret from those who can read the directory. False: these streams are sealed like others.
	Local bool
	// FS has the directory. Nil means the operating system's files.
	FS vfs.FS
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

// Spool is a directory with streams. Its methods can be called at the same time.
type Spool struct {
	options Options
	dir     *directory
	codec   *codec
	foreign []string
	handles handles
	used    atomic.Int64 // bytes of segments, and reserved for frames that were not flushed
	closed  atomic.Bool

	localKey []byte // nil: Options.Local is not set

	mu      sync.Mutex
	streams map[string]*Stream // by the hash of the name
}

// Open opens the spool in a directory, which is created if it does not exist. It reads the start and the end of each segment, and
// all of those that were open at a crash. Errors are ErrLocked and those of the file system; damaged segments are no error: List shows
// them.
func Open(path string, o Options) (*Spool, error) {
	codec, err := newCodec()
	if err != nil {
		return nil, err
	}
	return open(path, o, codec)
}

func open(path string, o Options, codec *codec) (*Spool, error) {
	if o.Key != nil && len(o.Key) < LeastKeyBytes {
		return nil, fmt.Errorf("open spool %s: the key has %d bytes: use at least %d random ones", path, len(o.Key), LeastKeyBytes)
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.SegmentBytes = cmp.Or(o.SegmentBytes, defaultSegment(o.MaxBytes))
	dir, err := openDirectory(o.FS, o.FS.PathJoin(path))
	if err != nil {
		return nil, err
	}
	s := &Spool{options: o, dir: dir, codec: codec, streams: map[string]*Stream{}}
	if o.Local {
		if s.localKey, err = dir.localKey(); err != nil {
			return nil, errors.Join(fmt.Errorf("open spool: %w: %w", ErrUnusable, err), dir.lock.Close())
		}
	}
	s.handles.limit = openFiles
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("open spool: %w: %w", ErrUnusable, err), dir.lock.Close())
	}
	return s, nil
}

// defaultSegment returns the length of the segments of a spool with a limit.
func defaultSegment(maxBytes int64) int64 {
	if part := maxBytes / 16; part > 0 {
		return min(part, defaultSegmentBytes)
	}
	return defaultSegmentBytes
}

// load reads what the directory has.
func (s *Spool) load() error {
	names, foreign, err := s.dir.list()
	if err != nil {
		return err
	}
	s.foreign = foreign
	slices.Sort(s.foreign)
	slices.Sort(names) // by stream, and in it by first frame
	ended := true
	for _, name := range names {
		f, err := s.dir.fs.Open(s.dir.join(name))
		if err != nil {
			return err
		}
		one, err := load(f, name, s)
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("read segment %s: %w", s.dir.join(name), err)
		}
		if !one.ended { // what is read of it, and what is appended behind it, must not vanish with a later crash
			ended = false
			if err := s.dir.syncFile(name); err != nil {
				return err
			}
		}
		s.used.Add(one.bytes)
		s.stream(one.hash).loaded(one)
	}
	if ended {
		return nil
	}
	return s.dir.sync()
}

// Stream returns the stream with a name of at most MaxNameBytes bytes. It needs not exist yet. Calls with one name return one Stream.
func (s *Spool) Stream(name string) *Stream {
	st := s.stream(hashOf(name))
	st.mu.Lock()
	defer st.mu.Unlock()
	st.name = name
	return st
}

// LocalStream is Stream, for a stream whose next segments are sealed as [Options].Local says.
func (s *Spool) LocalStream(name string) *Stream {
	st := s.Stream(name)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.local = s.localKey != nil
	return st
}

// key returns the key of a stream's segments.
func (s *Spool) key(local bool) []byte {
	if local {
		return s.localKey
	}
	return s.options.Key
}

// opens returns the key that opens a segment, or why none does.
func (s *Spool) opens(h *sealHeader) (local bool, err error) {
	if s.localKey != nil && h.fits(s.localKey) == nil {
		return true, nil
	}
	return false, h.fits(s.options.Key)
}

func (s *Spool) stream(hash string) *Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, ok := s.streams[hash]
	if !ok {
		st = &Stream{spool: s, hash: hash, next: 1, flushed: 1}
		s.streams[hash] = st
	}
	return st
}

// all returns the streams in no order.
func (s *Spool) all() []*Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*Stream, 0, len(s.streams))
	for _, st := range s.streams {
		list = append(list, st)
	}
	return list
}

// List returns all segments, by stream and in the order of their frames.
func (s *Spool) List() (list []Segment) {
	for _, st := range s.all() {
		list = append(list, st.Segments()...)
	}
	slices.SortFunc(list, func(a, b Segment) int {
		return cmp.Or(cmp.Compare(a.Stream, b.Stream), cmp.Compare(a.File, b.File))
	})
	return list
}

// Foreign returns the names in the directory that were not the spool's when it was opened. They are not touched.
func (s *Spool) Foreign() []string { return slices.Clone(s.foreign) }

// Bytes returns what counts against Options.MaxBytes.
func (s *Spool) Bytes() int64 { return s.used.Load() }

// MaxBytes returns Options.MaxBytes.
func (s *Spool) MaxBytes() int64 { return s.options.MaxBytes }

// TrimBefore deletes, from the start of each stream, segments whose last block was written before a time.
func (s *Spool) TrimBefore(t time.Time) error {
	var errs []error
	for _, st := range s.all() {
		errs = append(errs, st.trim(func(seg *segment) bool { return seg.written.Before(t) }))
	}
	return errors.Join(errs...)
}

// Close ends the segments that are open, and makes them durable. Frames that were not flushed are lost. Later calls return ErrClosed.
func (s *Spool) Close() error {
	if s.closed.Swap(true) {
		return ErrClosed
	}
	var errs []error
	for _, st := range s.all() {
		errs = append(errs, st.close())
	}
	return errors.Join(append(errs, s.dir.lock.Close())...)
}

// reserve counts bytes that will be written. It returns ErrFull if they are too many.
func (s *Spool) reserve(n int64) error {
	for {
		used := s.used.Load()
		if limit := s.options.MaxBytes; limit > 0 && used+n > limit {
			return fmt.Errorf("%w: it has %d of %d bytes, and the frame may need %d", ErrFull, used, limit, n)
		}
		if s.used.CompareAndSwap(used, used+n) {
			return nil
		}
	}
}
