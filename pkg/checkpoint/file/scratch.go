package file

import (
	"errors"
	"os"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// OpenScratch opens an empty checkpoint in a new temporary directory, which
// Close removes: the working copy of one that is kept elsewhere. Its commits are
// atomic, but not synced.
func OpenScratch(id event.Identity) (*Store, error) {
	dir, err := os.MkdirTemp("", "kubebridge-"+id.Bridge+"-"+id.Sink+"-")
	if err != nil {
		return nil, err
	}
	s, err := open(dir, &id, Options{scratch: true})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// durability is how a commit is written.
func (o *Options) durability() *pebble.WriteOptions {
	if o.scratch {
		return pebble.NoSync
	}
	return pebble.Sync
}
