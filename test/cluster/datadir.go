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

// dataDir is a data directory held by this process alone.
type dataDir struct {
	root string
	lock *os.File
}

// openDataDir makes root if it is absent and locks it. The lock ends with the process, however that ends. It is an error
// if another process holds it.
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

// ports are the loopback ports of one data directory, kept in its ports.json: kubeconfigs and etcd's own membership name
// them, so they outlive a restart.
type ports struct {
	Server int `json:"server"`
	Etcd   int `json:"etcd"`
	Peer   int `json:"peer"`
}

func (p ports) etcdURL() string { return fmt.Sprintf("http://127.0.0.1:%d", p.Etcd) }
func (p ports) peerURL() string { return fmt.Sprintf("http://127.0.0.1:%d", p.Peer) }

// claimPorts settles all three ports (the options', else the kept ones, else free ones), keeps them, and opens the API
// server's listener, which the caller closes or hands on.
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

// listen opens port on 127.0.0.1, or a free one for 0. Free ones are sought below Linux's ephemeral range (32768 and up):
// while the cluster is down between two starts, no outgoing connection is given them.
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
