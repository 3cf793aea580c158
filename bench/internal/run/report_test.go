package run

import (
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/bench/internal/mark"
)

// The figures of docs/performance.md are copied from these tables.
func TestTables(t *testing.T) {
	var r report
	add := func(program string, perSec, cpu float64, seen uint64) {
		r.add(result{Name: "Throughput/pods/kafka", Program: program, PerSec: perSec, CPU: cpu, Due: 10, Seen: mark.Stats{Unique: seen}})
	}
	for _, perSec := range []float64{9000, 30_000, 25_000} { // the median is 25,000
		add("bridge", perSec, 40, 10)
	}
	add("raw", 50_000, 20, 10)
	add("/somewhere/otel.sh run", 1000, 1600, 9)
	var b strings.Builder
	if err := r.print(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| benchmark | program | events/s | CPU-s/M | events/s ÷ raw | CPU ÷ raw | events/s ÷ otel | CPU ÷ otel | delivered |",
		"| Throughput/pods/kafka | bridge | 25000 | 40.0 | 0.5 | 2 | 25.0 | 0.025 | all of 10 |",
		"| Throughput/pods/kafka | otel | 1000 | 1600 | 0.02 | 80.0 |  |  | 1 missing |",
		"| pods, events/s ÷ OTel | ≥ 25.0 | 25.0 | yes |",
		"| pods, CPU per event ÷ OTel | ≤ 0.0333 | 0.025 | yes |",
		"| pods, events/s ÷ raw | ≥ 0.8 | 0.5 | **no** |",
	} {
		if !strings.Contains(b.String(), want+"\n") {
			t.Errorf("there is no line %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "Secrets") {
		t.Error("a target of what was not measured")
	}
	if err := r.verdict(); err != nil {
		t.Errorf("the others' losses are the bridge's: %v", err)
	}
	add("bridge", 1, 1, 9)
	if err := r.verdict(); err == nil {
		t.Error("a loss of the bridge's is no error")
	}
}
