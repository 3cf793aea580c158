package source

import (
	"bytes"
	"os"
	"testing"
)

// corpus is watch frames captured from a kube-apiserver, a line each.
func corpus(b *testing.B, name string) []byte {
	b.Helper()
	text, err := os.ReadFile("../../internal/base/scan/testdata/" + name + ".ndjson")
	if err != nil {
		b.Fatal(err)
	}
	return text
}

// cycle is a stream that repeats its frames without end, as a connection gives them:
// at most one HTTP/2 frame at a time.
type cycle struct {
	text []byte
	at   int
}

func (c *cycle) Read(p []byte) (int, error) {
	n := copy(p[:min(len(p), 16<<10)], c.text[c.at:])
	c.at = (c.at + n) % len(c.text)
	return n, nil
}

// BenchmarkFrames reads watch frames: bytes of a connection become Objects.
func BenchmarkFrames(b *testing.B) {
	for _, name := range []string{"pods", "events", "secrets"} {
		b.Run(name, func(b *testing.B) {
			text := corpus(b, name)
			r := newFrameReader(&cycle{text: text}, keepWide, &pieces{})
			b.SetBytes(int64(len(text) / bytes.Count(text, []byte("\n"))))
			b.ReportAllocs()
			for b.Loop() {
				_, o, err := r.next()
				if err != nil {
					b.Fatal(err)
				}
				o.Release()
			}
		})
	}
}
