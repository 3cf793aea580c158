package config

// NATSCheckpoint is the key-value bucket that a NATS sink keeps its checkpoint in.
type NATSCheckpoint struct {
	// Scratch is a directory for working copies. Empty: they are in memory.
	Scratch string `yaml:"scratch"`
}

// InNATS reports whether the sink's checkpoint is kept on the NATS that it writes to.
// It trails the sink's stream, so only a sink with one of its own can have that.
func (c *Config) InNATS(s *Sink) bool {
	return c.Checkpoint.File.Path == "" && s.NATS != nil && s.NATS.IsLog()
}
