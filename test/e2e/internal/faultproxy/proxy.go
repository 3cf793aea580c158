// Package faultproxy is a TCP proxy between a client and a server that simulates failures of the network: it cuts connections,
// refuses new ones, holds the server's answers back, delays requests, or stops forwarding.
package faultproxy

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy forwards TCP connections to a server. Its methods switch failures on and off.
type Proxy struct {
	targets  []string
	next     atomic.Uint32 // the target of the next connection
	listener net.Listener
	done     sync.WaitGroup

	mu     sync.Mutex
	refuse bool
	held   chan struct{} // closed by the end of a Hold; nil while replies pass
	slow   time.Duration // see Slow
	conns  map[*pair]struct{}
}

// pair is one connection through the proxy.
type pair struct {
	client, server net.Conn
	ctx            context.Context
	end            context.CancelFunc
	silent         atomic.Bool // see Silence
}

// Start listens on a free port of 127.0.0.1 and forwards each connection to the next of the targets (host:port), like a load balancer, or to the one after
// it if that does not accept it. Targets need not be listening yet.
func Start(targets ...string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start fault proxy: %w", err)
	}
	p := &Proxy{targets: targets, listener: l, conns: map[*pair]struct{}{}}
	p.done.Go(p.accept)
	return p, nil
}

// Addr returns the address for clients (host:port).
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Pass ends Refuse, Hold and Slow. Answers that were held back are sent.
func (p *Proxy) Pass() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse, p.slow = false, 0
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
}

// Cut resets every connection. New connections work.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
}

// Refuse resets every connection, and new ones as soon as they are accepted.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = true
	p.cut()
}

// Hold forwards requests and holds the server's answers back: the server executes the requests, and the client does not
// know it.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		p.held = make(chan struct{})
	}
}

// Slow delays each piece of a request, of at most 64 KiB, so that many requests take long.
func (p *Proxy) Slow(delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = delay
}

// Silence makes every connection half-open for the rest of its life, like a firewall that has dropped it: neither side receives another
// byte or an error. New connections work.
func (p *Proxy) Silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.silent.Store(true)
	}
}

// Close ends the proxy and all its connections.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.Refuse()
	p.done.Wait()
	return err
}

func (p *Proxy) cut() {
	for c := range p.conns {
		c.reset()
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.done.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	c := &pair{client: client}
	c.ctx, c.end = context.WithCancel(context.Background())
	defer c.reset()
	if p.refused() {
		return
	}
	for range p.targets {
		target := p.targets[int(p.next.Add(1))%len(p.targets)]
		var err error
		if c.server, err = net.DialTimeout("tcp", target, 5*time.Second); err == nil {
			break
		}
	}
	if c.server == nil || !p.enter(c) {
		return
	}
	defer p.leave(c)
	var replies sync.WaitGroup
	replies.Go(func() {
		defer c.reset()
		p.copy(c, c.client, c.server, true)
	})
	p.copy(c, c.server, c.client, false)
	c.reset()
	replies.Wait()
}

func (p *Proxy) refused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refuse
}

func (p *Proxy) enter(c *pair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.refuse {
		p.conns[c] = struct{}{}
	}
	return !p.refuse
}

func (p *Proxy) leave(c *pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// copy forwards one direction until either side ends.
func (p *Proxy) copy(c *pair, to, from net.Conn, replies bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if c.silent.Load() {
			<-c.ctx.Done()
			return
		}
		if n > 0 {
			if replies && !p.released(c.ctx) || !replies && !p.delayed(c.ctx) {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// delayed waits for the delay of Slow. It returns false if the connection ends first.
func (p *Proxy) delayed(ctx context.Context) bool {
	p.mu.Lock()
	delay := p.slow
	p.mu.Unlock()
	if delay == 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(delay):
		return true
	case <-ctx.Done():
		return false
	}
}

// released waits for the end of Hold. It returns false if the connection ends first.
func (p *Proxy) released(ctx context.Context) bool {
	for {
		p.mu.Lock()
		held := p.held
		p.mu.Unlock()
		if held == nil {
			return ctx.Err() == nil
		}
		select {
		case <-held:
		case <-ctx.Done():
			return false
		}
	}
}

// reset closes both sides in such a way that the peers see a reset instead of an orderly end.
func (c *pair) reset() {
	c.end()
	for _, conn := range []net.Conn{c.client, c.server} {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
			_ = tcp.Close()
		}
	}
}
