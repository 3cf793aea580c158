package scan_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/kubebridge/internal/base/scan"
)

// BenchmarkSkip compares what it costs to know that a frame is valid, and where
// it ends.
func BenchmarkSkip(b *testing.B) {
	for _, name := range []string{"pods", "events"} {
		text, err := os.ReadFile("testdata/" + name + ".ndjson")
		if err != nil {
			b.Fatal(err)
		}
		frame, _, _ := bytes.Cut(text, []byte("\n"))
		for how, skip := range map[string]func() bool{
			"scan": func() func() bool {
				var s scan.Scanner
				return func() bool { s.Reset(frame); return s.Skip() == nil }
			}(),
			"jsontext": func() func() bool {
				var d jsontext.Decoder
				var r bytes.Buffer
				return func() bool {
					r = *bytes.NewBuffer(frame)
					d.Reset(&r, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
					return d.SkipValue() == nil
				}
			}(),
			"encoding-json": func() bool { return json.Valid(frame) },
		} {
			b.Run(name+"/"+how, func(b *testing.B) {
				b.SetBytes(int64(len(frame)))
				b.ReportAllocs()
				for b.Loop() {
					if !skip() {
						b.Fatal("not valid")
					}
				}
			})
		}
	}
}
