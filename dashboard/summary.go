package dashboard

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/wardrop-lb/wardrop/control"
	"github.com/wardrop-lb/wardrop/fleet"
)

// summary is what a plan comes to once ten thousand engines are summed up. It is made once
// a tick, in one pass over the plan, and immutable.
type summary struct {
	state   *control.State
	regions []string // sorted
	region  []int32  // of each engine of the plan, into regions
	models  [][]string
	rows    []rowSummary // as the plan's
	whole   []rowSummary // of all clusters together, by model; their cluster is empty
}

type rowSummary struct {
	key     [2]string // cluster and model
	rate    float64   // requests/s that arrive
	shed    float64   // of these, refused
	used    []share   // of the engines with weight, by name
	regions []part    // by region
}

// share is a weight by its name.
type share struct {
	name   string
	weight float64
}

// part is what of a row goes to a region.
type part struct {
	region  int32
	weight  float64
	price   float64 // seconds, the mean of its requests
	seconds float64 // that these are expected to take, network included
}

func summarise(s *control.State) *summary {
	out := &summary{state: s, region: make([]int32, len(s.Plan.Engines)), models: make([][]string, len(s.Plan.Engines))}
	out.place()
	sums := make([]part, len(out.regions))
	out.rows = make([]rowSummary, len(s.Plan.Rows))
	used := make([]share, 0, weighty(s.Plan)) // of all rows
	for i := range s.Plan.Rows {
		from := len(used)
		out.rows[i], used = out.row(&s.Plan.Rows[i], sums, used)
		out.rows[i].used = used[from:len(used):len(used)]
	}
	out.whole = out.byModel(sums)
	return out
}

// byModel sums the rows of each model up: what all clusters together send where.
func (s *summary) byModel(sums []part) []rowSummary {
	rows := map[string][]int{}
	for i := range s.state.Plan.Rows {
		m := s.state.Plan.Rows[i].Model
		rows[m] = append(rows[m], i)
	}
	var out []rowSummary
	flow := make([]float64, len(s.state.Plan.Engines)) // requests/s, zero before and after each model
	for _, model := range slices.Sorted(maps.Keys(rows)) {
		sum := fleet.Row{Model: model}
		admitted := 0.0
		for _, i := range rows[model] {
			r := &s.state.Plan.Rows[i]
			sum.Rate, admitted, sum.Work = sum.Rate+r.Rate, admitted+r.Admitted(), r.Work
			for j := range r.Arcs {
				flow[r.Arcs[j].Engine] += r.Arcs[j].Weight * r.Admitted()
			}
		}
		if admitted <= 0 {
			continue
		}
		for e, f := range flow {
			if f > 0 {
				sum.Arcs = append(sum.Arcs, fleet.Arc{Engine: int32(e), Weight: f / admitted})
				flow[e] = 0
			}
		}
		row, used := s.row(&sum, sums, nil)
		row.used, row.shed = used, max(0, sum.Rate-admitted)
		out = append(out, row)
	}
	return out
}

// weighty counts the arcs in use.
func weighty(p *fleet.Plan) (n int) {
	for i := range p.Rows {
		for j := range p.Rows[i].Arcs {
			if p.Rows[i].Arcs[j].Weight > 0 {
				n++
			}
		}
	}
	return n
}

// place finds where the plan's engines are, which the view knows.
func (s *summary) place() {
	where := make(map[string]*fleet.Engine, len(s.state.View.Engines))
	number := map[string]int32{}
	for i := range s.state.View.Engines {
		e := &s.state.View.Engines[i]
		where[e.Name] = e
		if _, ok := number[e.Region]; !ok {
			number[e.Region] = 0
			s.regions = append(s.regions, e.Region)
		}
	}
	slices.Sort(s.regions)
	for i, r := range s.regions {
		number[r] = int32(i)
	}
	for i := range s.state.Plan.Engines {
		s.region[i] = -1
		if e := where[s.state.Plan.Engines[i].Name]; e != nil {
			s.region[i], s.models[i] = number[e.Region], e.Models
		}
	}
}

// row sums a row up, and adds its engines to used; sums is room for each region, zero before and
// after.
func (s *summary) row(r *fleet.Row, sums []part, used []share) (rowSummary, []share) {
	work := fleet.Model{Work: r.Work}.Load()
	out := rowSummary{key: [2]string{r.Cluster, r.Model}, rate: r.Rate, shed: max(0, r.Rate-r.Admitted())}
	for i := range r.Arcs {
		a := &r.Arcs[i]
		if a.Weight <= 0 {
			continue
		}
		e := &s.state.Plan.Engines[a.Engine]
		used = append(used, share{e.Name, a.Weight})
		if n := s.region[a.Engine]; n >= 0 {
			p := &sums[n]
			p.weight += a.Weight
			p.price += a.Weight * work * e.Price()
			p.seconds += a.Weight * (a.Network + work*e.Seconds)
		}
	}
	for n := range sums {
		if p := sums[n]; p.weight > 0 {
			out.regions = append(out.regions, part{int32(n), p.weight, p.price / p.weight, p.seconds / p.weight})
			sums[n] = part{}
		}
	}
	return out, used
}

// moved is which part of a row's requests goes to another engine than before, 0 to 1.
func moved(before, after []share) float64 {
	sum := 0.0
	for len(before) > 0 && len(after) > 0 {
		switch c := strings.Compare(before[0].name, after[0].name); {
		case c < 0:
			sum += before[0].weight
			before = before[1:]
		case c > 0:
			sum += after[0].weight
			after = after[1:]
		default:
			sum += math.Abs(before[0].weight - after[0].weight)
			before, after = before[1:], after[1:]
		}
	}
	for _, rest := range [][]share{before, after} { // one of them is empty
		for _, x := range rest {
			sum += x.weight
		}
	}
	return sum / 2
}

// heaviest gives the engines with the most weight, the heaviest first.
func heaviest(used []share, n int) []share {
	out := make([]share, 0, min(n, len(used))+1)
	for _, x := range used {
		if len(out) == n && x.weight <= out[n-1].weight {
			continue
		}
		at, _ := slices.BinarySearchFunc(out, x, func(a, b share) int {
			if a.weight >= b.weight { // of two alike the first by name stands first
				return -1
			}
			return 1
		})
		out = slices.Insert(out, at, x)
		out = out[:min(n, len(out))]
	}
	return out
}

// number is written with four significant digits, which is more than a page shows.
type number float64

// MarshalJSON implements json.Marshaler. What is no finite number is null.
func (n number) MarshalJSON() ([]byte, error) { return n.append(nil), nil }

func (n number) append(b []byte) []byte {
	x := float64(n)
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return append(b, "null"...)
	}
	return appendFloat(b, x)
}
