package kafkatest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Proxy is a TCP proxy between clients and one broker. Its methods switch failures on and off.
type Proxy struct {
	target   string
	framed   bool // the connections carry Kafka's protocol in clear text
	listener net.Listener
	done     sync.WaitGroup

	mu     sync.Mutex
	refuse bool
	mute   map[int16]chan struct{} // by API key: closed when the answer is lost
	conns  map[*pair]struct{}
}

// pair is one connection through the proxy.
type pair struct {
	client, server net.Conn

	mu     sync.Mutex
	doomed map[int32]chan struct{} // by correlation id of requests whose answers are to be lost: closed when that has happened
}

func startProxy(target string, framed bool) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	p := &Proxy{target: target, framed: framed, listener: l, mute: map[int16]chan struct{}{}, conns: map[*pair]struct{}{}}
	p.done.Go(p.accept)
	return p, nil
}

// Addr returns the address for clients (host:port), which the broker advertises.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut resets every connection. New connections work.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.reset()
	}
}

// Refuse resets every connection, and new ones as soon as they are accepted, until Pass.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	p.refuse = true
	p.mu.Unlock()
	p.Cut()
}

// Pass ends a Refuse.
func (p *Proxy) Pass() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = false
}

// LoseAnswer forwards the next request with an API key (of Kafka's protocol; 0 is Produce, 26 EndTxn), waits for the
// broker's answer, and resets the connection instead of forwarding the answer. So the broker has executed the request, and the client
// does not know it. Then it closes the channel. It does not affect connections with TLS.
func (p *Proxy) LoseAnswer(apiKey int16) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	lost := make(chan struct{})
	p.mute[apiKey] = lost
	return lost
}

func (p *Proxy) close() error {
	err := p.listener.Close()
	p.Refuse()
	p.done.Wait()
	return err
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
	server, err := net.DialTimeout("tcp", p.target, time.Minute)
	if err != nil {
		client.Close()
		return
	}
	c := &pair{client: client, server: server, doomed: map[int32]chan struct{}{}}
	defer c.reset()
	p.mu.Lock()
	refused := p.refuse
	if !refused {
		p.conns[c] = struct{}{}
	}
	p.mu.Unlock()
	if refused {
		return
	}
	var answers sync.WaitGroup
	answers.Go(func() {
		defer c.reset()
		_ = p.pass(client, server, c.lose) // each error means that the connection has ended
	})
	_ = p.pass(server, client, func(head []byte) bool {
		p.doom(c, head)
		return false
	})
	c.reset()
	answers.Wait()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// pass copies one direction until it ends, or until drop returns true for the first bytes of a message (after its length).
func (p *Proxy) pass(to, from net.Conn, drop func(head []byte) bool) error {
	if !p.framed {
		_, err := io.Copy(to, from)
		return err
	}
	for {
		var head [12]byte // of a request: length, API key, version and correlation id; of an answer: length and correlation id
		if _, err := io.ReadFull(from, head[:4]); err != nil {
			return err
		}
		size := int64(binary.BigEndian.Uint32(head[:]))
		known := min(8, size)
		if _, err := io.ReadFull(from, head[4:4+known]); err != nil {
			return err
		}
		if drop(head[4 : 4+known]) {
			return errors.New("dropped")
		}
		if _, err := to.Write(head[:4+known]); err != nil {
			return err
		}
		if _, err := io.CopyN(to, from, size-known); err != nil {
			return err
		}
	}
}

// doom records a request whose answer must be lost.
func (p *Proxy) doom(c *pair, request []byte) {
	if len(request) < 8 {
		return
	}
	key, id := int16(binary.BigEndian.Uint16(request)), int32(binary.BigEndian.Uint32(request[4:]))
	p.mu.Lock()
	lost := p.mute[key]
	delete(p.mute, key)
	p.mu.Unlock()
	if lost != nil {
		c.mu.Lock()
		c.doomed[id] = lost
		c.mu.Unlock()
	}
}

// lose reports whether an answer must be lost.
func (c *pair) lose(answer []byte) bool {
	if len(answer) < 4 {
		return false
	}
	c.mu.Lock()
	lost := c.doomed[int32(binary.BigEndian.Uint32(answer))]
	c.mu.Unlock()
	if lost != nil {
		close(lost)
	}
	return lost != nil
}

// reset closes both sides in such a way that the peers see a reset instead of an orderly end.
func (c *pair) reset() {
	for _, conn := range []net.Conn{c.client, c.server} {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
			_ = tcp.Close()
		}
	}
}
