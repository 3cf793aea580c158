package main

import (
	"math"
	"testing"
)

// The audit records of all sinks have a quarter of GOMEMLIMIT, so that a bridge with the chart's limits is not killed for its memory.
func TestAuditMemory(t *testing.T) {
	const chart = 512 << 20 / 10 * 9
	for _, c := range []struct {
		limit int64
		sinks int
		want  int
	}{
		{chart, 1, chart / 4},
		{chart, 3, chart / 4 / 3},
		{math.MaxInt64, 1, defaultAuditBytes},
		{math.MaxInt64, 4, defaultAuditBytes / 4},
	} {
		if got := auditBytes(c.limit, c.sinks); got != c.want {
			t.Errorf("with the limit %d, each of %d sinks has %d bytes, want %d", c.limit, c.sinks, got, c.want)
		}
	}
}
