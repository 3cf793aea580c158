package bridge

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/topic"
)

// readTopic copies the records of the topic to the inbox. How far it has come is stored behind that, so records can come twice.
func (a *auditing) readTopic(ctx context.Context) error {
	path := filepath.Join(a.spec.Path, "topic-position.json")
	from, ok := readPosition[topic.Position](ctx, a, path, fromTopic)
	if !ok {
		return nil
	}
	r := a.openTopic(ctx, from)
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
			if !a.lost(ctx, fromTopic, known, err) {
				return nil
			}
			continue
		case err != nil:
			a.shown.met(readTopic, err)
			a.log.Warn("read of the audit topic failed, trying again", zap.Error(err))
			if !pause(ctx, retryEvery) {
				return nil
			}
			continue
		}
		a.shown.met(readTopic, nil)
		if errors.Is(chunk.Err, audit.ErrNoCluster) && !unused { // this stays until the configuration says which cluster this is
			unused = true
			a.shown.met(useAzure, chunk.Err)
			a.log.Warn("records of Azure Monitor are not used: set audit.kafka.azureResourceId", zap.Int("events", chunk.Unparsable))
		}
		known = lastTime(chunk.Records, known)
		for i := range chunk.Records {
			chunk.Records[i].Input = fromTopic
		}
		if !a.keep(ctx, chunk.Records) {
			return nil
		}
		a.shown.count(&chunk.Batch)
		a.storePosition(path, chunk.Position)
		if !chunk.Caught.IsZero() {
			a.hasRead(fromTopic, chunk.Caught)
		}
	}
}

// openTopic returns a reader of the topic, nil if ctx ends before one can be made: files with credentials may be missing at the start.
func (a *auditing) openTopic(ctx context.Context, from topic.Position) *topic.Reader {
	for {
		o, err := a.spec.Topic()
		if err == nil {
			var r *topic.Reader
			if r, err = topic.Open(o, from); err == nil {
				return r
			}
		}
		a.shown.met(readTopic, err)
		a.log.Warn("read of the audit topic failed, trying again", zap.Error(err))
		if !pause(ctx, retryEvery) {
			return nil
		}
	}
}
