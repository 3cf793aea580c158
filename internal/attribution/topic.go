package attribution

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/topic"
)

// ReadTopic copies the records of the topic to the inbox. How far it has come is stored behind that, so records can come twice.
func (in *Inputs) ReadTopic(ctx context.Context) error {
	path := filepath.Join(in.spec.Path, "topic-position.json")
	from, ok := readPosition[topic.Position](ctx, in, path, fromTopic)
	if !ok {
		return nil
	}
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
			if !in.lost(ctx, fromTopic, known, err) {
				return nil
			}
			continue
		case err != nil:
			in.shown.met(readTopic, err)
			in.log.Warn("read of the audit topic failed, trying again", zap.Error(err))
			if !pause(ctx, retryEvery) {
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
		for i := range chunk.Records {
			chunk.Records[i].Input = fromTopic
		}
		if !in.keep(ctx, chunk.Records) {
			return nil
		}
		in.shown.count(&chunk.Batch)
		in.storePosition(path, chunk.Position)
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
		if !pause(ctx, retryEvery) {
			return nil
		}
	}
}
