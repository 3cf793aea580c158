package encode_test

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
)

// xxHashTwins returns two objects with different images and the same xxHash64 (seed 0), as the author of the objects
// can make them: in the second object, padding behind the image cancels the effect of the other image.
func xxHashTwins(t *testing.T, version string) (a, b string) {
	t.Helper()
	const (
		prime1, prime2 = 11400714785074694791, 14029467366897019727
		stripe         = 32 // bytes: four words, one for each of the four sums
	)
	round := func(lane uint64, word []byte) uint64 {
		return bits.RotateLeft64(lane+binary.LittleEndian.Uint64(word)*prime2, 31) * prime1
	}
	head := `{"data":{"align":"` + strings.Repeat("-", 100)
	head += strings.Repeat("-", stripe-(len(head)+len(`","image":"`))%stripe) + `","image":"`
	tail := `"},"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop","uid":"ua","resourceVersion":"` + version + `"}}`
	one, two := uint64(prime1), uint64(prime2)
	start := one + two // the initial value of the first lane
	for i := 0; i < len(head); i += stripe {
		start = round(start, []byte(head[i:i+8]))
	}
	random := rand.New(rand.NewPCG(1, 2))
	text := func() []byte {
		word := make([]byte, 8)
		for i := range word {
			word[i] = 'a' + byte(random.IntN(26))
		}
		return word
	}
	between := `","padding":"-----------`
	object := func(image string, second, third []byte) string {
		fill := strings.Repeat("-", stripe-8)
		return head + image + between + string(second) + fill + string(third) + fill + tail
	}
	second, third := text(), text()
	want := round(round(round(start, []byte("app:good")), second), third)
	undo := bits.RotateLeft64(want*inverseOf(prime1), -31) // the value of the lane before the last multiplication and rotation
	for range 1_000_000 {
		other := text()
		last := binary.LittleEndian.AppendUint64(nil, (undo-round(round(start, []byte("app:evil")), other))*inverseOf(prime2))
		if strings.ContainsFunc(string(last), func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) {
			continue
		}
		a, b = object("app:good", second, third), object("app:evil", other, last)
		if xxhash.Sum64String(a) != xxhash.Sum64String(b) {
			t.Fatalf("not the same hash:\n%s\n%s", a, b)
		}
		return a, b
	}
	t.Fatal("no text is found")
	return "", ""
}

// inverseOf returns the x for which odd*x is 1.
func inverseOf(odd uint64) uint64 {
	x := odd
	for range 6 {
		x *= 2 - odd*x
	}
	return x
}

// A user who may write an object, and so chooses both bodies, cannot make a change go unnoticed. This holds where
// ignore rules compare two versions, and where a list compares one.
func TestChosenBodies(t *testing.T) {
	r := newRig(t, configMaps, encode.Settings{Ignore: []string{"status"}}, nil)
	good, evil := xxHashTwins(t, "11")
	r.list("snapshot", "10", reconcile.Gone)
	r.watch(good)
	r.watch(strings.Replace(evil, `"11"`, `"12"`, 1))
	r.commit()
	r.list("expired", "20", reconcile.Gone, strings.Replace(good, `"11"`, `"12"`, 1))
	if got, want := r.said(0), "added a@11, modified a@12, modified a@12"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Digests of one body are equal only under the same key, and only for the same purpose. Digests of objects with
// redacted values also depend on the hash key.
func TestDigestsAreKeyed(t *testing.T) {
	all := map[reconcile.Digest]string{}
	for _, hashKey := range []string{"", "0123456789abcdef", "0123456789abcdeg"} {
		for key := range 3 {
			for _, ignore := range [][]string{{"status"}, {"status", "spec"}} {
				prepared := func() *reconcile.Sighting {
					e := encode.New(encode.Options{Config: encode.Config{Secrets: shape.Secrets{Key: []byte(hashKey)}}})
					e.Key([]byte(fmt.Sprintf("%032d", key)))
					if _, err := configure(e, event.Collection{Resource: "secrets"}, encode.Settings{Ignore: ignore}); err != nil {
						t.Fatal(err)
					}
					s := sighting(secret("5", "MQ==", "a"), reconcile.Watch)
					e.Prepare("secrets", s, nil, false)
					return s
				}
				s, again := prepared(), prepared()
				if s.Digest.IsZero() || s.Significant.IsZero() || !reflect.DeepEqual([]any{s.Digest, s.Significant}, []any{again.Digest, again.Significant}) {
					t.Errorf("digests %x, %x and %x, %x", s.Digest, s.Significant, again.Digest, again.Significant)
				}
				name := fmt.Sprintf("hash key %q, key %d", hashKey, key)
				all[s.Digest] = name
				all[s.Significant] = name + fmt.Sprint(ignore)
			}
		}
	}
	if want := 3 * 3 * (1 + 2); len(all) != want {
		t.Errorf("%d different digests, want %d: %v", len(all), want, all)
	}
}
