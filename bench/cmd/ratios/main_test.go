package main

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

// TestRatio compares with an interval that was computed by hand: logs 0 and ln 4, so the mean is 2, and half the
// interval is 12.706 times the standard error ln 2.
func TestRatio(t *testing.T) {
	mean, low, high := ratio([]float64{1, 1}, []float64{1, 4})
	half := math.Pow(2, 12.706)
	for _, x := range [][2]float64{{mean, 2}, {low, 2 / half}, {high, 2 * half}} {
		if math.Abs(x[0]/x[1]-1) > 1e-9 {
			t.Errorf("got %v, want %v", x[0], x[1])
		}
	}
}

func TestRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "out.txt")
	text := "goos: linux\nBenchmarkThroughput/pods/kafka/program=bridge 16000 18699.5 events/s 47.5 CPU-s/M 0 missing\n"
	if err := os.WriteFile(name, []byte(text+text), 0o600); err != nil {
		t.Fatal(err)
	}
	values, order, err := read(name)
	if err != nil {
		t.Fatal(err)
	}
	want := series{"Throughput/pods/kafka", "CPU-s/M"}
	if len(order) != 2 || order[1] != want || len(values[want]) != 2 || values[want][1] != 47.5 {
		t.Errorf("read %v in the order %v", values, order)
	}
}
