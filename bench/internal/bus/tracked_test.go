package bus

import (
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/bench/internal/mark"
)

// The OpenTelemetry collector puts many objects into one protobuf message. Each object
// counts; otherwise the collector would look slower than it is.
func TestEveryMarkOfAMessageCounts(t *testing.T) {
	var message []byte
	for i := range uint64(3) {
		one := append([]byte{0x0a, 0xff, '~'}, mark.Blank...)
		mark.Put(one[3:], 10+i, i, time.UnixMicro(0))
		message = append(message, one...)
	}
	got := appendRecords(nil, message)
	if len(got) != 3 || got[0].size != len(message) || got[1].size+got[2].size != 0 {
		t.Fatalf("got %+v", got)
	}
	for i, r := range got {
		if r.mark.Seq != uint64(10+i) || r.synced {
			t.Errorf("record %d: %+v", i, r)
		}
	}
	before := append(append([]byte(`{"data":{"object":{`), message[3:]...), `},"base":"7","before":{`...)
	if got := appendRecords(nil, append(before, message[3:]...)); len(got) != 3 {
		t.Errorf("with the state before: %+v", got)
	}
	if got := appendRecords(nil, []byte(`{"type":"io.kubebridge.collection.synced.v1"}`)); len(got) != 1 || !got[0].synced || got[0].mark.Found {
		t.Errorf("a synced event is %+v", got)
	}
}
