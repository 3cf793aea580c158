package feed

import (
	"math/rand/v2"

	"github.com/kubebridge/kubebridge/bench/internal/mark"
)

// run is a run of at least four hexadecimal digits of which at least one is decimal. In such runs, objects of a cluster differ.
type run struct {
	at, end int
	group   uint64 // equal runs have the same group, and stay equal
}

// findRuns finds the runs of a template, except for what the feed replaces anyway.
func (t *template) findRuns() {
	fixed := [][2]int{{t.mark, len(mark.Blank)}, {t.name, len(blankName)}, {t.namespace, len(blankNamespace)}, {t.uid, len(blankUID)}, {t.rv, len(blankRV)}}
	groups := map[string]uint64{}
	for i := 0; i < len(t.object); {
		end, decimal := i, false
		for end < len(t.object) && isHex(t.object[end]) {
			decimal = decimal || t.object[end] <= '9'
			end++
		}
		overlaps := i < t.gvk
		for _, f := range fixed {
			overlaps = overlaps || i < f[0]+f[1] && end > f[0]
		}
		if isYear(t.object, i, end) { // a time must stay one
			overlaps = true
		}
		if end-i >= 4 && decimal && !overlaps {
			text := string(t.object[i:end])
			if _, ok := groups[text]; !ok {
				groups[text] = uint64(len(groups))
			}
			t.runs = append(t.runs, run{i, end, groups[text]})
		}
		i = max(end, i+1)
	}
}

func isYear(b []byte, at, end int) bool {
	return end-at == 4 && end+3 < len(b) && b[end] == '-' && b[end+3] == '-' && b[at-1] == '"'
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }

// distinguish replaces the runs in an object, whose template begins at b[base], by digits of its own. Letters stay letters. A representation
// may have only the first runs.
func (t *template) distinguish(b []byte, base int, object uint64) {
	for _, one := range t.runs {
		if base+one.end > len(b) {
			break
		}
		r := rand.NewPCG(object, one.group)
		var bits uint64
		for n, i := 0, base+one.at; i < base+one.end; n, i = n+1, i+1 {
			if n%12 == 0 {
				bits = r.Uint64()
			}
			if b[i] >= 'a' {
				b[i] = 'a' + byte(bits%6)
			} else {
				b[i] = '1' + byte(bits%9)
			}
			bits >>= 5
		}
	}
}
