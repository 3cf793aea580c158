package estimate

import (
	"testing"
)

// The suggested partitions for high rates.
func TestEstimateSuggestions(t *testing.T) {
	for _, c := range []struct {
		rate, bytesPerSecond float64
		want                 int
	}{
		{0, 0, 1},
		{99, 0, 1},
		{350, 1 << 10, 4},
		{10, 1 << 20, 11},
	} {
		if got := partitionsFor(Resource{ChangesPerSecond: c.rate, BytesPerDay: c.bytesPerSecond * day.Seconds()}); got != c.want {
			t.Errorf("%v events, %v bytes a second: %d partitions, want %d", c.rate, c.bytesPerSecond, got, c.want)
		}
	}
	if v := ValuesFor(100*mebibyte, 0.02); v != (Values{"200m", "192Mi", "384Mi"}) {
		t.Errorf("100 MiB, 0.02 cores: %+v", v)
	}
	if v := ValuesFor(0, 0); v != (Values{"100m", "128Mi", "256Mi"}) {
		t.Errorf("nothing known: %+v", v)
	}
}
