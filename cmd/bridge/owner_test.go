//go:build linux

package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubebridge/kubebridge/internal/attribution/inbox"
	"github.com/kubebridge/kubebridge/internal/base/links"
	"github.com/kubebridge/kubebridge/internal/base/spool"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/operate/admin"
	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	sinkfile "github.com/kubebridge/kubebridge/pkg/sink/file"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
)

// A directory that another local user has made where the bridge keeps files is refused, and so is a hash key in it: the other user
// could read and change the bridge's data, and knows the key.
func TestFilesOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("only root can make directories of other users")
		return
	}
	id := event.Identity{Bridge: "b", Cluster: "c", ClusterUID: "u", Sink: "s"}
	closed := func(c io.Closer, err error) error {
		if err == nil {
			err = c.Close()
		}
		return err
	}
	for name, open := range map[string]func(dir string) error{
		"disk buffer": func(dir string) error { return closed(spool.Open(dir, spool.Options{})) },
		"audit":       func(dir string) error { return closed(inbox.Open(dir, inbox.Options{})) },
		"checkpoint":  func(dir string) error { return closed(file.Open(dir, id, file.Options{})) },
		"reset":       file.Reset,
		"hash key":    func(dir string) error { _, err := file.HashKey(dir); return err },
		"key alone":   func(dir string) error { _, err := file.HashKey(dir); return err },
		"the hash key of a checkpoint that moves": func(dir string) error {
			c := &config.Config{}
			c.Checkpoint.File.Path = dir
			_, err := configuredKey(c)
			return err
		},
		"embedded server": func(dir string) error {
			s, err := nats.New(nats.Options{Config: nats.Config{Embedded: &nats.Embedded{Dir: dir, Listen: "127.0.0.1:0"}}, Identity: id})
			if err != nil {
				return err
			}
			return errors.Join(s.Open(t.Context(), nil), s.Close())
		},
		"serve":  func(dir string) error { return closed(store.Open(dir, store.Options{})) },
		"socket": func(dir string) error { return closed(admin.New(admin.Options{Socket: filepath.Join(dir, "s")})) },
		"file sink": func(dir string) error {
			s, err := sinkfile.New(sinkfile.Options{Config: sinkfile.Config{Path: filepath.Join(dir, "hash.key")}})
			if err != nil {
				return err
			}
			return errors.Join(s.Open(t.Context(), nil), s.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "theirs")
			key := filepath.Join(dir, "hash.key")
			if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(key, make([]byte, file.KeyBytes), 0o600), os.Chown(key, 12345, 12345)); err != nil {
				t.Fatal(err)
			}
			if name != "file sink" && name != "key alone" && os.Chown(dir, 12345, 12345) != nil {
				t.Fatal("cannot give the directory away")
			}
			if err := open(dir); !errors.Is(err, links.ErrOwner) {
				t.Errorf("it is taken: %v", err)
			}
		})
	}
}
