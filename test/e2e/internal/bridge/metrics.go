package bridge

import (
	"bytes"
	"strconv"
	"strings"
)

// Sum returns the sum of a metric over its labels. metrics is the body of /metrics, of the bridge or of an API server.
func Sum(metrics []byte, name string) (total float64, found bool) {
	for line := range bytes.Lines(metrics) {
		rest, ok := strings.CutPrefix(string(line), name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		if value, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' '):]), 64); err == nil {
			total, found = total+value, true
		}
	}
	return total, found
}
