package suppose

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/wardrop-lb/wardrop/fleet"
)

// diff is how two records differ, by input.
type diff struct {
	before, after *Record
	moved         []Input
	pinned        map[string]bool // engines that an override is about, in either
	old, now      map[string]*fleet.Engine
}

func difference(before, after *Record) *diff {
	d := &diff{before: before, after: after, pinned: map[string]bool{}, old: byName(before.View), now: byName(after.View)}
	for _, list := range []map[string]string{before.Overrides, after.Overrides} {
		for key := range list {
			changed := before.Overrides[key] != after.Overrides[key] || present(before.Overrides, key) != present(after.Overrides, key)
			if _, engine, ok := strings.Cut(key, "/"); ok && changed {
				d.pinned[engine] = true
			}
		}
	}
	for i, in := range inputs {
		if d.differs(in) {
			d.moved = append(d.moved, inputs[i])
		}
	}
	return d
}

func present(m map[string]string, key string) bool { _, ok := m[key]; return ok }

func byName(v *fleet.View) map[string]*fleet.Engine {
	out := make(map[string]*fleet.Engine, len(v.Engines))
	for i := range v.Engines {
		out[v.Engines[i].Name] = &v.Engines[i]
	}
	return out
}

func demands(v *fleet.View) map[fleet.Demand]float64 {
	out := make(map[fleet.Demand]float64, len(v.Demands))
	for _, d := range v.Demands {
		rate := d.Rate
		d.Rate = 0
		out[d] = rate
	}
	return out
}

func distances(v *fleet.View) map[fleet.Distance]float64 {
	out := make(map[fleet.Distance]float64, len(v.Distances))
	for _, d := range v.Distances {
		seconds := d.Seconds
		d.Seconds = 0
		out[d] = seconds
	}
	return out
}

// differs tells whether an input moved.
func (d *diff) differs(in Input) bool {
	switch in {
	case InputDemand:
		return !maps.Equal(demands(d.before.View), demands(d.after.View))
	case InputDistance:
		return !maps.Equal(distances(d.before.View), distances(d.after.View)) || d.engines(func(_ string, a, b *fleet.Engine) bool { return a.Offset != b.Offset })
	case InputProfile:
		return !slices.Equal(d.before.View.Models, d.after.View.Models) || d.engines(func(_ string, a, b *fleet.Engine) bool {
			return a.Profile != b.Profile || a.Weight != b.Weight || a.Busy != b.Busy
		})
	case InputCapacity:
		return d.engines(func(name string, a, b *fleet.Engine) bool { return a.Ramp != b.Ramp && !d.pinned[name] })
	case InputPenalty:
		return d.engines(func(_ string, a, b *fleet.Engine) bool { return a.Penalty != b.Penalty })
	case InputMembership:
		return d.membership(false)
	case InputOverride:
		return !maps.Equal(d.before.Overrides, d.after.Overrides)
	case InputPolicy:
		return d.before.Settings != d.after.Settings && d.before.Overrides["policy"] == d.after.Overrides["policy"]
	}
	return false
}

// engines tells whether some engine of both differs.
func (d *diff) engines(differs func(name string, a, b *fleet.Engine) bool) bool {
	for name, a := range d.old {
		if b := d.now[name]; b != nil && differs(name, a, b) {
			return true
		}
	}
	return false
}

// membership tells whether engines came, went or serve other models; pinned: those that an
// override is about.
func (d *diff) membership(pinned bool) bool {
	for name, a := range d.old {
		if b := d.now[name]; d.pinned[name] == pinned && (b == nil || !slices.Equal(a.Models, b.Models) || a.Region != b.Region) {
			return true
		}
	}
	for name := range d.now {
		if d.old[name] == nil && d.pinned[name] == pinned {
			return true
		}
	}
	return false
}

// mixed is the view, and the policy's settings, with those inputs of a set as they are after
// and the others as they were before.
func (d *diff) mixed(set uint) (*fleet.View, string) {
	is := map[Input]bool{}
	for i, in := range d.moved {
		is[in] = set&(1<<i) != 0
	}
	// An input that did not move is the same in both.
	pick := func(in Input) *Record {
		if is[in] {
			return d.after
		}
		return d.before
	}
	v := &fleet.View{
		Time: d.after.View.Time, Clusters: d.after.View.Clusters,
		Demands: pick(InputDemand).View.Demands, Models: pick(InputProfile).View.Models,
	}
	for _, name := range slices.Sorted(maps.Keys(d.union())) {
		if e := d.engine(name, is); e != nil {
			v.Engines = append(v.Engines, *e)
		}
	}
	v.Distances = d.distances(v, is[InputDistance])
	settings := pick(InputPolicy).Settings
	if d.before.Overrides["policy"] != d.after.Overrides["policy"] {
		settings = pick(InputOverride).Settings
	}
	if present(pick(InputOverride).Overrides, Frozen) {
		settings = Frozen
	}
	return v, settings
}

func (d *diff) union() map[string]bool {
	out := make(map[string]bool, len(d.now))
	for name := range d.old {
		out[name] = true
	}
	for name := range d.now {
		out[name] = true
	}
	return out
}

// engine is one as it is with those inputs; nil where it is not there.
func (d *diff) engine(name string, is map[Input]bool) *fleet.Engine {
	member := is[InputMembership]
	if d.pinned[name] {
		member = is[InputOverride]
	}
	a, b := d.old[name], d.now[name]
	base := a
	if member {
		base = b
	}
	if base == nil || a == nil || b == nil {
		return base
	}
	e := *base
	of := func(in Input) *fleet.Engine {
		if is[in] {
			return b
		}
		return a
	}
	p := of(InputProfile)
	e.Profile, e.Slowdown, e.Learn, e.Learned, e.Doubt, e.Weight, e.Busy = p.Profile, p.Slowdown, p.Learn, p.Learned, p.Doubt, p.Weight, p.Busy
	e.Penalty, e.Offset = of(InputPenalty).Penalty, of(InputDistance).Offset
	e.Ramp = of(InputCapacity).Ramp
	if d.pinned[name] {
		e.Ramp = of(InputOverride).Ramp
	}
	return &e
}

// distances are those of before or after; what only the other knows, for engines that only the
// other has, comes from there.
func (d *diff) distances(v *fleet.View, after bool) []fleet.Distance {
	one, other := d.before.View, d.after.View
	if after {
		one, other = other, one
	}
	have := distances(one)
	out := slices.Clone(one.Distances)
	for _, x := range other.Distances {
		k := x
		k.Seconds = 0
		if _, ok := have[k]; !ok {
			out = append(out, x)
		}
	}
	there := byName(v)
	return slices.DeleteFunc(out, func(x fleet.Distance) bool { return x.Engine != "" && there[x.Engine] == nil })
}

// words says what of an input changed, the largest first.
func (d *diff) words(in Input) []string {
	switch in {
	case InputDemand:
		return ranked(demands(d.before.View), demands(d.after.View), func(k fleet.Demand, a, b float64) string {
			return fmt.Sprintf("%s for %s of %s from %.4g to %.4g requests/s", k.Priority, k.Model, k.Cluster, a, b)
		})
	case InputDistance:
		return ranked(distances(d.before.View), distances(d.after.View), func(k fleet.Distance, a, b float64) string {
			to := k.Region
			if k.Engine != "" {
				to = k.Engine
			}
			return fmt.Sprintf("%s to %s from %s to %s", k.Cluster, to, duration(a), duration(b))
		})
	case InputOverride:
		return d.overrideWords()
	case InputPolicy:
		return []string{"its settings changed"}
	}
	return d.engineWords(in)
}

// ranked writes what differs between two maps, the largest change by factor first.
func ranked[K comparable](before, after map[K]float64, write func(k K, a, b float64) string) []string {
	type entry struct {
		text string
		size float64
	}
	var list []entry
	add := func(k K) {
		a, b := before[k], after[k]
		if a != b {
			list = append(list, entry{write(k, a, b), math.Abs(b-a) + math.Max(a, b)*1e-9})
		}
	}
	for k := range before {
		add(k)
	}
	for k := range after {
		if _, ok := before[k]; !ok {
			add(k)
		}
	}
	slices.SortFunc(list, func(x, y entry) int {
		if x.size != y.size {
			return map[bool]int{true: -1, false: 1}[x.size > y.size]
		}
		return strings.Compare(x.text, y.text)
	})
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = e.text
	}
	return out
}

func (d *diff) overrideWords() (out []string) {
	for _, key := range slices.Sorted(maps.Keys(d.after.Overrides)) {
		if !present(d.before.Overrides, key) || d.before.Overrides[key] != d.after.Overrides[key] {
			out = append(out, strings.TrimSpace(key+" "+d.after.Overrides[key])+" began")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(d.before.Overrides)) {
		if !present(d.after.Overrides, key) {
			out = append(out, key+" ended")
		}
	}
	return out
}

func (d *diff) engineWords(in Input) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(d.union())) {
		a, b := d.old[name], d.now[name]
		switch {
		case in == InputMembership && !d.pinned[name] && a == nil:
			out = append(out, name+" came")
		case in == InputMembership && !d.pinned[name] && b == nil:
			out = append(out, name+" went")
		case a == nil || b == nil:
		case in == InputMembership && !d.pinned[name] && !slices.Equal(a.Models, b.Models):
			out = append(out, name+" serves other models")
		case in == InputProfile && a.Slowdown != b.Slowdown:
			out = append(out, fmt.Sprintf("%s is %.3g times slower than its profile", name, max(1, b.Slowdown)))
		case in == InputProfile && a.Profile != b.Profile:
			out = append(out, fmt.Sprintf("%s alone takes %s, and %s before", name, duration(b.Profile.T0), duration(a.Profile.T0)))
		case in == InputProfile && (a.Weight != b.Weight || a.Busy != b.Busy):
			out = append(out, name+" is as busy as another weight says")
		case in == InputCapacity && a.Ramp != b.Ramp && !d.pinned[name]:
			out = append(out, fmt.Sprintf("%s may have %.0f %% of its capacity, %.0f %% before", name, ramp(b), ramp(a)))
		case in == InputPenalty && a.Penalty != b.Penalty:
			out = append(out, fmt.Sprintf("%s from %s to %s", name, duration(a.Penalty), duration(b.Penalty)))
		}
	}
	return out
}

func ramp(e *fleet.Engine) float64 {
	if e.Ramp == 0 {
		return 100
	}
	return 100 * e.Ramp
}
