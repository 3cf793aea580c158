package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// dataDir is a data directory that this process has locked.
type dataDir struct {
	root string
	lock *os.File
}

// openDataDir creates root if it does not exist, and locks it. The kernel releases the lock when the process ends. It is an error if another
// process holds the lock.
func openDataDir(root string) (*dataDir, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(root, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open data directory's lock: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("data directory %s is in use by another cluster, stop that one or name another directory: %w", root, err), lock.Close())
	}
	return &dataDir{root: root, lock: lock}, nil
}

func (d *dataDir) close() { d.lock.Close() }

func (d *dataDir) path(elem ...string) string {
	return filepath.Join(append([]string{d.root}, elem...)...)
}

// ports are the loopback ports of one data directory. They are kept in its ports.json, so that kubeconfigs and etcd's membership, which
// contain them, are valid after a restart.
type ports struct {
	Server int `json:"server"`
	Etcd   int `json:"etcd"`
	Peer   int `json:"peer"`
}

func (p ports) etcdURL() string { return fmt.Sprintf("http://127.0.0.1:%d", p.Etcd) }
func (p ports) peerURL() string { return fmt.Sprintf("http://127.0.0.1:%d", p.Peer) }

// claimPorts chooses each of the three ports: the port in the options, else the kept one, else a free one. It keeps the ports, and opens the
// API server's listener, which the caller must close.
func (d *dataDir) claimPorts(opts options) (ports, net.Listener, error) {
	var p ports
	file := d.path("ports.json")
	data, err := os.ReadFile(file)
	switch {
	case err == nil:
		if err := json.Unmarshal(data, &p); err != nil {
			return p, nil, fmt.Errorf("read %s: %w", file, err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return p, nil, fmt.Errorf("read kept ports: %w", err)
	}
	if opts.port != 0 {
		p.Server = opts.port
	}
	if opts.etcdPort != 0 {
		p.Etcd = opts.etcdPort
	}

	var held []net.Listener
	for _, port := range []*int{&p.Server, &p.Etcd, &p.Peer} {
		l, err := listen(*port)
		if err != nil {
			for _, l := range held {
				err = errors.Join(err, l.Close())
			}
			return p, nil, err
		}
		*port = l.Addr().(*net.TCPAddr).Port
		held = append(held, l)
	}
	// etcd opens its listeners itself.
	err = errors.Join(held[1].Close(), held[2].Close())
	if err == nil {
		data, _ = json.Marshal(p)
		err = os.WriteFile(file, append(data, '\n'), 0o600)
	}
	if err != nil {
		return p, nil, errors.Join(fmt.Errorf("keep ports: %w", err), held[0].Close())
	}
	return p, held[0], nil
}

// listen opens a port of 127.0.0.1; 0 means a free port. It chooses free ports below Linux's ephemeral range (32768 and up), so that no
// outgoing connection gets the port while the cluster is down between two starts.
func listen(port int) (net.Listener, error) {
	if port != 0 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return nil, fmt.Errorf("port %d, asked for or kept from an earlier start, cannot be used: stop what uses it or name another: %w", port, err)
		}
		return l, nil
	}
	var err error
	for range 100 {
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("find a free port: %w", err)
}
