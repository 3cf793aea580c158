package serve

import (
	"context"
	"net"
	"slices"
	"sync"
)

// quota limits concurrent use, in total, by address, and by IPv6 network, because a client can have 2^64 addresses of one. A network may have half of the
// total. If the total is used up, a network without any still gets one, up to four times the total, so that several clients together
// cannot keep a kubelet out. Any goroutine may use it.
type quota struct {
	all, perAddress int

	mu    sync.Mutex
	used  int
	by    map[string]int // by address, and by network if that is another text
	freed chan struct{}  // closed and replaced when one is given back
}

func newQuota(all, perAddress int) *quota {
	return &quota{all: all, perAddress: perAddress, by: map[string]int{}, freed: make(chan struct{})}
}

// take takes one for an address, or returns a channel that is closed when the caller may try again.
func (q *quota) take(address string) (ok bool, freed <-chan struct{}) {
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

func (q *quota) give(address string) {
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

// wait takes one as soon as one is free, and gives up after queueTime.
func (q *quota) wait(ctx context.Context, address string) (leave func(), ok bool) {
	ctx, cancel := context.WithTimeout(ctx, queueTime)
	defer cancel()
	for {
		ok, freed := q.take(address)
		if ok {
			return func() { q.give(address) }, true
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
	return &listener{Listener: l, open: newQuota(total, perAddress)}
}

// listener closes connections beyond the quota as soon as they are open.
type listener struct {
	net.Listener
	open *quota
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := hostOf(c.RemoteAddr().String())
		if ok, _ := l.open.take(address); ok {
			return &conn{Conn: c, give: sync.OnceFunc(func() { l.open.give(address) })}, nil
		}
		_ = c.Close()
	}
}

// conn is a connection that counts for the quota until it is closed.
type conn struct {
	net.Conn
	give func()
}

func (c *conn) Close() error {
	defer c.give()
	return c.Conn.Close()
}
