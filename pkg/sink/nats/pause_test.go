//go:build unix

package nats

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// pause stops the server's process, and returns when it is stopped.
func (p *process) pause(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGSTOP)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("the server does not stand: %v, %v", status, err)
	}
}

func (p *process) goOn(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGCONT)
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// A server is paused for longer than any timeout, and then continues. Batches that were being sent may or may not be stored; in
// the end each is there once, in order.
func TestServerPaused(t *testing.T) {
	t.Parallel()
	for _, delivery := range []string{exactlyOnce, atLeastOnce} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel()
			p := startProcess(t)
			s := newAny(t, testIdentity, Config{URL: p.bus.url(), Delivery: delivery})
			mustOpen(t, s, nil)
			batch := func(seq uint64) *event.Batch { return spread(seq, 300, 50) }
			all := []*event.Batch{batch(1), batch(2)}
			mustWrite(t, s, all[0])
			for _, b := range all[1:] {
				p.pause(t)
				began := time.Now()
				_, err := s.Write(t.Context(), b)
				p.goOn(t)
				wantPlain(t, err, p.bus.url())
				if took := time.Since(began); took < ackTimeout || took > ackTimeout+time.Minute {
					t.Errorf("Write gave up after %v", took)
				}
				if _, err := retry(t, s, b); err != nil {
					t.Fatal(err)
				}
			}
			if n := perSubject(t, p.bus.read(t), all...); n > 0 {
				t.Errorf("%d messages are there twice", n)
			}
			_ = s.Close() // always nil; before the server goes
		})
	}
	t.Run(atMostOnce, func(t *testing.T) {
		t.Parallel()
		p := startProcess(t)
		sub := listen(t, &p.bus)
		s, _ := newCore(t, Config{URL: p.bus.url()})
		mustOpen(t, s, nil)
		mustWrite(t, s, records(1, 2))
		p.pause(t)
		mustWrite(t, s, records(2, 3)) // it may arrive or not, and counts as lost
		p.goOn(t)
		mustWrite(t, s, records(3, 2))
		if n := s.Lost(); n != 3 {
			t.Errorf("%d records were counted as lost, want 3", n)
		}
		got := ""
		for !strings.HasSuffix(got, " 3/1") {
			m, err := sub.NextMsg(2 * time.Minute)
			if err != nil {
				t.Fatalf("heard %q: %v", got, err)
			}
			got += " " + strings.Trim(string(m.Data), `"`)
		}
		if got != " 1/0 1/1 3/0 3/1" && got != " 1/0 1/1 2/0 2/1 2/2 3/0 3/1" {
			t.Errorf("heard %q", got)
		}
		_ = s.Close()
	})
}
