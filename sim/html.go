package sim

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

//go:embed report.html
var reportText string

var report = template.Must(template.New("report").Parse(reportText))

// WriteHTML writes a report that stands alone: figures, each engine's load over time
// under each policy, what moved, and how latencies are distributed. Pictures are of the first
// seed. bound is that of the mean in seconds, 0 where there is none.
func WriteHTML(out io.Writer, s *Scenario, all []*Summary, bound float64) error {
	type row struct {
		Policy string
		Cells  []string
	}
	data := struct {
		About   string
		Length  string
		Seeds   int
		Heads   []string
		Rows    []row
		Bound   string
		Tails   template.HTML
		Moves   template.HTML
		Loads   []picture
		Notes   []Note
		Partial bool
	}{About: s.About, Length: time.Duration(s.Duration).String(), Seeds: len(all[0].Runs)}
	for _, c := range columns {
		data.Heads = append(data.Heads, strings.ToLower(c.head))
	}
	top := 0.0
	for _, x := range all {
		r := row{Policy: x.Policy}
		for _, c := range columns {
			e := x.Figure(c.figure)
			text := c.write(e.Mean)
			if e.Half > 0 {
				text += " ±" + c.write(e.Half)
			}
			r.Cells = append(r.Cells, text)
		}
		data.Rows = append(data.Rows, r)
		data.Partial = data.Partial || x.Runs[0].Partial
		for _, l := range x.Runs[0].Loads {
			for _, v := range l.Values {
				top = max(top, float64(v))
			}
		}
	}
	data.Notes = all[0].Runs[0].Notes
	data.Tails, data.Moves = tails(all), moves(s, all)
	if bound > 0 {
		data.Bound = seconds(bound)
	}
	for _, x := range all {
		data.Loads = append(data.Loads, loadPicture(s, x.Runs[0], top))
	}
	return report.Execute(out, data)
}

type picture struct {
	Policy string
	SVG    template.HTML
}

// colours tell lines apart, in light and in dark; Okabe and Ito's.
var colours = []string{"#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#999999", "#b0a000"}

const (
	wide, high       = 720.0, 200.0
	left, below      = 46.0, 22.0
	widest, resolved = 240, 40 // points of a line; engines that get one
)

// loadPicture draws the requests in each engine over time; all pictures have one
// scale.
func loadPicture(s *Scenario, r *Result, top float64) picture {
	var b strings.Builder
	length := time.Duration(s.Duration).Seconds()
	x := func(t float64) float64 { return left + (wide-left)*t/length }
	y := func(v float64) float64 { return (high - below) * (1 - v/max(top, 1)) }
	frame(&b, top, length)
	for _, n := range r.Notes {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="0" x2="%.1f" y2="%.1f" class="note"><title>%s</title></line>`,
			x(n.At), x(n.At), high-below, template.HTMLEscapeString(n.Text))
	}
	start := time.Duration(s.Warmup).Seconds()
	for i, l := range r.Loads[:min(len(r.Loads), resolved)] {
		var path strings.Builder
		step := max(1, len(l.Values)/widest)
		for k := 0; k < len(l.Values); k += step {
			part := l.Values[k:min(k+step, len(l.Values))]
			sum := float32(0)
			for _, v := range part {
				sum += v
			}
			fmt.Fprintf(&path, "%.1f,%.1f ", x(start+float64(k)*l.Step), y(float64(sum)/float64(len(part))))
		}
		fmt.Fprintf(&b, `<polyline points="%s" stroke="%s"><title>%s</title></polyline>`,
			path.String(), colours[i%len(colours)], template.HTMLEscapeString(l.Engine))
	}
	return picture{r.Policy, svg(b.String())}
}

// moves draws the part of the traffic whose weights moved at each tick; nothing where none
// ever did.
func moves(s *Scenario, all []*Summary) template.HTML {
	top := 0.0
	for _, x := range all {
		for _, m := range x.Runs[0].Moves {
			top = max(top, m.Part)
		}
	}
	if top < 1e-6 {
		return ""
	}
	length := time.Duration(s.Duration).Seconds()
	var b strings.Builder
	frame(&b, 100*top, length)
	drawn := 0
	for i, x := range all {
		var path strings.Builder
		step := max(1, len(x.Runs[0].Moves)/widest)
		for k := 0; k < len(x.Runs[0].Moves); k += step {
			part := slices.MaxFunc(x.Runs[0].Moves[k:min(k+step, len(x.Runs[0].Moves))], func(a, b Move) int { return cmp.Compare(a.Part, b.Part) })
			fmt.Fprintf(&path, "%.1f,%.1f ", left+(wide-left)*part.At/length, (high-below)*(1-part.Part/top))
		}
		if path.Len() == 0 {
			continue
		}
		fmt.Fprintf(&b, `<polyline points="%s" stroke="%s"><title>%s</title></polyline>`, path.String(), colours[i%len(colours)], x.Policy)
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" fill="%s" class="key">%s</text>`, wide-130, 14+14*float64(drawn), colours[i%len(colours)], x.Policy)
		drawn++
	}
	return svg(b.String())
}

func svg(inside string) template.HTML {
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 %.0f %.0f" role="img">%s</svg>`, wide, high, inside)) //nolint:gosec // of our own making, names are escaped
}

func frame(b *strings.Builder, top, length float64) {
	fmt.Fprintf(b, `<line x1="%.0f" y1="%.0f" x2="%.0f" y2="%.0f" class="axis"/><line x1="%.0f" y1="0" x2="%.0f" y2="%.0f" class="axis"/>`,
		left, high-below, wide, high-below, left, left, high-below)
	for i := range 5 {
		v := top * float64(i) / 4
		fmt.Fprintf(b, `<text x="%.0f" y="%.1f" class="y">%.3g</text>`, left-4, (high-below)*(1-float64(i)/4)+4, v)
		t := length * float64(i) / 4
		fmt.Fprintf(b, `<text x="%.1f" y="%.0f" class="x">%s</text>`, left+(wide-left)*float64(i)/4, high-6, time.Duration(t*1e9).Round(time.Second))
	}
}

// tails draws the part of answers that took longer than a time, both on logarithmic
// scales: where policies differ most is where there is least to see otherwise.
func tails(all []*Summary) template.HTML {
	low, top := math.Inf(1), 0.0
	sorted := make([][]float32, len(all))
	for i, s := range all {
		sorted[i] = slices.Sorted(slices.Values(s.Runs[0].E2E))
		if n := len(sorted[i]); n > 0 {
			low, top = min(low, float64(sorted[i][n/100])), max(top, float64(sorted[i][n-1]))
		}
	}
	if !(top > low) || low <= 0 {
		return ""
	}
	const decades = 4.0
	x := func(t float64) float64 { return left + (wide-left)*math.Log(t/low)/math.Log(top/low) }
	y := func(part float64) float64 { return (high - below) * min(1, -math.Log10(part)/decades) }
	var b strings.Builder
	fmt.Fprintf(&b, `<line x1="%.0f" y1="%.0f" x2="%.0f" y2="%.0f" class="axis"/>`, left, high-below, wide, high-below)
	for i := range int(decades) + 1 {
		fmt.Fprintf(&b, `<text x="%.0f" y="%.1f" class="y">%s</text>`, left-4, y(math.Pow(10, -float64(i)))+4, percent(math.Pow(10, -float64(i))))
	}
	for i := range 5 {
		t := low * math.Pow(top/low, float64(i)/4)
		fmt.Fprintf(&b, `<text x="%.1f" y="%.0f" class="x">%s</text>`, x(t), high-6, seconds(t))
	}
	for i, times := range sorted {
		var path strings.Builder
		n := len(times)
		for k := range widest {
			part := math.Pow(10, -decades*float64(k)/widest)
			if at := int(float64(n) * (1 - part)); at < n && part*float64(n) >= 1 {
				fmt.Fprintf(&path, "%.1f,%.1f ", max(left, x(float64(times[at]))), y(part))
			}
		}
		fmt.Fprintf(&b, `<polyline points="%s" stroke="%s"><title>%s</title></polyline>`, path.String(), colours[i%len(colours)], all[i].Policy)
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" fill="%s" class="key">%s</text>`, wide-130, 14+14*float64(i), colours[i%len(colours)], all[i].Policy)
	}
	return svg(b.String())
}
