package faultproxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo starts a server that answers every line with the same line, and reports it on got.
func echo(t *testing.T) (addr string, got chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	got = make(chan string, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for lines := bufio.NewReader(c); ; {
					line, err := lines.ReadString('\n')
					if err != nil {
						return
					}
					got <- line
					_, _ = io.WriteString(c, line)
				}
			}()
		}
	}()
	return l.Addr().String(), got
}

func start(t *testing.T) (*Proxy, chan string) {
	t.Helper()
	addr, got := echo(t)
	p, err := Start(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p, got
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// During Hold the server receives requests, and the client receives no answers.
func TestHoldKeepsAnswersOnly(t *testing.T) {
	p, got := start(t)
	c := dial(t, p)
	p.Hold()
	if _, err := io.WriteString(c, "a\n"); err != nil {
		t.Fatal(err)
	}
	if line := <-got; line != "a\n" {
		t.Fatalf("the server got %q", line)
	}
	if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Fatalf("read %d bytes (%v) while answers are held", n, err)
	}
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	p.Pass()
	if line, err := bufio.NewReader(c).ReadString('\n'); line != "a\n" {
		t.Fatalf("after the hold the client read %q (%v)", line, err)
	}
}

// A client that dies during a hold must not leave its connection open at the server.
func TestSlowDelaysRequests(t *testing.T) {
	p, got := start(t)
	c := dial(t, p)
	const delay = 50 * time.Millisecond
	p.Slow(delay)
	began := time.Now()
	if _, err := io.WriteString(c, "a\n"); err != nil {
		t.Fatal(err)
	}
	<-got
	if took := time.Since(began); took < delay {
		t.Errorf("the request took %v", took)
	}
}

func TestClientGoneDuringHold(t *testing.T) {
	p, got := start(t)
	c := dial(t, p)
	p.Hold()
	if _, err := io.WriteString(c, "a\n"); err != nil {
		t.Fatal(err)
	}
	<-got
	c.Close()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		open := len(p.conns)
		p.mu.Unlock()
		if open == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the connection stays open")
		}
	}
}

func TestCutAndRefuse(t *testing.T) {
	p, _ := start(t)
	answered := func(c net.Conn) bool {
		if _, err := io.WriteString(c, "a\n"); err != nil {
			return false
		}
		_, err := c.Read(make([]byte, 2))
		return err == nil
	}
	c := dial(t, p)
	if !answered(c) {
		t.Fatal("no answer through a proxy that passes")
	}
	p.Cut()
	if answered(c) {
		t.Error("an answer over a cut connection")
	}
	if !answered(dial(t, p)) {
		t.Error("no answer over a new connection after a cut")
	}
	p.Refuse()
	if c, err := net.Dial("tcp", p.Addr()); err == nil { // the reset may come that early
		if answered(c) {
			t.Error("an answer while connections are refused")
		}
		c.Close()
	}
	p.Pass()
	if !answered(dial(t, p)) {
		t.Error("no answer after the refusal")
	}
}

// Unlike Cut, Silence reports the end of a connection to neither side. New connections work.
func TestSilence(t *testing.T) {
	p, got := start(t)
	c := dial(t, p)
	if _, err := io.WriteString(c, "a\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); line != "a\n" {
		t.Fatalf("before the silence the client read %q (%v)", line, err)
	}
	<-got
	p.Silence()
	if _, err := io.WriteString(c, "b\n"); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var timeout net.Error
	if _, err := c.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a silent connection reported to its client: %v", err)
	}
	if _, err := io.WriteString(dial(t, p), "c\n"); err != nil {
		t.Fatal(err)
	}
	if line := <-got; line != "c\n" {
		t.Errorf("the server got %q, want what the new connection sent", line)
	}
}
