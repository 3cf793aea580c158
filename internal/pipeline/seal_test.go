package pipeline

import (
	"fmt"
	"testing"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// TestHashesTellNothingHidden: who reads the checkpoint, which may lie on the bus, has
// no digest to try guesses of a hidden value on; and what may be seen, or with a key
// also what may not, still makes a difference.
func TestHashesTellNothingHidden(t *testing.T) {
	for name, c := range map[string]struct {
		key      string
		resource string
		hides    bool
		differs  bool // with hidden values alone
	}{
		"a key":    {"0123456789abcdef", "secrets", true, true},
		"no key":   {"", "secrets", true, false},
		"no value": {"0123456789abcdef", "pods", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			store, err := file.OpenMem(identity)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			l := newPolicyLane(t, &bus{}, store, Truncate)
			l.log = zap.NewNop()
			l.shape.Secrets = shape.Secrets{Key: []byte(c.key)}
			m := &member{
				target:  source.Target{Collection: event.Collection{Resource: c.resource}},
				options: CollectionOptions{Ignore: []string{"status"}},
			}
			digests := func(o *source.Object) (uint64, uint64) {
				t.Helper()
				hash, err := l.hash(m, o)
				if err != nil {
					t.Fatal(err)
				}
				return hash, l.rest(m, o) &^ m.lens.ignoreID
			}
			one, guess, other := secret(t, "1234", "a"), secret(t, "1235", "a"), secret(t, "1234", "b")
			hash, rest := digests(one)
			plain, err := func() (uint64, error) {
				d, err := m.lens.ignore.Digest(one.Raw)
				return max(d>>16, 1), err
			}()
			if err != nil || (hash != one.Hash()) != c.hides || (rest != plain) != c.hides {
				t.Errorf("hash %x, rest %x; unkeyed %x, %x, %v", hash, rest, one.Hash(), plain, err)
			}
			hash2, rest2 := digests(guess)
			if (hash2 != hash) != c.differs || (rest2 != rest) != c.differs {
				t.Errorf("of another value: hash %x and %x, rest %x and %x", hash, hash2, rest, rest2)
			}
			if hash3, rest3 := digests(other); hash3 == hash || rest3 == rest {
				t.Errorf("of another body: hash %x, rest %x", hash3, rest3)
			}
			if again, rest4 := digests(one); again != hash || rest4 != rest {
				t.Error("it is another each time")
			}
		})
	}
}

func secret(t *testing.T, pin, label string) *source.Object {
	t.Helper()
	o, err := source.ParseObject(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x","namespace":"n","uid":"u","resourceVersion":"5","labels":{"a":%q}},"data":{"pin":%q}}`, label, pin))
	if err != nil {
		t.Fatal(err)
	}
	return &o
}

// TestPackedBodyIsBounded: a checkpoint that somebody changed costs no more memory than
// a body may.
func TestPackedBodyIsBounded(t *testing.T) {
	k := new(Lane).keeping()
	bomb := k.encoder.EncodeAll(make([]byte, 65<<20), nil)
	if len(bomb) > keptBytes {
		t.Fatalf("%d bytes would not be kept anyway", len(bomb))
	}
	if body, err := k.decoder.DecodeAll(bomb, nil); err == nil {
		t.Errorf("%d bytes came of %d", len(body), len(bomb))
	}
}
