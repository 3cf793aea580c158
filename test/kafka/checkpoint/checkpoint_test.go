// Package checkpoint_test runs the checkpoint store in Kafka against real Kafka. It is a package of its own because the suite
// kills processes of its test program.
package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/checkpointtest"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

func TestMain(m *testing.M) {
	checkpointtest.Main(m, func(place string) (checkpointtest.Store, error) { return open(place) })
}

// open opens a store without a sink. place is "addresses bridge".
func open(place string) (*kafka.Store, error) {
	addrs, bridge, _ := strings.Cut(place, " ")
	s, err := kafka.NewStore(kafka.StoreOptions{
		Options: kafka.Options{
			Config:   kafka.Config{Brokers: strings.Split(addrs, ",")},
			Identity: event.Identity{Bridge: bridge, Cluster: "c", ClusterUID: "uid", Sink: "audit"},
		},
		StandAlone: true,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := s.Load(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func TestStore(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{})
	run := time.Now().UnixNano() // a Kafka that stays may have seen an earlier one
	var n atomic.Int32
	place := func(t *testing.T) string {
		bridge := fmt.Sprintf("test-%d-%d", run, n.Add(1))
		t.Cleanup(func() {
			if !c.Owned() {
				_ = c.DeleteTopic(context.Background(), kafka.CheckpointTopic("", event.Identity{Bridge: bridge, Cluster: "c", Sink: "audit"}))
			}
		})
		return strings.Join(c.Addrs(), ",") + " " + bridge
	}
	t.Run("suite", func(t *testing.T) {
		checkpointtest.Run(t, checkpointtest.Config{
			Open:  func(place string) (checkpointtest.Store, error) { return open(place) },
			Place: place,
		})
	})
	t.Run("taken over", func(t *testing.T) { takenOver(t, place(t)) })
	t.Run("restart of many objects", func(t *testing.T) { restart(t, place(t)) })
}

func mustOpen(t *testing.T, place string) *kafka.Store {
	t.Helper()
	s, err := open(place)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// If two processes open a checkpoint, the first one is fenced and writes nothing more. The second one is not affected.
func takenOver(t *testing.T, place string) {
	change := func(value string) []event.KV { return []event.KV{{Key: []byte("e/a"), Value: []byte(value)}} }
	old := mustOpen(t, place)
	if err := old.Commit(t.Context(), change("1")); err != nil {
		t.Fatal(err)
	}
	young := mustOpen(t, place)
	for range 2 {
		err := old.Commit(t.Context(), change("old"))
		for tries := 0; err != nil && !errors.Is(err, checkpoint.ErrFenced) && tries < 5; tries++ {
			err = old.Commit(t.Context(), change("old"))
		}
		if !errors.Is(err, checkpoint.ErrFenced) {
			t.Errorf("Commit of the older one: %v, want ErrFenced", err)
		}
	}
	if err := young.Commit(t.Context(), change("young")); err != nil {
		t.Errorf("the younger one was disturbed: %v", err)
	}
	if got, err := mustOpen(t, place).Get([]byte("e/a")); err != nil || string(got) != "young" {
		t.Errorf("a restart finds %q (%v), want what the younger one wrote", got, err)
	}
}

// A restart with a large checkpoint takes seconds, and its memory is bounded.
func restart(t *testing.T, place string) {
	const objects, patience, most = 100_000, 2 * time.Minute, 64 << 20
	entry := func(i int) event.KV {
		return event.KV{
			Key:   fmt.Appendf(nil, "o/pods/namespace-%d/deployment-7c5ddbdf54-%05d", i%100, i),
			Value: fmt.Appendf(nil, "an inventory entry has some 45 bytes, so %05d", i),
		}
	}
	all := make([]event.KV, objects)
	for i := range all {
		all[i] = entry(i)
	}
	s := mustOpen(t, place)
	began := time.Now()
	for batch := range slices.Chunk(all, 2000) {
		if err := s.Commit(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	written := time.Since(began)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	all = nil
	before, after := heap(), runtime.MemStats{}
	began = time.Now()
	again := mustOpen(t, place)
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	settled := heap()
	n := 0
	if err := again.Scan([]byte("o/"), func(_, _ []byte) error { n++; return nil }); err != nil || n != objects {
		t.Errorf("a restart finds %d objects (%v), want %d", n, err, objects)
	}
	kept := int64(settled.HeapInuse) - int64(before.HeapInuse)
	t.Logf("%d objects: written in %v, read in %v, %d KiB of heap more, %d MiB allocated on the way", objects,
		written.Round(time.Millisecond), took.Round(time.Millisecond), kept>>10, (after.TotalAlloc-before.TotalAlloc)>>20)
	if took > patience {
		t.Errorf("a restart took %v, want less than %v", took, patience)
	}
	if kept > most {
		t.Errorf("a restart keeps %d bytes of memory, want less than %d", kept, most)
	}
}

func heap() (m runtime.MemStats) {
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}
