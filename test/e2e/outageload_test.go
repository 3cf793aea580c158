package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// writers is the number of concurrent writers of a load.
const writers = 8

// load writes objects of several types at a steady rate: it creates, changes and deletes them. Some objects exist only for two writes.
type load struct {
	kube  *kube.Client
	types []kube.Type
	made  atomic.Int64 // writes that the API server has acknowledged
	pause sync.RWMutex // locked for writing: no write is in flight
	stop  func() error
	ended context.Context // its cause is the load's error
}

// startLoad writes until the load is stopped, or the test ends.
func (w *world) startLoad(perSecond int, seed uint64, types ...kube.Type) *load {
	w.t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	l := &load{kube: w.kube, types: types, ended: ctx}
	var g errgroup.Group
	tokens, end := make(chan struct{}), make(chan struct{})
	g.Go(func() error {
		defer close(tokens)
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-end:
				return nil
			case <-ctx.Done():
				return nil
			}
			select {
			case tokens <- struct{}{}:
			case <-end:
				return nil
			case <-ctx.Done():
				return nil
			}
		}
	})
	for i := range writers {
		g.Go(func() error {
			err := l.write(tokens, fmt.Sprint("w", i), rand.New(rand.NewPCG(seed, uint64(i))))
			if err != nil {
				cancel(fmt.Errorf("the load failed: %w", err))
			}
			return err
		})
	}
	l.stop = sync.OnceValue(func() error {
		defer cancel(nil)
		close(end)
		return g.Wait()
	})
	w.t.Cleanup(func() { _ = l.stop() }) // its error is reported where the test waits for the load
	return l
}

// alive is an object of a writer.
type alive struct {
	of    kube.Type
	name  string
	brief bool // its next write is its deletion
}

// write makes one write for each token. Each writer has objects of its own.
func (l *load) write(tokens <-chan struct{}, prefix string, random *rand.Rand) error {
	var mine []alive
	for n := 0; ; n++ {
		if _, more := <-tokens; !more {
			return nil
		}
		l.pause.RLock()
		err := l.one(&mine, fmt.Sprint(prefix, "-", n), random)
		l.pause.RUnlock()
		if err != nil {
			return err
		}
		l.made.Add(1)
	}
}

func (l *load) one(mine *[]alive, name string, random *rand.Rand) error {
	const few, many = 5, 30 // objects of a writer
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errImpatient)
	defer cancel()
	i := slices.IndexFunc(*mine, func(o alive) bool { return o.brief })
	choice := random.IntN(10)
	if i < 0 && len(*mine) > 0 {
		i = random.IntN(len(*mine))
	}
	switch {
	case i >= 0 && ((*mine)[i].brief || len(*mine) > many || choice == 0 && len(*mine) > few):
		o := (*mine)[i]
		*mine = slices.Delete(*mine, i, i+1)
		return l.kube.Delete(ctx, o.of, o.name)
	case i < 0 || choice < 4:
		o := alive{l.types[random.IntN(len(l.types))], name, choice == 3}
		*mine = append(*mine, o)
		_, err := l.kube.Create(ctx, o.of, o.name, sample(o.of, "created"))
		return err
	default:
		_, err := l.kube.Patch(ctx, (*mine)[i].of, (*mine)[i].name, change(name))
		return err
	}
}

// await waits until the load has made so many writes in all.
func (l *load) await(t *testing.T, made int64, within time.Duration) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(within); l.made.Load() < made; {
		select {
		case <-tick.C:
		case <-l.ended.Done():
			t.Fatal(context.Cause(l.ended))
		}
		if time.Now().After(end) {
			t.Fatalf("%d writes were made within %s, want %d", l.made.Load(), within, made)
		}
	}
}
