package pipeline

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
)

// askAgain paces [patient].
const askAgain = 200 * time.Millisecond

// patient is a store as the lane reads it. A disk that is full, or gone, for a while
// fails what reads as well as what commits: it is asked again until it answers, as a
// commit is. What is [final] is told at once.
type patient struct {
	checkpoint.Store
	ctx      context.Context // the lane's
	pings    chan<- struct{} // answered while it waits; nil: there are none
	reminder *reminder
	sink     string
}

func (p patient) Get(key []byte) (value []byte, err error) {
	err = p.again(func() (bool, error) {
		value, err = p.Store.Get(key)
		return false, err
	})
	return value, err
}

// Scan begins again only before fn has been called.
func (p patient) Scan(prefix []byte, fn func(key, value []byte) error) error {
	return p.again(func() (begun bool, err error) {
		err = p.Store.Scan(prefix, func(key, value []byte) error {
			begun = true
			return fn(key, value)
		})
		return begun, err
	})
}

func (p patient) again(read func() (begun bool, err error)) error {
	const what = "read the checkpoint"
	for failed := false; ; failed = true {
		begun, err := read()
		if err == nil || begun || final(err) {
			return err
		}
		key := p.sink + ": " + what
		if !failed {
			defer p.reminder.works(key)
		}
		p.reminder.failed(key, failure{
			message: tryingAgain, fields: []zap.Field{zap.String("sink", p.sink), zap.String("operation", what)}, err: err, advice: advice(err),
		})
		if !p.pause() {
			return fmt.Errorf("read the checkpoint: %w", err)
		}
	}
}

// pause waits before the next attempt; false says that the lane ends.
func (p patient) pause() bool {
	again := time.NewTimer(askAgain)
	defer again.Stop()
	for {
		select {
		case <-again.C:
			return true
		case p.pings <- struct{}{}:
		case <-p.ctx.Done():
			return false
		}
	}
}
