package kafka

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// The vectors are from Kafka's UtilsTest.testMurmur2. Consumers that join these topics with topics written from Java depend on
// the same partitions.
func TestPartitionIsJavas(t *testing.T) {
	t.Parallel()
	for key, hash := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		for _, n := range []int{1, 2, 12, 50, 4099} {
			topic := topic{}
			for p := range n {
				topic.partitions = append(topic.partitions, p)
			}
			want := int(hash&0x7fffffff) % n // BuiltInPartitioner.partitionForKey
			if got := topic.choose(&event.Record{Key: key}); len(got) != 1 || got[0] != want {
				t.Errorf("key %q of %d partitions: %v, Java says %d", key, n, got, want)
			}
		}
	}
}

// In a compacted topic, an event about a request must not take the place of the object's last event, and comes behind it in its partition.
func TestKeysOfRequests(t *testing.T) {
	t.Parallel()
	for typ, want := range map[event.Type]string{event.Modified: "c/pods/a", event.Attributed: "c/pods/a/_attributed", event.Denied: "c/pods/a/_denied"} {
		r := event.Record{Key: "c/pods/a", Event: &event.Event{Type: typ}}
		compacted := &topic{compacted: true, partitions: []int{0, 1, 2, 3, 4, 5, 6}}
		if got := compacted.key(&r); got != want {
			t.Errorf("%s: key %q, want %q", typ, got, want)
		}
		if got := (&topic{}).key(&r); got != r.Key {
			t.Errorf("%s: key %q in a topic that is not compacted", typ, got)
		}
		if got, of := compacted.choose(&r), compacted.choose(&event.Record{Key: r.Key}); !slices.Equal(got, of) {
			t.Errorf("%s: partition %v, the object's is %v", typ, got, of)
		}
	}
}

// With a size that is too low, the broker would reject records. With a size that is far too high, records would be truncated
// unnecessarily.
func TestSizeIsAnUpperBound(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	c := b.config()
	c.Tombstones = true
	s := openSink(t, c)
	b.topic(t, "t", 1, 0)
	var before int64
	for i, r := range []event.Record{
		{},
		{Key: "k"},
		{Value: []byte("v")},
		{Key: strings.Repeat("k", 300), Value: make([]byte, 70_000)},
		{Key: "k", Value: make([]byte, 63), Attributes: []event.Attribute{{Name: "a", Value: strings.Repeat("b", 64)}, {Name: "c"}}},
		{Value: make([]byte, 500), Attributes: make([]event.Attribute, 64)},
		{Key: "k", Value: []byte("v"), Attributes: make([]event.Attribute, 64), Event: &event.Event{Type: event.Deleted}},
		{Key: "k", Value: []byte("v"), Attributes: make([]event.Attribute, 64), Event: &event.Event{Type: event.Deleted, Incarnation: 1}},
	} {
		r.Route = "t"
		writeAll(t, s, &event.Batch{Seq: uint64(i) + 1, Records: []event.Record{r}})
		after := b.PartitionInfo("t", 0).NumBytes
		if is, said := int(after-before), batchOverhead+(&topic{tombstones: true}).size(&r); is > said || said > is+50 {
			t.Errorf("record %d takes %d bytes, size says %d", i, is, said)
		}
		before = after
	}
}

// A dry run prints the same headers as consumers get, in either form.
func TestHeaders(t *testing.T) {
	t.Parallel()
	r := event.Record{
		Format: event.Binary, Attributes: []event.Attribute{{Name: "id", Value: "1"}, {Name: "datacontenttype", Value: "application/json"}},
		Headers: []event.Attribute{{Name: "tier", Value: "a"}},
	}
	want := []event.Attribute{{Name: "content-type", Value: event.Binary.ContentType()}, {Name: "ce_id", Value: "1"}, {Name: "tier", Value: "a"}}
	if got := Headers(&r); !slices.Equal(got, want) {
		t.Errorf("binary: %v, want %v", got, want)
	}
	r.Format = event.Structured
	if got := Headers(&r); len(got) != 4 || got[2] != (event.Attribute{Name: "ce_datacontenttype", Value: "application/json"}) {
		t.Errorf("structured: %v", got)
	}
	r.Event, r.Key, r.Value = &event.Event{Type: event.Deleted}, "k", []byte("{}")
	if !Buries(&r) {
		t.Error("no null value follows a deletion")
	}
	if r.Value = nil; Buries(&r) {
		t.Error("a null value follows a null value")
	}
}
