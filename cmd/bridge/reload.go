package main

import (
	"context"
	"crypto/sha256"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/config"
)

// reloadEvery is how often the configuration file is read.
const reloadEvery = 2 * time.Second

// reloader follows the configuration file while the bridge runs. It compares contents, not times or file events: a
// ConfigMap's volume swaps a symbolic link, an editor renames or writes in place.
type reloader struct {
	path    string
	every   time.Duration
	hangUps <-chan os.Signal // reload at once
	parse   func(text []byte) (*config.Config, error)
	apply   func(*config.Config) // applies the reloadable settings
	running *config.Config       // the configuration in force
	log     *zap.Logger

	seen, tried [sha256.Size]byte // digest of the file at the last read, and when it was last parsed
	problem     string            // the last logged problem
}

// Run reloads until ctx ends.
func (r *reloader) Run(ctx context.Context) error {
	if info, err := os.Stat(r.path); r.path == standardInput || err == nil && !info.Mode().IsRegular() {
		r.log.Info("configuration is not reloaded: it comes from a pipe or standard input", zap.String("path", r.path))
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(r.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.hangUps:
			r.problem = ""
			r.look(true)
		case <-ticker.C:
			r.look(false)
		}
	}
}

// look applies a file that has changed. Unless now is set, it waits until two reads return the same content: half of a
// file that is being written can be a valid configuration with fewer resources.
func (r *reloader) look(now bool) {
	text, err := os.ReadFile(r.path)
	if err != nil {
		r.seen, r.tried = [sha256.Size]byte{}, [sha256.Size]byte{}
		r.keep(err)
		return
	}
	digest := sha256.Sum256(text)
	settled := digest == r.seen
	r.seen = digest
	if !now && (!settled || digest == r.tried) {
		return
	}
	r.tried = digest
	next, err := r.parse(text)
	if err != nil {
		r.keep(err)
		return
	}
	r.problem = ""
	reloadable, restart := r.running.Changed(next)
	if len(restart) > 0 {
		r.log.Warn("changed settings need a restart", zap.Strings("settings", restart))
	}
	if len(reloadable) > 0 {
		r.running = r.running.Reloaded(next)
		r.apply(r.running)
		r.log.Info("configuration reloaded", zap.Strings("settings", reloadable))
	} else if now {
		r.log.Info("configuration reloaded: no reloadable setting has changed")
	}
}

func (r *reloader) keep(err error) {
	if err.Error() != r.problem {
		r.problem = err.Error()
		r.log.Error("new configuration rejected; keeping the previous one", zap.Error(err))
	}
}
