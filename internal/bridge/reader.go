package bridge

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
)

// readAgain is the pause before a read of the checkpoint is retried.
const readAgain = 200 * time.Millisecond

// retryingReader is the store that the loop reads. A disk that is full or missing fails reads as well as
// commits, so a read is retried until it succeeds. Errors that are [final] are returned at once.
type retryingReader struct {
	checkpoint.Store
	ctx      context.Context // of the pipeline
	pings    chan<- struct{} // answered while a read waits; may be nil
	reminder *reminder
	sink     string
}

func (p *retryingReader) Get(key []byte) (value []byte, err error) {
	err = p.again(func() error {
		value, err = p.Store.Get(key)
		return err
	})
	return value, err
}

// Scan goes on behind the last key that fn was called for, and sees there what was committed since. An error of fn ends it.
func (p *retryingReader) Scan(prefix []byte, fn func(key, value []byte) error) error {
	var last []byte
	var broken error
	err := p.again(func() error {
		err := p.Store.Scan(prefix, func(key, value []byte) error {
			if last != nil && bytes.Compare(key, last) <= 0 {
				return nil
			}
			if broken = fn(key, value); broken == nil {
				last = append(last[:0], key...)
			}
			return broken
		})
		if broken != nil {
			return nil
		}
		return err
	})
	return cmp.Or(broken, err)
}

func (p *retryingReader) again(read func() error) error {
	const what = "read the checkpoint"
	for failed := false; ; failed = true {
		err := read()
		if err == nil || final(err) {
			return err
		}
		key := p.sink + ": " + what
		if !failed {
			defer p.reminder.works(key)
		}
		p.reminder.failed(key, failure{
			message: tryingAgain, fields: []zap.Field{zap.String("sink", p.sink), zap.String("operation", what)}, err: err, advice: advice(err, adviceSink),
		})
		if !p.pause() {
			return fmt.Errorf("read the checkpoint: %w", err)
		}
	}
}

// pause waits before the next attempt. It returns false when the pipeline ends.
func (p *retryingReader) pause() bool {
	again := time.NewTimer(readAgain)
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
