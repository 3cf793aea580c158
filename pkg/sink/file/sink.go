// Package file writes events to a file, one structured CloudEvent (JSON) per
// line, and rotates it by size.
//
// Durable means: written and synced (fsync), and so is the directory after a
// rotation. A batch is in one file, whole or not at all: what a failed write or
// a crash leaves of a line is cut off. Delivery is at least once: a crash before
// the checkpoint's commit repeats at most two batches, with the same ids.
//
// The file belongs to the sink while it is open, and is locked (on Unix). Others
// may read it, and move, truncate or remove it: the sink goes on in a new file,
// or at the end of what is left. After a loss of power, not of the process alone,
// the lines of a batch that was not acknowledged may be damaged in the middle.
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

// Options are what a sink is made of.
type Options struct {
	Config Config
}

// Sink is a [sink.Sink] that writes lines to a file.
type Sink struct {
	c   Config
	f   *os.File // nil until it could be opened
	end int64    // bytes of f that are acknowledged
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

// Write writes and syncs the batch as one piece. A disk cannot be interrupted:
// the end of its context is noticed before it begins.
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
	if s.end > 0 && s.end+int64(len(s.buf)) > s.c.MaxSize {
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

// Close closes the file and so unlocks it.
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
