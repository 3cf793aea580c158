package attribution

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/topic"
	"github.com/kubebridge/kubebridge/internal/base/pause"
)

// ReadTopic copies the records of the topic to the inbox.
func (in *Inputs) ReadTopic(ctx context.Context) error {
	messages, from, ok := newIntake[topic.Position](ctx, in, fromTopic)
	if !ok {
		return nil
	}
	defer messages.flush(0)
	r := in.openTopic(ctx, from)
	if r == nil {
		return nil
	}
	defer r.Close()
	var known time.Time // of the last record that was read
	unused := false     // there are Azure records
	for {
		chunk, err := r.Next(ctx)
		var gap *topic.GapError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &gap):
			if !messages.lost(ctx, known, err) {
				return nil
			}
			continue
		case err != nil:
			in.shown.met(readTopic, err)
			in.log.Warn("read of the audit topic failed, trying again", zap.Error(err))
			if !pause.For(ctx, retryEvery) {
				return nil
			}
			continue
		}
		in.shown.met(readTopic, nil)
		if errors.Is(chunk.Err, audit.ErrNoCluster) && !unused { // this stays until the configuration says which cluster this is
			unused = true
			in.shown.met(useAzure, chunk.Err)
			in.log.Warn("records of Azure Monitor are not used: set audit.kafka.azureResourceId", zap.Int("events", chunk.Unparsable))
		}
		known = lastTime(chunk.Records, known)
		if !messages.keep(ctx, chunk.Records, chunk.Position) {
			return nil
		}
		in.shown.count(&chunk.Batch)
		if !chunk.Caught.IsZero() {
			in.hasRead(fromTopic, chunk.Caught)
		}
	}
}

// openTopic returns a reader of the topic, nil if ctx ends before one can be made: files with credentials may be missing at the start.
func (in *Inputs) openTopic(ctx context.Context, from topic.Position) *topic.Reader {
	for {
		o, err := in.spec.Topic()
		if err == nil {
			var r *topic.Reader
			if r, err = topic.Open(o, from); err == nil {
				return r
			}
		}
		in.shown.met(readTopic, err)
		in.log.Warn("read of the audit topic failed, trying again", zap.Error(err))
		if !pause.For(ctx, retryEvery) {
			return nil
		}
	}
}
