package sim

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// Summary is a policy's runs over several seeds.
type Summary struct {
	Policy string    `json:"policy"`
	Runs   []*Result `json:"runs"` // by seed
}

// Estimate is the mean of a figure over seeds, and half the width of its 95 %
// confidence interval; 0 for one seed, which says nothing about that.
type Estimate struct{ Mean, Half float64 }

// quantiles of Student's t at 0.975, by degrees of freedom from 1.
var quantiles = []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
	2.120, 2.110, 2.101, 2.093, 2.086}

func estimate(x []float64) Estimate {
	n := float64(len(x))
	mean, square := 0.0, 0.0
	for _, v := range x {
		mean += v / n
	}
	for _, v := range x {
		square += (v - mean) * (v - mean)
	}
	if len(x) < 2 {
		return Estimate{Mean: mean}
	}
	t := 1.96
	if df := len(x) - 1; df <= len(quantiles) {
		t = quantiles[df-1]
	}
	return Estimate{mean, t * math.Sqrt(square/(n-1)/n)}
}

// Figure estimates a figure of the runs, by its name.
func (s *Summary) Figure(name string) Estimate {
	var x []float64
	for _, r := range s.Runs {
		v, _ := r.Field(name)
		x = append(x, v)
	}
	return estimate(x)
}

// Differs says whether two policies' figures differ for more than chance: the 95 %
// confidence interval of the differences, seed by seed, leaves 0 out.
func (s *Summary) Differs(other *Summary, name string) bool {
	var x []float64
	for i := range min(len(s.Runs), len(other.Runs)) {
		a, _ := s.Runs[i].Field(name)
		b, _ := other.Runs[i].Field(name)
		x = append(x, a-b)
	}
	e := estimate(x)
	return len(x) > 1 && math.Abs(e.Mean) > e.Half
}

// column is a column of the table.
type column struct {
	head, figure string
	write        func(float64) string
}

var columns = []column{
	{"MEAN", "mean", seconds}, {"P50", "p50", seconds}, {"P99", "p99", seconds}, {"P99.9", "p999", seconds},
	{"FIRST", "first_mean", seconds}, {"FIRST P99", "first_p99", seconds}, {"GOODPUT", "goodput", plain},
	{"HIT", "hit_rate", percent}, {"MOVED", "keys_moved", percent}, {"CHURN", "churn", percent}, {"SWING", "oscillation", percent},
	{"OVERLOAD", "overload", percent}, {"SHED", "shed", percent}, {"FAILED", "failed", percent}, {"ATTEMPTS", "amplification", plain},
}

// WriteTable prints the policies side by side, and what their differences are worth.
func WriteTable(out io.Writer, all []*Summary) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	head := []string{"POLICY"}
	for _, c := range columns {
		head = append(head, c.head)
	}
	fmt.Fprintln(t, strings.Join(head, "\t"))
	for _, s := range all {
		line := []string{s.Policy}
		for _, c := range columns {
			e := s.Figure(c.figure)
			text := c.write(e.Mean)
			if e.Half > 0 && (c.figure == "mean" || c.figure == "p99") {
				text += " ±" + c.write(e.Half)
			}
			line = append(line, text)
		}
		fmt.Fprintln(t, strings.Join(line, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(all) > 1 && len(all[0].Runs) > 1 {
		for _, s := range all[1:] {
			if !s.Differs(all[0], "mean") {
				fmt.Fprintf(out, "%s: its mean latency does not differ from %s's for more than chance (95 %%)\n", s.Policy, all[0].Policy)
			}
		}
	}
	return nil
}

// seconds writes a time at a length that people read.
func seconds(s float64) string {
	switch {
	case s == 0:
		return "0"
	case s < 1:
		return fmt.Sprintf("%.3gms", s*1e3)
	}
	return fmt.Sprintf("%.3gs", s)
}

func plain(x float64) string { return fmt.Sprintf("%.3g", x) }

func percent(x float64) string {
	if x == 0 {
		return "0"
	}
	return fmt.Sprintf("%.3g%%", 100*x)
}
