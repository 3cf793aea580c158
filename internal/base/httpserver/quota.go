package httpserver

import (
	"context"
	"net"
	"slices"
	"sync"
)

// Quota limits concurrent use, in total, by address, and by IPv6 network, because a client can have 2^64 addresses of one. A network may have half of the
// total. If the total is used up, a network without any still gets one, up to four times the total, so that several clients together
// cannot keep a kubelet out. Any goroutine may use it.
type Quota struct {
	all, perAddress int

	mu    sync.Mutex
	used  int
	by    map[string]int // by address, and by network if that is another text
	freed chan struct{}  // closed and replaced when one is given back
}

// NewQuota returns a quota of which nothing is used.
func NewQuota(all, perAddress int) *Quota {
	return &Quota{all: all, perAddress: perAddress, by: map[string]int{}, freed: make(chan struct{})}
}

// acquire takes one for an address, or returns a channel that is closed when the caller may try again.
func (q *Quota) acquire(address string) (ok bool, freed <-chan struct{}) {
	network := ClientOf(address)
	q.mu.Lock()
	defer q.mu.Unlock()
	has := q.by[network]
	if q.by[address] == q.perAddress || network != address && has >= q.all/2 || has > 0 && q.used >= q.all || q.used >= 4*q.all {
		return false, q.freed
	}
	q.used++
	q.by[address]++
	if network != address {
		q.by[network]++
	}
	return true, nil
}

func (q *Quota) release(address string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used--
	for _, key := range slices.Compact([]string{address, ClientOf(address)}) {
		if q.by[key]--; q.by[key] == 0 {
			delete(q.by, key)
		}
	}
	close(q.freed)
	q.freed = make(chan struct{})
}

// Acquire takes one as soon as one is free, and gives up after 5 seconds. The address may have a port.
func (q *Quota) Acquire(ctx context.Context, address string) (release func(), ok bool) {
	address = hostOf(address)
	ctx, cancel := context.WithTimeout(ctx, queueTime)
	defer cancel()
	for {
		ok, freed := q.acquire(address)
		if ok {
			return func() { q.release(address) }, true
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, false
		}
	}
}

// Limit returns a listener that closes connections beyond a number of open ones, in total, per address and per IPv6 network, at once.
func Limit(l net.Listener, total, perAddress int) net.Listener {
	return &listener{Listener: l, open: NewQuota(total, perAddress)}
}

// listener closes connections beyond the quota as soon as they are open.
type listener struct {
	net.Listener
	open *Quota
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := hostOf(c.RemoteAddr().String())
		if ok, _ := l.open.acquire(address); ok {
			return &conn{Conn: c, release: sync.OnceFunc(func() { l.open.release(address) })}, nil
		}
		_ = c.Close()
	}
}

// conn is a connection that counts for the quota until it is closed.
type conn struct {
	net.Conn
	release func()
}

func (c *conn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
