package checkpointtest

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// round returns a commit that writes its number to every key. A reader that sees two
// different numbers sees a part of a commit.
func round(n, keys int) []event.KV {
	var changes []event.KV
	for i := range keys {
		changes = append(changes, kv(fmt.Sprintf("e/pods/ns/%04d", i), strconv.Itoa(n)))
	}
	// One key is set and deleted in turn, so that the test covers deletions.
	if n%2 == 0 {
		return append(changes, kv("e/pods/ns/even", strconv.Itoa(n)))
	}
	return append(changes, del("e/pods/ns/even"))
}

// whole returns the number of the round that a snapshot shows; -1 before the first round.
func whole(s Store, keys int) (int, error) {
	numbers := map[string]int{}
	err := s.Scan([]byte("e/pods/ns/"), func(_, v []byte) error {
		numbers[string(v)]++
		return nil
	})
	if err != nil || len(numbers) == 0 {
		return -1, err
	}
	for v, count := range numbers {
		n, err := strconv.Atoi(v)
		if want := keys + (n+1)%2; err != nil || len(numbers) > 1 || count != want {
			return 0, fmt.Errorf("a commit is not whole: objects by round %v, want %d of one", numbers, want)
		}
		return n, nil
	}
	panic("unreachable")
}

func (c *Config) readers(t *testing.T) {
	s := c.fresh(t)
	const keys, rounds = 200, 60
	done := make(chan struct{})
	errs := make(chan error, 4)
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for last := -1; ; {
				n, err := whole(s, keys)
				if err == nil && n < last {
					err = fmt.Errorf("a scan saw round %d after another had seen %d", n, last)
				}
				if err != nil {
					errs <- err
					return
				}
				last = n
				select {
				case <-done:
					return
				default:
					runtime.Gosched() // so that a store in this process gets the processor
				}
			}
		})
		readers.Go(func() {
			for last := -1; ; {
				v, err := s.Get([]byte("e/pods/ns/0007"))
				n := last
				if err == nil && v != nil {
					n, err = strconv.Atoi(string(v))
				}
				if err == nil && n < last {
					err = fmt.Errorf("get went back from %d to %d", last, n)
				}
				if err != nil {
					errs <- err
					return
				}
				last = n
				select {
				case <-done:
					return
				default:
					runtime.Gosched() // so that a store in this process gets the processor
				}
			}
		})
	}
	var err error
	for n := 0; n < rounds && err == nil; n++ {
		err = s.Commit(t.Context(), round(n, keys))
	}
	close(done)
	readers.Wait()
	close(errs)
	for e := range errs {
		err = errors.Join(err, e)
	}
	if err != nil {
		t.Fatal(err)
	}
	if n, err := whole(s, keys); n != rounds-1 || err != nil {
		t.Errorf("ended at round %d, %v, want %d", n, err, rounds-1)
	}
}

// model compares the store with a map over random commits.
func (c *Config) model(t *testing.T) {
	s := c.fresh(t)
	model := map[string]string{}
	key := rapid.StringMatching(`e/[abc]{1,2}/[a-c:\x00]{0,3}`)
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 8).Draw(rt, "changes")
		var changes []event.KV
		for range n {
			k := key.Draw(rt, "key")
			if rapid.Bool().Draw(rt, "delete") {
				changes = append(changes, del(k))
				delete(model, k)
				continue
			}
			v := rapid.StringN(0, 5, -1).Draw(rt, "value")
			changes = append(changes, kv(k, v))
			model[k] = v
		}
		if err := s.Commit(rt.Context(), changes); err != nil {
			rt.Fatal(err)
		}
		want := []string{}
		for _, k := range slices.Sorted(maps.Keys(model)) {
			want = append(want, k+"="+model[k])
		}
		got := list(t, s, "e/")
		if !slices.Equal(got, want) {
			rt.Fatalf("store %q, model %q", got, want)
		}
	})
}
