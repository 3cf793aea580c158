package bridge

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// countsBus sends the counts of synced events to a channel.
type countsBus struct {
	nowhere
	counts chan event.Counts
}

// Write implements [sink.Sink].
func (b *countsBus) Write(_ context.Context, batch *event.Batch) ([]byte, error) {
	for i := range batch.Records {
		if e := batch.Records[i].Event; e.Type == event.Synced {
			b.counts <- *e.Report.Counts
		}
	}
	return nil, nil
}

// TestAliveBetweenObjects: if objects take long, one after the other, the loop still counts as alive.
func TestAliveBetweenObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(pipelineOptions{
			Identity: identity, Store: &fullDisk{}, Log: zap.NewNop(), Metrics: NewMetrics(prometheus.NewRegistry()), reader: &scripted{},
		})
		encoder := counting{p.encoder, p}
		encoder.Prepare("configmaps", &reconcile.Sighting{Form: reconcile.Lacking}, nil, false) // no request waits for an answer
		alive := make(chan bool, 1)
		go func() { alive <- p.Alive(t.Context()) }()
		synctest.Wait()
		encoder.Prepare("configmaps", &reconcile.Sighting{Form: reconcile.Lacking}, nil, false)
		if !<-alive {
			t.Error("it is not alive")
		}
	})
}

// TestCountsOfAList: an operator compares the counts with what the cluster has, and with the events between gap and
// synced. That must also be possible if the list began again because its continue token expired.
func TestCountsOfAList(t *testing.T) {
	store, err := file.OpenMem(identity)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	bus := &countsBus{counts: make(chan event.Counts, 1)}
	r := newRig(t, bus, store, CollectionOptions{})
	defer r.stop()
	begun := func(reason event.Reason) *reconcile.Input {
		return &reconcile.Input{Kind: reconcile.ListBegun, Reason: reason}
	}
	lacks := func(name, version string) *reconcile.Input {
		s := object(reconcile.List, reconcile.Lacking, name, version)
		return &reconcile.Input{Kind: reconcile.ListLacks, Key: s.Key, Sighting: s}
	}
	expect := func(what string, want event.Counts) {
		t.Helper()
		select {
		case got := <-bus.counts:
			if got != want {
				t.Errorf("%s: %+v, want %+v", what, got, want)
			}
		case <-time.After(endsHang):
			t.Fatalf("%s: there is no synced event", what)
		}
	}

	r.reads(begun(source.ReasonSnapshot), listed("0", "5"), listed("1", "5"), listed("2", "5"))
	r.reads(begun(event.ReasonExpired), listed("0", "5"), listed("1", "5"), listed("2", "5"), listed("3", "6"))
	r.reads(listEnd("10")...)
	expect("the first list began again", event.Counts{Listed: 4, Present: 4})

	r.reads(begun(event.ReasonExpired), listed("0", "5"), listed("1", "11"), listed("2", "5"))
	r.reads(begun(event.ReasonExpired), listed("0", "5"), listed("1", "12"), listed("4", "13"))
	r.reads(&reconcile.Input{Kind: reconcile.ListEnded, Version: "20"}, lacks("2", "20"), lacks("3", "20"), &reconcile.Input{Kind: reconcile.ListDone})
	expect("a later list began again, and an object changed twice", event.Counts{Listed: 3, Added: 1, Modified: 2, Deleted: 2, Unchanged: 1})
}

// TestCountsOfALateRead: what a read has found when it is over is not counted as listed. The core ignores it.
func TestCountsOfALateRead(t *testing.T) {
	store, err := file.OpenMem(identity)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	bus := &countsBus{counts: make(chan event.Counts, 1)}
	r := newRig(t, bus, store, CollectionOptions{})
	defer r.stop()
	begun := &reconcile.Input{Kind: reconcile.ListBegun, Reason: source.ReasonSnapshot}
	handler := func() *loop.Handler {
		now := make(chan *loop.Handler, 1)
		r.reader.do <- func(_ context.Context, h *loop.Handler) error {
			now <- h
			return nil
		}
		return <-now
	}
	r.reads(append([]*reconcile.Input{begun, listed("0", "5"), listed("1", "5")}, listEnd("10")...)...)
	if got, want := <-bus.counts, (event.Counts{Listed: 2, Present: 2}); got != want {
		t.Errorf("the first list: %+v, want %+v", got, want)
	}
	former := handler()
	r.set(CollectionOptions{Settings: encode.Settings{Filter: `name != "other"`}}) // it leads to another list
	for handler() == former {
	}
	r.reads(begun, listed("0", "5"))
	if err := former.Input(t.Context(), listed("1", "5"), 100, nil); err != nil {
		t.Fatal(err)
	}
	r.reads(append([]*reconcile.Input{listed("1", "5")}, listEnd("20")...)...)
	if got, want := <-bus.counts, (event.Counts{Listed: 2, Unchanged: 2}); got != want {
		t.Errorf("the list with a late sighting: %+v, want %+v", got, want)
	}
}

// TestCountsOfWhatIsLeftOut: a consumer can distinguish objects that are not published from objects that it has.
func TestCountsOfWhatIsLeftOut(t *testing.T) {
	for name, x := range map[string]struct {
		options CollectionOptions
		want    event.Counts
	}{
		"skipped":  {CollectionOptions{Settings: encode.Settings{SkipSnapshot: true}}, event.Counts{Listed: 3, Skipped: 3}},
		"filtered": {CollectionOptions{Settings: encode.Settings{Filter: `name != "1"`}}, event.Counts{Listed: 3, Present: 2, Filtered: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			store, err := file.OpenMem(identity)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			bus := &countsBus{counts: make(chan event.Counts, 1)}
			r := newRig(t, bus, store, x.options)
			defer r.stop()
			list := []*reconcile.Input{{Kind: reconcile.ListBegun, Reason: source.ReasonSnapshot}, listed("0", "5"), listed("1", "5"), listed("2", "5")}
			r.reads(append(list, listEnd("10")...)...)
			select {
			case got := <-bus.counts:
				if got != x.want {
					t.Errorf("%+v, want %+v", got, x.want)
				}
			case <-time.After(endsHang):
				t.Fatal("there is no synced event")
			}
		})
	}
}

// TestCountsOfSkippedObjects: a resync does not publish objects that the first list has skipped. Its counts show this,
// because `bridge state` must not take the list for complete.
func TestCountsOfSkippedObjects(t *testing.T) {
	var c collectionCounts
	c.gap(7, false)
	seen := func(version string, known reconcile.Object) {
		known.UID = "u"
		c.sighted(&reconcile.Sighting{Origin: reconcile.Resync, UID: "u", Version: version}, &known)
	}
	seen("5", reconcile.Object{Version: "5", Status: reconcile.Skipped})
	seen("6", reconcile.Object{Version: "5", Status: reconcile.Skipped}) // the watch publishes it
	seen("5", reconcile.Object{Version: "5", Status: reconcile.Published})
	c.counted(event.Present)
	if got, want := *c.synced(), (event.Counts{Listed: 3, Skipped: 1, Unchanged: 1, Present: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	c.listBegun()
	if got := *c.synced(); got.Skipped != 0 || got.Listed != 0 {
		t.Errorf("a list that begins again has %+v", got)
	}
}
