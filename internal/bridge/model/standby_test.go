package model

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/kubebridge/kubebridge/internal/operate/leader"
)

// board is a Lease with the ConfigMap beside it.
type board struct {
	mu         sync.Mutex
	candidates int
	holder     string
	content    []byte
	version    int // of content
}

// candidate is the elector of one process, and its view of the ConfigMap.
type candidate struct {
	board   *board
	life    *life
	name    string
	granted chan struct{} // closed when it is to lead
	seen    int           // the version that was read or written last
}

func (b *board) candidate(l *life) *candidate {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.candidates++
	return &candidate{board: b, life: l, name: fmt.Sprint("replica-", b.candidates), granted: make(chan struct{})}
}

// grant makes a candidate the leader.
func (c *candidate) grant() {
	c.board.mu.Lock()
	defer c.board.mu.Unlock()
	c.board.holder = c.name
	close(c.granted)
}

// Run implements [bridge.Elector]. A leader leads until its end.
func (c *candidate) Run(ctx context.Context, lead func(context.Context) error) error {
	select {
	case <-c.granted:
		return lead(context.WithoutCancel(ctx))
	case <-ctx.Done():
		return nil
	}
}

// Status implements [bridge.Elector].
func (c *candidate) Status() leader.Status {
	c.board.mu.Lock()
	defer c.board.mu.Unlock()
	s := leader.Status{Role: leader.Standby, Identity: c.name, Holder: c.board.holder}
	if s.Holder == c.name {
		s.Role = leader.Leader
	}
	return s
}

// Read implements [bridge.Note].
func (c *candidate) Read(context.Context) ([]byte, error) {
	c.board.mu.Lock()
	defer c.board.mu.Unlock()
	c.seen = c.board.version
	return c.board.content, nil
}

// Write implements [bridge.Note].
func (c *candidate) Write(_ context.Context, content []byte) error {
	c.board.mu.Lock()
	defer c.board.mu.Unlock()
	switch {
	case c.board.holder != c.name || c.life.dead():
		return leader.ErrNotLeader
	case c.seen != c.board.version:
		return leader.ErrChanged
	}
	c.board.version++
	c.board.content, c.seen = content, c.board.version
	return nil
}

// standBy starts a standby with a disk of its own: that of the last leader, or a new one.
func (w *world) standBy() {
	p, err := start(w.api, w.sinks, w.spare, w.board, w.logger)
	if err != nil {
		panic(err)
	}
	w.standby = p
}

// promote makes the standby the leader, with the configuration that it has got meanwhile.
func (w *world) promote() *process {
	p := w.standby
	w.standby, w.disk, w.spare = nil, w.spare, w.disk
	for _, s := range w.sinks {
		p.edit(s)
	}
	w.disturbed = w.step // it may have begun to buffer later than the dead leader, and not have all that this one has received
	w.trace("the standby becomes the leader")
	p.candidate.grant()
	return p
}

// interrupt ends all connections to the API server, also those of a standby.
func (s *server) interrupt() {
	s.drop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		w.body.end(io.EOF)
	}
}

// endStandby stops the standby.
func (w *world) endStandby() {
	p := w.standby
	w.standby = nil
	p.kill()
	w.api.mu.Lock()
	w.api.dead = true
	w.api.mu.Unlock()
	w.api.interrupt()
	p.stop()
	<-p.done
}
