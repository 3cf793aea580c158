package config

import (
	"path/filepath"

	"github.com/kubebridge/kubebridge/pkg/sink/nats"
)

// block is the part of a sink's configuration that says of which kind it is.
type block struct {
	kind     string       // its key in the file
	set      bool         // the sink has it
	complete func() error // fills in the defaults of one that is set, and returns what is wrong
}

func newBlock[C interface{ Complete() (C, error) }](kind string, at *C) block {
	return block{kind, at != nil, func() (err error) { *at, err = (*at).Complete(); return err }}
}

// blocks are those that a sink can have.
func (s *Sink) blocks() []block {
	return []block{newBlock("kafka", s.Kafka), newBlock("nats", s.NATS), newBlock("file", s.File), newBlock("stdout", s.Stdout)}
}

// kind is kafka, nats, file or stdout; "" if the sink is none of them, which [Load] refuses.
func (s *Sink) kind() string {
	for _, b := range s.blocks() {
		if b.set {
			return b.kind
		}
	}
	return ""
}

// hasMessages reports whether the sink writes messages to topics or subjects, which have headers and a limit of size. Other
// sinks write lines.
func (s *Sink) hasMessages() bool { return s.Kafka != nil || s.NATS != nil }

// writesLines reports whether the sink has a kind, and it is not one of messages.
func (s *Sink) writesLines() bool { return s.kind() != "" && !s.hasMessages() }

// embedded is the server that the sink runs itself, nil for none.
func (s *Sink) embedded() *nats.Embedded {
	if s.NATS == nil {
		return nil
	}
	return s.NATS.Embedded
}

// InKafka reports whether the sink's checkpoint is kept in Kafka, beside what it
// writes: always where it delivers exactly once, else unless a directory is named.
func (c *Config) InKafka(s *Sink) bool {
	return s.Kafka != nil && (s.Kafka.ExactlyOnce() || c.Checkpoint.File.Path == "")
}

// CheckpointDir is the directory of a sink's checkpoint. "": it is kept on the bus, or, of stdout, in memory.
func (c *Config) CheckpointDir(s *Sink) string {
	if c.Checkpoint.File.Path == "" || c.InKafka(s) {
		return ""
	}
	return filepath.Join(c.Checkpoint.File.Path, s.Name)
}

// InNATS reports whether the sink's checkpoint is kept on the NATS that it writes to.
// It trails the sink's stream, so only a sink with one of its own can have that.
func (c *Config) InNATS(s *Sink) bool {
	return c.Checkpoint.File.Path == "" && s.NATS != nil && s.NATS.IsLog()
}
