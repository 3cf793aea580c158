package campaign

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestFlat: a process with noise, sawtooth patterns, a slow warm-up or faults is flat. A process that keeps memory it should
// free is not flat, nor is one with too few known samples.
func TestFlat(t *testing.T) {
	const n = 180 // half an hour
	r := rand.New(rand.NewPCG(1, 1))
	steady := func(i int) float64 {
		v := 60 + 3*r.NormFloat64() + float64(i%7) // noise, and the sawtooth of a garbage collector
		if i%11 == 0 {
			v += 40 // a fault
		}
		return v - 40*math.Exp(-float64(i)/15)
	}
	for _, c := range []struct {
		name    string
		column  int
		value   func(i int) float64
		problem string
	}{
		{"noise", 0, func(i int) float64 { return steady(i) * (1 << 20) }, ""},
		{"a leak of 1 MiB in a minute", 0, func(i int) float64 { return (steady(i) + float64(i)/6) * (1 << 20) }, "resident memory"},
		{"a heap that keeps 30 bytes of each of 13 events a second", 2, func(i int) float64 { return 20<<20 + 2*30*13*10*float64(i) }, ""},
		{"a heap that keeps 200 bytes of each of 13 events a second", 2, func(i int) float64 { return 20<<20 + 2*200*13*10*float64(i) }, "next collection"},
		{"a goroutine left behind by every fault", 3, func(i int) float64 { return 80 + math.Floor(float64(i)/6) }, "goroutines"},
		{"goroutines that come and go", 3, func(i int) float64 { return 80 + float64(i%5) }, ""},
		{"one more open file every two minutes", 5, func(i int) float64 { return 20 + math.Floor(float64(i)/12) }, "file descriptors"},
		{"a checkpoint that keeps deleted objects", 8, func(i int) float64 { return 100 + float64(i) }, "keys"},
		{"logs that fill until they are used again", 6, func(i int) float64 { return min(float64(i)*40*1024, 7<<20) }, ""},
		{"files that are never removed", 6, func(i int) float64 { return float64(i) * 60 * 1024 }, "files"},
		{"few known samples", 1, func(i int) float64 {
			if i%9 > 0 {
				return math.NaN()
			}
			return 1
		}, "quarter 1 has 5 samples"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all []Sample
			for i := range n {
				s := Sample{At: time.Duration(i) * 10 * time.Second, Pair: "a/b", Process: 1, Values: make([]float64, len(measures()))}
				s.Values[c.column] = c.value(i)
				all = append(all, s)
				other := s // a process with a short life is not judged
				other.Process, other.Values = 2, []float64{1e12 * float64(i), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
				if i < 50 {
					all = append(all, other)
				}
			}
			problems, table := Flat(all), Table(all)
			said := strings.Join(problems, "; ")
			if c.problem == "" && said != "" || !strings.Contains(said, c.problem) || len(problems) > 1 {
				t.Errorf("problems %q, want %q\n%s", said, c.problem, table)
			}
			if heading, _, _ := strings.Cut(table, "\n"); heading != "| second quarter → last (greatest) | a/b, 30 min |" || !strings.Contains(table, "a/b, process 2, 0s to 8m10s (too short to be judged):") {
				t.Errorf("the table has no summary of process 1, or judges process 2, which ran too short:\n%s", table)
			}
		})
	}
}
