package nats

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// proxy passes bytes between the sink and the server. deaf ends a connection at the server's next answer. limit ends it after
// so many bytes have passed to the server. While stalled is locked for writing, nothing passes to the server. The lines of the server's answers pass
// through change.
type proxy struct {
	net.Listener
	deaf    atomic.Bool
	limit   atomic.Int64 // bytes; 0: no limit
	stalled sync.RWMutex
	change  func(line []byte) []byte // nil: they pass as they are
	done    chan struct{}
}

func startProxy(t *testing.T, to string) *proxy {
	t.Helper()
	return startChangingProxy(t, to, nil)
}

func startChangingProxy(t *testing.T, to string, change func(line []byte) []byte) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, change: change, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		for {
			down, err := l.Accept()
			if err != nil {
				return
			}
			p.serve(down, to)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-p.done
	})
	return p
}

// serve passes one connection on until either side ends it, or until an answer must not pass.
func (p *proxy) serve(down net.Conn, to string) {
	defer down.Close()
	up, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer up.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer up.Close()
		buf := make([]byte, 4096)
		for {
			n, err := down.Read(buf)
			if err != nil {
				return
			}
			last := false
			if left := p.limit.Load(); left > 0 {
				last = int64(n) >= left
				n = int(min(int64(n), left))
				p.limit.Store(left - int64(n))
			}
			p.stalled.RLock()
			_, err = up.Write(buf[:n])
			p.stalled.RUnlock()
			if err != nil || last {
				return
			}
		}
	}()
	answers := bufio.NewReader(up)
	buf := make([]byte, 4096)
	for {
		n, err := 0, error(nil)
		if p.change == nil {
			n, err = answers.Read(buf)
		} else if buf, err = answers.ReadBytes('\n'); err == nil {
			buf = p.change(buf)
			n = len(buf)
		}
		if err != nil || p.deaf.CompareAndSwap(true, false) {
			break
		}
		if _, err := down.Write(buf[:n]); err != nil {
			break
		}
	}
	down.Close()
	up.Close()
	<-ended
}

// A batch whose acknowledgement is lost with the connection must not be repeated.
func TestAcknowledgementLost(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	p := startProxy(t, strings.TrimPrefix(b.url(), "nats://"))
	s := newSink(t, Config{URL: "nats://" + p.Addr().String()})
	mustOpen(t, s, nil)
	mustWrite(t, s, records(1, 2))
	for seq := uint64(2); seq < 5; seq++ {
		p.deaf.Store(true)
		if _, err := s.Write(t.Context(), records(seq, 2)); err == nil {
			t.Fatal("Write returned no error although no acknowledgement came through")
		}
		if _, err := retry(t, s, records(seq, 2)); err != nil {
			t.Fatal(err)
		}
	}
	wantValues(t, b.read(t), "1/0 1/1 2/0 2/1 3/0 3/1 4/0 4/1")
	_ = s.Close()
}

// A connection ends again and again, in the middle of a batch and of a message. Nothing may be missing, repeated or out of
// order. In at-most-once delivery, messages that are not known to have arrived are counted.
func TestFlappingConnection(t *testing.T) {
	t.Parallel()
	for _, delivery := range []string{exactlyOnce, atLeastOnce, atMostOnce} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel()
			b := startBus(t, nil)
			p := startProxy(t, strings.TrimPrefix(b.url(), "nats://"))
			sub := listen(t, b)
			s := newAny(t, testIdentity, Config{URL: "nats://" + p.Addr().String(), Delivery: delivery})
			mustOpen(t, s, nil)
			var all []*event.Batch
			for seq := range uint64(6) {
				batch := spread(seq+1, 300, 50)
				p.limit.Store(int64(500 + 9000*seq)) // each message has about 200 bytes
				if _, err := retry(t, s, batch); err != nil {
					t.Fatal(err)
				}
				p.limit.Store(0)
				all = append(all, batch)
			}
			core, lossy := s.(*Core)
			if !lossy {
				if n := perSubject(t, b.read(t), all...); n > 0 {
					t.Errorf("%d messages are there twice", n)
				}
				_ = s.Close() // always nil; before the proxy goes
				return
			}
			wait(t, "the connection", core.conn.nc.IsConnected)
			mustWrite(t, s, records(7, 1))
			heard, last := map[string]bool{}, ""
			for last != "7/0" {
				m, err := sub.NextMsg(2 * time.Minute)
				if err != nil {
					t.Fatalf("after %q: %v", last, err)
				}
				if last = strings.Trim(string(m.Data), `"`); heard[last] {
					t.Errorf("%s came twice", last)
				}
				heard[last] = true
			}
			if missing := uint64(6*300 + 1 - len(heard)); missing == 0 || missing > core.Lost() {
				t.Errorf("%d records did not come, and %d were counted as lost", missing, core.Lost())
			}
			_ = s.Close()
		})
	}
}

// A server that stops reading without closing the connection must not block Write much longer than its context.
func TestStalledServer(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	p := startProxy(t, strings.TrimPrefix(b.url(), "nats://"))
	s := newSink(t, Config{URL: "nats://" + p.Addr().String()})
	mustOpen(t, s, nil)
	mustWrite(t, s, records(1, 1))

	small, large := records(2, 2), records(3, 40)
	for i := range large.Records {
		large.Records[i].Value = bytes.Repeat([]byte("x"), 500<<10)
	}
	for _, batch := range []*event.Batch{
		small, // waits for an acknowledgement
		large, // waits until its bytes are sent
	} {
		p.stalled.Lock()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		began := time.Now()
		_, err := s.Write(ctx, batch)
		took := time.Since(began)
		cancel()
		p.stalled.Unlock()
		wantPlain(t, err)
		if took > time.Minute { // the server stalls for as long as Write lasts
			t.Errorf("Write of %d records took %v", len(batch.Records), took)
		}
		if _, err := retry(t, s, batch); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(b.read(t)); n != 43 {
		t.Errorf("the bus holds %d records, want 43", n)
	}
	_ = s.Close()
}
