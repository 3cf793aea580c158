package bus

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A client repeats requests to a broker that does not answer. Records that the broker has
// refused or aborted must not count as written twice.
func TestOnlyWhatABrokerTakesCounts(t *testing.T) {
	tx := transaction{producer: -1}
	add := func(producer int64, epoch int16, sequence int32) {
		tx.add("k8s.a/0", &kmsg.RecordBatch{ProducerID: producer, ProducerEpoch: epoch, FirstSequence: sequence, NumRecords: 2}, make([]record, 2))
	}
	for _, c := range []struct {
		what     string
		epoch    int16
		sequence int32
		want     int
	}{
		{"a batch", 1, 0, 2},
		{"the next", 1, 2, 4},
		{"that again", 1, 2, 4},
		{"one of an epoch that has ended", 0, 4, 4},
		{"the first of another epoch, which has aborted the rest", 2, 0, 2},
		{"a late one of the former", 1, 4, 2},
	} {
		if add(7, c.epoch, c.sequence); len(tx.records) != c.want {
			t.Errorf("%s: %d records, want %d", c.what, len(tx.records), c.want)
		}
	}
	if add(8, 0, 0); len(tx.records) != 2 {
		t.Errorf("another producer: %d records, want 2", len(tx.records))
	}
}
