package sink

import "fmt"

// Bytes is a number of bytes. In a configuration file it is a whole number, or a text with a unit: 10Gi.
type Bytes int64

// String returns the number in the largest binary unit of which it is a multiple.
func (b Bytes) String() string {
	units := []string{"", "Ki", "Mi", "Gi", "Ti"}
	for b != 0 && b%1024 == 0 && len(units) > 1 {
		b, units = b/1024, units[1:]
	}
	return fmt.Sprintf("%d%s", int64(b), units[0])
}
