package history

import (
	"fmt"
	"strings"

	"github.com/kubebridge/kubebridge/internal/base/rising"
)

const (
	// contextLines is how many unchanged lines are shown around a change.
	contextLines = 3
	// maxTable bounds the size, in pairs of lines, of texts whose lines are all compared with each other.
	maxTable = 1 << 16
	// maxRounds bounds how deep the search for unique lines between unique lines goes.
	maxRounds = 8
)

// replacement says that the lines of text a from a up to aEnd are replaced by the lines of text b from b up to bEnd.
type replacement struct{ a, aEnd, b, bEnd int }

// differ compares two texts line by line in linear time. It aligns them at lines that occur once in
// each text, and compares all lines with each other only in small parts. Equal lines that both miss count as changed.
type differ struct {
	a, b  []int // the lines, as numbers
	found []replacement
	steps int
}

func compareLines(a, b []string) *differ {
	numbers := map[string]int{}
	of := func(lines []string) []int {
		out := make([]int, len(lines))
		for i, line := range lines {
			n, ok := numbers[line]
			if !ok {
				n = len(numbers)
				numbers[line] = n
			}
			out[i] = n
		}
		return out
	}
	d := &differ{a: of(a), b: of(b)}
	d.compare(replacement{0, len(a), 0, len(b)}, 0)
	return d
}

func (d *differ) compare(p replacement, round int) {
	for p.a < p.aEnd && p.b < p.bEnd && d.a[p.a] == d.b[p.b] {
		p.a, p.b = p.a+1, p.b+1
	}
	for p.a < p.aEnd && p.b < p.bEnd && d.a[p.aEnd-1] == d.b[p.bEnd-1] {
		p.aEnd, p.bEnd = p.aEnd-1, p.bEnd-1
	}
	n, m := p.aEnd-p.a, p.bEnd-p.b
	d.steps += n + m
	switch {
	case n == 0 && m == 0:
	case n == 0 || m == 0:
		d.add(p)
	case n*m <= maxTable:
		d.table(p)
	default:
		d.anchored(p, round)
	}
}

// add appends a difference, and merges it with the previous one if they are adjacent.
func (d *differ) add(p replacement) {
	if n := len(d.found); n > 0 && d.found[n-1].aEnd == p.a && d.found[n-1].bEnd == p.b {
		d.found[n-1].aEnd, d.found[n-1].bEnd = p.aEnd, p.bEnd
		return
	}
	d.found = append(d.found, p)
}

// anchored divides a part at the lines that occur once in both texts, in the same order.
func (d *differ) anchored(p replacement, round int) {
	type line struct{ countA, countB, indexA, indexB int }
	lines := map[int]line{}
	for i := p.a; i < p.aEnd; i++ {
		l := lines[d.a[i]]
		l.countA, l.indexA = l.countA+1, i
		lines[d.a[i]] = l
	}
	for i := p.b; i < p.bEnd; i++ {
		l := lines[d.b[i]]
		l.countB, l.indexB = l.countB+1, i
		lines[d.b[i]] = l
	}
	var anchors []line
	for i := p.a; i < p.aEnd; i++ {
		if l := lines[d.a[i]]; l.countA == 1 && l.countB == 1 {
			anchors = append(anchors, l)
		}
	}
	if len(anchors) == 0 || round == maxRounds {
		d.add(p)
		return
	}
	// Keep the largest set of anchors that have the same order in both texts.
	places := make([]int, len(anchors))
	for i, l := range anchors {
		places[i] = l.indexB
	}
	for i, stays := range rising.Longest(places) {
		if l := anchors[i]; stays {
			d.compare(replacement{p.a, l.indexA, p.b, l.indexB}, round+1)
			p.a, p.b = l.indexA+1, l.indexB+1
		}
	}
	d.compare(p, round+1)
}

// table finds a longest common subsequence by comparing each line with each.
func (d *differ) table(p replacement) {
	a, b := d.a[p.a:p.aEnd], d.b[p.b:p.bEnd]
	width := len(b) + 1
	longest := make([]int32, (len(a)+1)*width) // at i*width+j: the length for a[i:] and b[j:]
	d.steps += len(longest)
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				longest[i*width+j] = longest[(i+1)*width+j+1] + 1
			} else {
				longest[i*width+j] = max(longest[(i+1)*width+j], longest[i*width+j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch at := (replacement{p.a + i, p.a + i, p.b + j, p.b + j}); {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && longest[(i+1)*width+j] >= longest[i*width+j+1]:
			at.aEnd++
			d.add(at)
			i++
		default:
			at.bEnd++
			d.add(at)
			j++
		}
	}
}

func (d *differ) unified(a, b []string) string {
	var out strings.Builder
	for first := 0; first < len(d.found); {
		last := first // the last difference of the hunk
		for last+1 < len(d.found) && d.found[last+1].a-d.found[last].aEnd <= 2*contextLines {
			last++
		}
		before := min(contextLines, d.found[first].a)
		after := min(contextLines, len(a)-d.found[last].aEnd)
		p := replacement{d.found[first].a - before, d.found[last].aEnd + after, d.found[first].b - before, d.found[last].bEnd + after}
		fmt.Fprintf(&out, "@@ -%s +%s @@\n", lineRange(p.a, p.aEnd), lineRange(p.b, p.bEnd))
		write := func(mark byte, lines []string) {
			for _, line := range lines {
				out.WriteByte(mark)
				out.WriteString(line)
			}
		}
		at := p.a
		for _, x := range d.found[first : last+1] {
			write(' ', a[at:x.a])
			write('-', a[x.a:x.aEnd])
			write('+', b[x.b:x.bEnd])
			at = x.aEnd
		}
		write(' ', a[at:p.aEnd])
		first = last + 1
	}
	return out.String()
}

func lineRange(begin, end int) string {
	switch end - begin {
	case 0:
		return fmt.Sprintf("%d,0", begin)
	case 1:
		return fmt.Sprint(begin + 1)
	}
	return fmt.Sprintf("%d,%d", begin+1, end-begin)
}
