// Package auditlog brings records of the API server's audit log to a bridge, and disturbs them on the way.
package auditlog

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"
)

// Disturbance is what a [Relay] does to the records that it reads.
type Disturbance int

const (
	None    Disturbance = iota
	Drop                // one of three records is lost
	Repeat              // every batch of records comes twice
	Delay               // records wait until the disturbance ends
	Shuffle             // records wait, and come in another order
)

const (
	relayEvery = 20 * time.Millisecond  // interval at which the log is read
	shuffled   = 500 * time.Millisecond // how long records wait to be shuffled with others
	sendAgain  = 100 * time.Millisecond
)

// Destination is where a relay sends lines of the log.
type Destination interface {
	// Send returns nil when the lines have arrived. After an error, they are sent again, and some may arrive twice.
	Send(ctx context.Context, lines [][]byte) error
}

// Relay follows an audit log, which is rotated as kube-apiserver does it, and sends its lines on.
type Relay struct {
	log  string
	keep func(line []byte) bool
	to   Destination

	mu          sync.Mutex
	random      *rand.Rand
	disturbance Disturbance
	held        [][]byte  // of Delay and Shuffle
	since       time.Time // when the first one of held came
	queue       [][]byte

	file  *os.File
	lines *bufio.Reader
	part  []byte // of a line whose end is not written yet
}

// NewRelay returns a relay of the lines that are written to a log from now on, and that keep selects. Seed chooses the records that are disturbed.
func NewRelay(log string, seed uint64, keep func(line []byte) bool, to Destination) (*Relay, error) {
	r := &Relay{log: log, keep: keep, to: to, random: rand.New(rand.NewPCG(seed, 20))}
	err := r.open()
	if errors.Is(err, fs.ErrNotExist) { // nothing was written yet
		return r, nil
	}
	if err == nil {
		_, err = r.file.Seek(0, io.SeekEnd)
	}
	return r, err
}

func (r *Relay) open() (err error) {
	if r.file, err = os.Open(r.log); err != nil {
		return err
	}
	r.lines, r.part = bufio.NewReaderSize(r.file, 1<<20), nil
	return nil
}

// Disturb begins a disturbance, and ends the one before. None lets everything pass that waits.
func (r *Relay) Disturb(d Disturbance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.release()
	r.disturbance = d
}

// release sends what waits. The caller holds mu.
func (r *Relay) release() {
	if r.disturbance == Shuffle {
		r.random.Shuffle(len(r.held), func(i, j int) { r.held[i], r.held[j] = r.held[j], r.held[i] })
	}
	r.queue = append(r.queue, r.held...)
	r.held = nil
}

// Run relays until ctx ends.
func (r *Relay) Run(ctx context.Context) error {
	defer func() {
		if r.file != nil {
			_ = r.file.Close()
		}
	}()
	for {
		lines, err := r.read()
		if err != nil {
			return err
		}
		wait := relayEvery
		if !r.pass(ctx, lines) {
			wait = sendAgain
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// pass disturbs lines and sends what is due. It returns false if that has to be tried again.
func (r *Relay) pass(ctx context.Context, lines [][]byte) bool {
	r.mu.Lock()
	switch r.disturbance {
	case Drop:
		lines = slices.DeleteFunc(lines, func([]byte) bool { return r.random.IntN(3) == 0 })
		r.queue = append(r.queue, lines...)
	case Repeat:
		r.queue = append(append(r.queue, lines...), lines...)
	case Delay, Shuffle:
		if len(r.held) == 0 {
			r.since = time.Now()
		}
		r.held = append(r.held, lines...)
		if r.disturbance == Shuffle && time.Since(r.since) > shuffled {
			r.release()
		}
	default:
		r.queue = append(r.queue, lines...)
	}
	batch := r.queue[:min(len(r.queue), 200)]
	r.mu.Unlock()
	if len(batch) == 0 {
		return true
	}
	if r.to.Send(ctx, batch) != nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = r.queue[len(batch):]
	return true
}

// read returns the lines that were written since the last call.
func (r *Relay) read() (lines [][]byte, err error) {
	for {
		if r.file == nil {
			if err := r.open(); errors.Is(err, fs.ErrNotExist) {
				return lines, nil
			} else if err != nil {
				return lines, err
			}
		}
		renamed := r.renamed() // before the rest is read: what was written before the file was renamed is there then
		for {
			part, err := r.lines.ReadBytes('\n')
			r.part = append(r.part, part...)
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return lines, err
			}
			if r.keep(r.part) {
				lines = append(lines, r.part)
			}
			r.part = nil
		}
		if !renamed {
			return lines, nil
		}
		if err := r.file.Close(); err != nil {
			return lines, err
		}
		r.file = nil
	}
}

// renamed reports whether the log is another file now.
func (r *Relay) renamed() bool {
	own, err := r.file.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(r.log)
	return err == nil && !os.SameFile(own, now)
}
