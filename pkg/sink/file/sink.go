// Package file writes events to a file, one structured CloudEvent (JSON) per
// line, and rotates it by size.
//
// Durable means that the lines are written and synced (fsync); after a
// rotation the directory is synced, too. A batch is complete in one file, or absent: an incomplete line of a
// failed write or a crash is cut off. Delivery is at least once: a crash before
// the checkpoint's commit repeats at most two batches, with the same ids.
//
// The file is locked (on Unix) while the sink is open. Other processes
// may read, move, truncate or remove it: the sink continues in a new file,
// or at the end of the truncated file. After a power failure, the lines of a batch that was not
// acknowledged may be damaged in the middle. A crash of only the process does not damage lines.
package file

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// Options are the options of a sink.
type Options struct {
	Config Config
}

// Sink is a [sink.Sink] that writes lines to a file.
type Sink struct {
	c   Config
	f   *os.File // nil until it is open
	end int64    // acknowledged bytes of f
	buf []byte
}

var _ sink.Sink = (*Sink)(nil)

// New returns a sink. An error is about the configuration.
func New(o Options) (*Sink, error) {
	c, err := o.Config.Complete()
	if err != nil {
		return nil, err
	}
	return &Sink{c: c}, nil
}

// Open opens or creates the file, locks it and cuts off a torn last line. A file
// that holds something else is a [sink.RefusedError].
func (s *Sink) Open(ctx context.Context, _ []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := s.ready()
	if errors.Is(err, errForeign) {
		return &sink.RefusedError{
			What: fmt.Sprintf("file %q", s.c.Path), Err: errForeign,
			Hint: "give the sink a file of its own, or move this one away",
		}
	}
	return err
}

// Write writes and syncs the batch as one piece. It checks ctx only before it begins, because a
// write to a disk cannot be interrupted.
func (s *Sink) Write(ctx context.Context, b *event.Batch) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(b.Records) == 0 {
		return nil, nil
	}
	if err := s.encode(b.Records); err != nil {
		return nil, err
	}
	if err := s.ready(); err != nil {
		return nil, err
	}
	if s.end > 0 && s.end+int64(len(s.buf)) > int64(s.c.MaxSize) {
		if err := s.rotate(); err != nil {
			return nil, fmt.Errorf("rotate: %w", err)
		}
	}
	if _, err := s.f.WriteAt(s.buf, s.end); err != nil {
		return nil, fmt.Errorf("write %d bytes of events: %w", len(s.buf), err)
	}
	if err := s.f.Sync(); err != nil {
		return nil, fmt.Errorf("write %d bytes of events: %w", len(s.buf), err)
	}
	s.end += int64(len(s.buf))
	return nil, nil
}

// Close closes the file, which unlocks it.
func (s *Sink) Close() error {
	if s.f == nil {
		return nil
	}
	err := s.f.Close()
	s.f = nil
	return err
}

// encode fills the buffer with a line for each record.
func (s *Sink) encode(records []event.Record) error {
	s.buf = s.buf[:0]
	for i := range records {
		if err := s.line(records[i].Value); err != nil {
			return &sink.RecordError{Index: i, Err: fmt.Errorf("write as one line: %w", err)}
		}
	}
	return nil
}

func (s *Sink) line(value []byte) error {
	if bytes.IndexByte(value, '\n') < 0 {
		s.buf = append(append(s.buf, value...), '\n')
		return nil
	}
	var flat bytes.Buffer
	if err := json.Compact(&flat, value); err != nil {
		return err
	}
	s.buf = append(append(s.buf, flat.Bytes()...), '\n')
	return nil
}
