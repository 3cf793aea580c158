// Package stdout writes a line per event, for pipes and for people.
//
// Delivery is at least once. The next Write completes a line that an error
// cut off.
package stdout

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// The formats of a line.
const (
	JSON   = "json"   // the event as a structured CloudEvent
	Pretty = "pretty" // one short line for people
)

// Config says how a line looks.
type Config struct {
	Format string `yaml:"format"` // json (default), an event per line, or pretty, a short line for people
	Color  bool   `yaml:"color"`  // colour the type (ANSI); pretty only. Default: false
}

// Complete returns the configuration with every default filled in, or what is
// wrong with it.
func (c Config) Complete() (Config, error) {
	switch c.Format {
	case "":
		c.Format = JSON
	case JSON, Pretty:
	default:
		return c, fmt.Errorf("format: %q is not known: set %s or %s", c.Format, JSON, Pretty)
	}
	return c, nil
}

// Options are the options of a sink.
type Options struct {
	Config Config
	Writer io.Writer // nil: standard output. The sink never closes it
	// Render appends a record as a line, with its line end. nil: the format of Config.
	Render func(dst []byte, r *event.Record) []byte
}

// Sink is a [sink.Sink] that writes lines. Write blocks while Writer blocks, and checks
// its context only between batches.
type Sink struct {
	render func(dst []byte, r *event.Record) []byte
	w      io.Writer
	buf    []byte
	seq    uint64 // of the last batch
	done   int    // written bytes of this batch
}

var _ sink.Sink = (*Sink)(nil)

// New returns a sink. An error is about the configuration.
func New(o Options) (*Sink, error) {
	c, err := o.Config.Complete()
	if err != nil {
		return nil, err
	}
	s := &Sink{render: appendJSON, w: o.Writer}
	if c.Format == Pretty {
		s.render = Line(c.Color)
	}
	if o.Render != nil {
		s.render = o.Render
	}
	if s.w == nil {
		s.w = os.Stdout
	}
	return s, nil
}

// Open connects to nothing.
func (s *Sink) Open(context.Context, []byte) error {
	s.seq, s.done = 0, 0
	return nil
}

// Write writes the batch at once. It returns the error of the writer, for example EPIPE
// if the reader has closed the pipe.
func (s *Sink) Write(ctx context.Context, b *event.Batch) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if b.Seq != s.seq {
		s.seq, s.done = b.Seq, 0
	}
	s.buf = s.buf[:0]
	for i := range b.Records {
		s.buf = s.render(s.buf, &b.Records[i])
	}
	n, err := s.w.Write(s.buf[s.done:])
	s.done += n
	if err != nil {
		return nil, fmt.Errorf("write %d bytes of events: %w", len(s.buf), err)
	}
	return nil, nil
}

// Close leaves the writer open.
func (s *Sink) Close() error { return nil }

func appendJSON(dst []byte, r *event.Record) []byte {
	if bytes.IndexByte(r.Value, '\n') < 0 {
		return append(append(dst, r.Value...), '\n')
	}
	var line bytes.Buffer
	if json.Compact(&line, r.Value) != nil {
		return append(append(dst, bytes.ReplaceAll(r.Value, []byte{'\n'}, []byte{' '})...), '\n')
	}
	return append(append(dst, line.Bytes()...), '\n')
}
