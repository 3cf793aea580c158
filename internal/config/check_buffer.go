package config

import (
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/validation"
)

// leastBuffer is the smallest buffer in bytes: it has room for the largest objects of several collections, at the 1.5 MiB that etcd
// accepts.
const leastBuffer = 8 << 20

func (p *problems) buffer(c *Config) {
	b := &c.Buffer
	if b.MaxBytes < leastBuffer {
		p.add("buffer.maxBytes", "%s is too little: use at least 8Mi", b.MaxBytes)
	}
	if b.MaxAge <= 0 {
		p.add("buffer.maxAge", "%s is not an age: use for example 24h", b.MaxAge)
	}
	if b.Standby && b.Path == "" {
		p.add("buffer.standby", "there is no buffer: set buffer.path to a directory of this replica's own, or leave buffer.standby out")
	}
	if name := c.BufferList(); len(name) > validation.DNS1123SubdomainMaxLength {
		p.add("leaderElection.leaseName", "with buffer.standby it is followed by -buffer in the name of a ConfigMap, and has %d characters: use at most %d", len(c.LeaderElection.LeaseName), validation.DNS1123SubdomainMaxLength-len("-buffer"))
	}
	if b.Standby && !c.LeaderElection.Enabled {
		p.add("buffer.standby", "without leaderElection there are no standbys: set leaderElection.enabled, or leave buffer.standby out")
	}
	if b.Path != "" && c.Checkpoint.File.Path != "" && filepath.Clean(b.Path) == filepath.Clean(c.Checkpoint.File.Path) {
		p.add("buffer.path", "%s has the checkpoint: use another directory", b.Path)
	}
}
