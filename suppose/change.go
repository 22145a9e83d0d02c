package suppose

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/wardrop-lb/wardrop/fleet"
)

// Record is a plan in force and what it was made of.
type Record struct {
	Epoch   uint64
	Version uint64
	// Revision counts how often the record of the plan was made anew.
	Revision int `json:",omitempty"`
	Time     time.Time
	View     *fleet.View
	Plan     *fleet.Plan
	// Settings are the policy's, Overrides what operators had pinned, by key and value. They
	// are compared as they stand.
	Settings  string
	Overrides map[string]string
	// Hold is why another plan than the policy's was in force; empty when it was the policy's.
	Hold string
	// Held is what was held back while the plan was in force, the oldest first; that it is not
	// the policy's is among it.
	Held []Held `json:",omitempty"`
}

// Input is something that plans are made of.
type Input string

// The inputs, and what is no input but has its part in a change.
const (
	InputDemand     Input = "demand"
	InputDistance   Input = "distance"
	InputProfile    Input = "profile"  // how fast engines are, learned or found slow included
	InputCapacity   Input = "capacity" // what part of it cold engines may have
	InputPenalty    Input = "penalty"
	InputMembership Input = "membership" // engines that came, died, or serve other models
	InputOverride   Input = "override"
	InputPolicy     Input = "policy"
	// Guard is what the guard rails held back, or let through of what they had held.
	Guard Input = "guard rails"
	// Path is what depends on plans between that are not recorded: where moving costs, the way
	// there counts.
	Path Input = "the way there"
)

// inputs are those that views and settings differ by, in the order of their bits.
var inputs = []Input{InputDemand, InputDistance, InputProfile, InputCapacity, InputPenalty, InputMembership, InputOverride, InputPolicy}

// Part is what an input contributed to the change of a weight.
type Part struct {
	Input  Input   `json:"input"`
	Weight float64 `json:"weight"`
}

// WeightChange is a weight that changed, and what by: the parts add up to After - Before.
type WeightChange struct {
	Cluster string  `json:"cluster"`
	Model   string  `json:"model"`
	Engine  string  `json:"engine"`
	Before  float64 `json:"before"`
	After   float64 `json:"after"`
	Parts   []Part  `json:"parts"` // the largest first
}

// Change explains how one plan became another.
type Change struct {
	From [2]uint64 `json:"from"` // epoch and version
	To   [2]uint64 `json:"to"`
	// Steps is how many plans lie between, the last included.
	Steps int `json:"steps"`
	// Inputs are those that moved, each with its part of all that moved, the largest first.
	Inputs  []InputShare   `json:"inputs"`
	Weights []WeightChange `json:"weights"` // the largest changes first
	// Holds is what guard rails held back meanwhile, and do since.
	Holds []Held `json:"holds,omitempty"`
	// Sampled tells that so many inputs moved in some step that their orders were sampled.
	Sampled bool     `json:"sampled,omitempty"`
	Words   []string `json:"words"`
}

// InputShare is what an input has moved: the sum over all weights of what it contributed, as a
// part of the sum over all inputs.
type InputShare struct {
	Input Input    `json:"input"`
	Share float64  `json:"share"` // 0 to 1
	What  []string `json:"what"`  // what of it changed, in words; the most important
}

// Frozen is the override, and in place of the policy's settings what is asked for, when all
// weights stay as they were but on engines that die.
const Frozen = "freeze"

// SettingsSolver is a Solver with given settings of the policy, or Frozen.
type SettingsSolver func(settings string, view *fleet.View, last *fleet.Plan) (*fleet.Plan, error)

// exactInputs is up to how many inputs that moved at once all their subsets are solved;
// sampledOrders is how many orders of more are.
const (
	exactInputs   = 5
	sampledOrders = 6
)

// Explain attributes the change from the first record to the last, step by step, to the inputs
// that moved in each: by the Shapley value, which depends on no order and adds up to the whole
// (L. S. Shapley, A value for n-person games, 1953). records follow each other without gaps; of
// one alone it is told what was held back while it was in force.
func Explain(records []*Record, solve SettingsSolver) (*Change, error) {
	if len(records) == 0 {
		return nil, errors.New("a plan is needed to tell what changed")
	}
	first, last := records[0], records[len(records)-1]
	c := &Change{From: [2]uint64{first.Epoch, first.Version}, To: [2]uint64{last.Epoch, last.Version}, Steps: len(records) - 1}
	sums := map[[3]string]map[Input]float64{}
	moved := map[Input]bool{}
	c.addHolds(first)
	for i := 1; i < len(records); i++ {
		c.addHolds(records[i])
		if err := c.step(records[i-1], records[i], sums, moved, solve); err != nil {
			return nil, fmt.Errorf("plan %d.%d: %w", records[i].Epoch, records[i].Version, err)
		}
	}
	c.gather(difference(first, last), sums, moved)
	c.words()
	return c, nil
}

// addHolds lists what was held back while a plan was in force. What goes on over several plans
// is one.
func (c *Change) addHolds(r *Record) {
	for _, h := range r.Held {
		if n := len(c.Holds) - 1; n >= 0 && c.Holds[n].Rail == h.Rail && c.Holds[n].Since.Equal(h.Since) {
			c.Holds[n].Until = h.Until
			continue
		}
		c.Holds = append(c.Holds, h)
	}
}

// step adds what the inputs contributed from one plan to the next.
func (c *Change) step(before, after *Record, sums map[[3]string]map[Input]float64, moved map[Input]bool, solve SettingsSolver) error {
	d := difference(before, after)
	for _, in := range d.moved {
		moved[in] = true
	}
	worth := map[uint]map[[3]string]float64{}
	value := func(set uint) (map[[3]string]float64, error) {
		if v, ok := worth[set]; ok {
			return v, nil
		}
		if set == 0 && before.Hold == "" { // nothing moved: nothing moves
			worth[set] = arcs(before.Plan)
			return worth[set], nil
		}
		view, settings := d.mixed(set)
		plan, err := solve(settings, view, before.Plan)
		if err != nil {
			return nil, err
		}
		worth[set] = arcs(plan)
		return worth[set], nil
	}
	add := func(in Input, from, to map[[3]string]float64, factor float64) {
		for k := range from {
			if x := to[k] - from[k]; x != 0 {
				addTo(sums, k, in, x*factor)
			}
		}
		for k := range to {
			if _, ok := from[k]; !ok {
				addTo(sums, k, in, to[k]*factor)
			}
		}
	}
	none, err := value(0) // beside the plan itself only where that was not the policy's
	if err != nil {
		return err
	}
	add(Guard, arcs(before.Plan), none, 1)
	full, err := d.shapley(value, add, &c.Sampled)
	if err != nil {
		return err
	}
	rest := Path
	if before.Hold != "" || after.Hold != "" {
		rest = Guard
	}
	add(rest, full, arcs(after.Plan), 1) // what went out beside what the policy wants
	return nil
}

func addTo(sums map[[3]string]map[Input]float64, k [3]string, in Input, x float64) {
	if sums[k] == nil {
		sums[k] = map[Input]float64{}
	}
	sums[k][in] += x
}

// shapley calls add with the marginal contributions of the inputs that moved, weighted, and
// gives the value of all of them.
func (d *diff) shapley(value func(uint) (map[[3]string]float64, error), add func(Input, map[[3]string]float64, map[[3]string]float64, float64), sampled *bool) (map[[3]string]float64, error) {
	n := len(d.moved)
	all := uint(1)<<n - 1
	contribute := func(set uint, i int, factor float64) error {
		from, err := value(set)
		if err != nil {
			return err
		}
		to, err := value(set | 1<<i)
		if err != nil {
			return err
		}
		add(d.moved[i], from, to, factor)
		return nil
	}
	if n <= exactInputs {
		for set := range all + 1 {
			for i := range n {
				if set&(1<<i) != 0 {
					continue
				}
				if err := contribute(set, i, 1/(float64(n)*binomial(n-1, bits.OnesCount(set)))); err != nil {
					return nil, err
				}
			}
		}
		return value(all)
	}
	*sampled = true
	random := rand.New(rand.NewPCG(1, uint64(n)))
	for o := 0; o < sampledOrders; o += 2 {
		order := random.Perm(n)
		for range 2 { // an order and its reverse
			set := uint(0)
			for _, i := range order {
				if err := contribute(set, i, 1.0/sampledOrders); err != nil {
					return nil, err
				}
				set |= 1 << i
			}
			slices.Reverse(order)
		}
	}
	return value(all)
}

func binomial(n, k int) float64 {
	x := 1.0
	for i := range k {
		x = x * float64(n-i) / float64(i+1)
	}
	return x
}

// negligible is a weight that is not worth a word.
const negligible = 1e-7

// gather lists what the steps add up to; d is how the last differs from the first, and moved what
// has moved between.
func (c *Change) gather(d *diff, sums map[[3]string]map[Input]float64, moved map[Input]bool) {
	was, is := arcs(d.before.Plan), arcs(d.after.Plan)
	share, all := map[Input]float64{}, 0.0
	for k, parts := range sums {
		w := WeightChange{Cluster: k[0], Model: k[1], Engine: k[2], Before: was[k], After: is[k]}
		for in, x := range parts {
			if math.Abs(x) < negligible {
				continue
			}
			w.Parts = append(w.Parts, Part{in, x})
			share[in] += math.Abs(x)
			all += math.Abs(x)
		}
		slices.SortFunc(w.Parts, func(a, b Part) int {
			return cmp.Or(cmp.Compare(math.Abs(b.Weight), math.Abs(a.Weight)), strings.Compare(string(a.Input), string(b.Input)))
		})
		if len(w.Parts) > 0 {
			c.Weights = append(c.Weights, w)
		}
	}
	slices.SortFunc(c.Weights, func(a, b WeightChange) int {
		return cmp.Or(cmp.Compare(math.Abs(b.After-b.Before), math.Abs(a.After-a.Before)),
			strings.Compare(a.Cluster+"\x00"+a.Model+"\x00"+a.Engine, b.Cluster+"\x00"+b.Model+"\x00"+b.Engine))
	})
	for in := range moved {
		share[in] += 0 // it moved, if nothing by it
	}
	for in, x := range share {
		s := InputShare{Input: in}
		if moved[in] {
			s.What = most(d.words(in))
		}
		if moved[in] && len(s.What) == 0 {
			s.What = []string{"it is back where it was"}
		}
		if all > 0 {
			s.Share = x / all
		}
		c.Inputs = append(c.Inputs, s)
	}
	slices.SortFunc(c.Inputs, func(a, b InputShare) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), strings.Compare(string(a.Input), string(b.Input)))
	})
}

// mostWords is how many things of an input are said.
const mostWords = 3

func most(words []string) []string {
	if len(words) <= mostWords {
		return words
	}
	return append(slices.Clone(words[:mostWords]), fmt.Sprintf("and %d more", len(words)-mostWords))
}

// words says the change in a few sentences.
func (c *Change) words() {
	c.Words = append(c.Words, c.movedWords())
	for _, in := range c.Inputs {
		what := strings.Join(in.What, ", ")
		switch {
		case in.Share < 0.005 && !deliberate(in.Input): // measurements always move a little
		case in.Input == Guard:
			c.Words = append(c.Words, fmt.Sprintf("The guard rails account for %.0f %% of what moved.", 100*in.Share))
		case in.Input == Path:
			c.Words = append(c.Words, fmt.Sprintf("The way there accounts for %.0f %%: not all plans between are recorded.", 100*in.Share))
		case in.Share == 0:
			c.Words = append(c.Words, fmt.Sprintf("%s moved nothing (%s).", sentence(in.Input), what))
		default:
			c.Words = append(c.Words, fmt.Sprintf("%s accounts for %.0f %% of what moved: %s.", sentence(in.Input), 100*in.Share, what))
		}
	}
	for i := range c.Holds {
		c.Words = append(c.Words, c.Holds[i].words())
	}
}

// movedWords says which weights changed most, of the row of which one changed most.
func (c *Change) movedWords() string {
	if len(c.Weights) == 0 {
		return "No weight changed."
	}
	first := &c.Weights[0] // the largest come first
	var parts []string
	for _, w := range c.Weights {
		if len(parts) < mostWords && w.Cluster == first.Cluster && w.Model == first.Model && math.Abs(w.After-w.Before) >= slight {
			parts = append(parts, fmt.Sprintf("%s from %.3g %% to %.3g %%", w.Engine, 100*w.Before, 100*w.After))
		}
	}
	if len(parts) == 0 {
		return "All weights are back where they were, or next to it."
	}
	return fmt.Sprintf("Most changed, for %s at %s: %s.", first.Model, first.Cluster, strings.Join(parts, ", "))
}

// slight is a change of a weight that is not worth a word by itself.
const slight = 5e-4

// deliberate tells of inputs that somebody has moved, and who may wonder that nothing came of it.
func deliberate(in Input) bool {
	return in == InputOverride || in == InputPolicy || in == InputMembership
}

func sentence(in Input) string { return strings.ToUpper(string(in[:1])) + string(in[1:]) }
