package attribute

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/pkg/event"
)

const (
	// historiesKey is the key of the present histories.
	historiesKey = "n/audit-histories"
	// clocksDiffer bounds how far the clocks of API servers are ahead of the bridge's.
	clocksDiffer = time.Minute
)

// history is a history of a storage: restoring the storage from a backup begins another one, in which resourceVersions are used again.
type history struct {
	storage string
	epoch   uint64
}

// begun is the present history of a storage.
type begun struct {
	Epoch uint64 `json:"epoch"`
	// Before is later than the end of the history before. A request that came before it proves nothing. Zero: there was no other history.
	Before time.Time `json:"before,omitzero"`
}

// setEpochs says which epoch each storage is in, and returns the change of the checkpoint that follows, if any. It is called before Read and
// Ready. A change of an earlier history never gets an exact request any more: a later request may have led to the same resourceVersion.
func (a *Attribution) setEpochs(epochs map[string]uint64, now time.Time) []event.KV {
	for storage, epoch := range epochs {
		a.begin(history{storage, epoch}, now)
	}
	if maps.Equal(a.histories, a.stored) {
		return nil
	}
	a.stored = maps.Clone(a.histories)
	value, _ := json.Marshal(a.stored) // strings, numbers and times always encode
	return []event.KV{{Key: []byte(historiesKey), Value: value}}
}

// begin makes a history the present one of its storage, unless there is a later one.
func (a *Attribution) begin(h history, now time.Time) {
	present, known := a.histories[h.storage]
	if h.epoch <= present.Epoch || !known && h.epoch <= 1 { // nothing is stored of a storage that was never restored
		return
	}
	a.histories[h.storage] = begun{h.epoch, now.Add(clocksDiffer).UTC()}
	for other, j := range a.joins {
		if other.storage == h.storage {
			j.End()
		}
	}
}

func (a *Attribution) loadHistories() error {
	a.histories, a.stored = map[string]begun{}, nil
	value, err := a.store.Get([]byte(historiesKey))
	if err == nil && value != nil {
		err = json.Unmarshal(value, &a.histories)
	}
	if err != nil {
		return fmt.Errorf("read histories of storages from the checkpoint: %w", err)
	}
	a.stored = maps.Clone(a.histories)
	return nil
}

// present returns the present history of a storage.
func (a *Attribution) present(storage string) history {
	return history{storage, max(a.histories[storage].Epoch, 1)}
}

// joinOf returns the join that a change belongs to.
func (a *Attribution) joinOf(c *Change, now time.Time) *join.Join {
	return a.join(history{c.Storage, c.Epoch}, now)
}

// join returns the join of a history.
func (a *Attribution) join(h history, now time.Time) *join.Join {
	if j := a.joins[h]; j != nil {
		return j
	}
	a.begin(h, now)
	present := a.histories[h.storage]
	o := a.options.Join
	o.After = present.Before
	j := join.New(o)
	if h.epoch < present.Epoch {
		j.End()
	}
	j.Lost(a.marks(a.read), now)
	a.joins[h] = j
	a.share(now)
	return j
}

// forgetEnded forgets the joins of earlier histories that no change waits in.
func (a *Attribution) forgetEnded() {
	before := len(a.joins)
	for h, j := range a.joins {
		if changes, _ := j.Waiting(); changes == 0 && h.epoch < a.histories[h.storage].Epoch {
			delete(a.joins, h)
		}
	}
	if len(a.joins) < before {
		a.share(a.now)
	}
}
