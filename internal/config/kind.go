package config

import (
	"path/filepath"

	"github.com/kubebridge/kubebridge/pkg/sink/nats"
)

// block is the part of a sink's configuration that determines its kind.
type block struct {
	kind     string       // its key in the file
	set      bool         // the sink has it
	complete func() error // fills in the defaults of a block that is set, and returns its mistakes
}

func newBlock[C interface{ Complete() (C, error) }](kind string, at *C) block {
	return block{kind, at != nil, func() (err error) { *at, err = (*at).Complete(); return err }}
}

// blocks returns the blocks that a sink can have.
func (s *Sink) blocks() []block {
	return []block{newBlock("kafka", s.Kafka), newBlock("nats", s.NATS), newBlock("file", s.File), newBlock("stdout", s.Stdout)}
}

// kind returns kafka, nats, file or stdout; "" if the sink has no block, which [Load] rejects.
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

// writesLines reports whether the sink has a kind that writes lines.
func (s *Sink) writesLines() bool { return s.kind() != "" && !s.hasMessages() }

// embedded returns the NATS server that the sink runs itself, nil for none.
func (s *Sink) embedded() *nats.Embedded {
	if s.NATS == nil {
		return nil
	}
	return s.NATS.Embedded
}

// InKafka reports whether the sink's checkpoint is kept in Kafka: always with delivery
// exactly-once, and otherwise unless a directory is set.
func (c *Config) InKafka(s *Sink) bool {
	return s.Kafka != nil && (s.Kafka.ExactlyOnce() || c.Checkpoint.File.Path == "")
}

// CheckpointDir returns the directory of a sink's checkpoint. "": it is kept on the bus or, for stdout, in memory.
func (c *Config) CheckpointDir(s *Sink) string {
	if c.Checkpoint.File.Path == "" || c.InKafka(s) {
		return ""
	}
	return filepath.Join(c.Checkpoint.File.Path, s.Name)
}

// InNATS reports whether the sink's checkpoint is kept on the NATS that it writes to.
// The checkpoint trails the sink's stream, so only a sink with a stream of its own can have it there.
func (c *Config) InNATS(s *Sink) bool {
	return c.Checkpoint.File.Path == "" && s.NATS != nil && s.NATS.IsLog()
}
