package attribution

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/base/pause"
)

// intake puts the records of an input into the inbox, together with the offset behind them: after a crash, the input
// continues behind the last record that the inbox holds. It is for one goroutine.
type intake struct {
	*Inputs
	input  int
	offset json.RawMessage // up to which the input is read
	kept   json.RawMessage // the one in the inbox
	at     time.Time       // when it was kept; zero: the next one is kept at once
}

// newIntake returns an intake, and the offset to continue from. If that cannot be decoded, it is the zero one, and a loss
// is noted. ok is false if ctx ends first.
func newIntake[Offset any](ctx context.Context, in *Inputs, input int) (i *intake, from Offset, ok bool) {
	kept := in.inbox.Offset(input)
	i = &intake{Inputs: in, input: input, offset: kept, kept: kept}
	if kept == nil {
		return i, from, true
	}
	if err := json.Unmarshal(kept, &from); err != nil {
		var none Offset
		i.offset, _ = json.Marshal(none)
		return i, none, i.lost(ctx, time.Time{}, fmt.Errorf("read the offset up to which audit records were read: %w", err))
	}
	return i, from, true
}

// keep puts records into the inbox with the offset behind them, as soon as there is room. Without records, it does so
// once in offsetEvery. It returns false if ctx ends first.
func (i *intake) keep(ctx context.Context, records []audit.Record, offset any) bool {
	i.offset, _ = json.Marshal(offset) // strings and numbers always encode
	if len(records) == 0 {
		i.flush(offsetEvery)
		return true
	}
	return i.put(ctx, records)
}

func (i *intake) put(ctx context.Context, records []audit.Record) bool {
	for k := range records {
		records[k].Input = i.input
	}
	for {
		err := i.append(records, i.input, i.offset)
		if err == nil {
			i.kept, i.at = i.offset, time.Now()
			return true
		}
		i.log.Warn("audit records cannot be kept, trying again", zap.Error(err))
		if !pause.For(ctx, retryEvery) {
			return false
		}
	}
}

// flush keeps the offset, unless one was kept less than a time ago. After an error, a later offset replaces this one.
func (i *intake) flush(after time.Duration) {
	if bytes.Equal(i.offset, i.kept) || time.Since(i.at) < after {
		return
	}
	i.at = time.Now()
	if err := i.append(nil, i.input, i.offset); err != nil {
		i.log.Warn("write of the offset of audit records failed", zap.Error(err))
		return
	}
	i.kept = i.offset
}

// lost notes in the inbox that records of the input may be missing there. known is the time of the last record before,
// zero if that is not known. It returns false if ctx ends first.
func (i *intake) lost(ctx context.Context, known time.Time, why error) bool {
	i.gaps.Add(1)
	i.shown.lost(why)
	i.log.Warn("audit records may be missing", zap.Error(why))
	ok := i.put(ctx, []audit.Record{{ID: rand.Text(), Lost: newLoss(known, why.Error())}})
	i.at = time.Time{}
	return ok
}
