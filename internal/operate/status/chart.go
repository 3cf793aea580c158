package status

import (
	"fmt"
	"html/template"
	"strings"
)

const (
	chartWidth  = samples // one unit for each sample
	chartHeight = 60
)

// chart is a line chart of the last hour, as SVG, with its present and highest value as text.
type chart struct {
	Title string
	Now   string
	Peak  string
	SVG   template.HTML
}

// newChart draws the chart of one value of the points. format formats numbers.
func newChart(title string, now *float64, points []point, value func(point) *float64, format func(*float64) string) chart {
	var peak *float64
	for _, p := range points {
		if v := value(p); v != nil && (peak == nil || *v > *peak) {
			peak = v
		}
	}
	c := chart{Title: title, Now: format(now), Peak: format(peak)}
	top := 1e-9
	if peak != nil {
		top = max(*peak, top)
	}
	label := fmt.Sprintf("%s over the last hour: now %s, peak %s", title, c.Now, c.Peak)
	var line, area strings.Builder
	run := 0 // number of consecutive points with a value
	from := chartWidth - len(points)
	endRun := func(x int) {
		switch {
		case run == 1: // draw a single point as a dash, because a point has no length
			fmt.Fprintf(&line, "h1")
			fmt.Fprintf(&area, "h1V%dZ", chartHeight)
		case run > 1:
			fmt.Fprintf(&area, "L%d,%dZ", x, chartHeight)
		}
		run = 0
	}
	for i, p := range points {
		x, v := from+i, value(p)
		if v == nil {
			endRun(x - 1)
			continue
		}
		y := chartHeight - 2 - *v/top*(chartHeight-6)
		if run == 0 {
			fmt.Fprintf(&line, "M%d,%.1f", x, y)
			fmt.Fprintf(&area, "M%d,%dL%d,%.1f", x, chartHeight, x, y)
		} else {
			fmt.Fprintf(&line, "L%d,%.1f", x, y)
			fmt.Fprintf(&area, "L%d,%.1f", x, y)
		}
		run++
	}
	endRun(chartWidth - 1)
	//nolint:gosec // the text consists of numbers and a label that is escaped
	c.SVG = template.HTML(fmt.Sprintf(`<svg class="chart" role="img" aria-label="%s" viewBox="0 0 %d %d" preserveAspectRatio="none">`,
		template.HTMLEscapeString(label), chartWidth, chartHeight) +
		fmt.Sprintf(`<path class="grid" d="M0,%dH%dM0,%dH%d"/><path class="area" d="%s"/><path class="line" d="%s"/></svg>`,
			chartHeight-2, chartWidth, chartHeight/2, chartWidth, &area, &line))
	return c
}
