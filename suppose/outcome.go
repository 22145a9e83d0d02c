package suppose

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/wardrop-lb/wardrop/fleet"
)

// words says what would follow: who is refused, what a request takes, what moves, who is full.
func (o *Outcome) words() {
	o.Words = []string{o.refusedWords(), o.timeWords(), o.movedWords()}
	was, is := &o.Before, &o.After
	switch {
	case is.Full > 0:
		o.Words = append(o.Words, fmt.Sprintf("%d engines would be full; now %d are.", is.Full, was.Full))
	case is.Fullest == "":
	case is.Fullest == was.Fullest:
		o.Words = append(o.Words, fmt.Sprintf("%s would still be the fullest engine, at %.0f %% of its capacity instead of %.0f %%.", is.Fullest, 100*is.Utilisation, 100*was.Utilisation))
	default:
		o.Words = append(o.Words, fmt.Sprintf("%s would be the fullest engine, at %.0f %% of its capacity; now it is %s, at %.0f %%.", is.Fullest, 100*is.Utilisation, was.Fullest, 100*was.Utilisation))
	}
}

// least is a rate, in requests/s, below which nobody is refused, and a time, in seconds, below
// which nothing takes longer.
const least = 1e-3

func (o *Outcome) refusedWords() string {
	then, now := refused(o.After.Shed), refused(o.Before.Shed)
	switch {
	case then == "" && now == "":
		return "Nothing would be refused."
	case then == "":
		return "Nothing would be refused any more; now it is " + now + "."
	case now == "":
		return "Refused would be " + then + "; now nothing is."
	}
	return "Refused would be " + then + "; now it is " + now + "."
}

// refused lists what is refused, the least important first; empty where nothing is.
func refused(shed map[string]float64) string {
	var parts []string
	for k := fleet.NumPriorities - 1; k >= 0; k-- {
		name := fleet.Priority(k).String()
		if rate := shed[name]; rate >= least {
			parts = append(parts, fmt.Sprintf("%.3g requests/s of %s", rate, name))
		}
	}
	return strings.Join(parts, " and ")
}

func (o *Outcome) timeWords() string {
	d := o.After.Seconds - o.Before.Seconds
	switch {
	case o.After.Admitted == 0:
		return "No request would be served."
	case math.Abs(d) < least:
		return fmt.Sprintf("A request would take %s in the mean, as it does now.", duration(o.After.Seconds))
	case d > 0:
		return fmt.Sprintf("A request would take %s in the mean, %s longer than now.", duration(o.After.Seconds), duration(d))
	}
	return fmt.Sprintf("A request would take %s in the mean, %s less than now.", duration(o.After.Seconds), duration(-d))
}

// movedWords says how much would move, and where most of it would go.
func (o *Outcome) movedWords() string {
	if len(o.Moves) == 0 {
		return "No weight would change: nothing that could move would gain what moving costs."
	}
	lost, row := map[[2]string]float64{}, [2]string{}
	for _, m := range o.Moves {
		k := [2]string{m.Cluster, m.Model}
		lost[k] += math.Abs(m.After - m.Before)
	}
	for k, x := range lost {
		if d := cmp.Compare(x, lost[row]); d > 0 || d == 0 && k[0]+"\x00"+k[1] < row[0]+"\x00"+row[1] {
			row = k
		}
	}
	var to []Move
	for _, m := range o.Moves {
		if m.Cluster == row[0] && m.Model == row[1] && m.After > m.Before {
			to = append(to, m)
		}
	}
	slices.SortStableFunc(to, func(a, b Move) int { return cmp.Compare(b.After-b.Before, a.After-a.Before) })
	var parts []string
	for _, m := range to[:min(len(to), mostWords)] {
		parts = append(parts, fmt.Sprintf("%s would get %.3g %% instead of %.3g %%", m.Engine, 100*m.After, 100*m.Before))
	}
	s := fmt.Sprintf("%.3g %% of the traffic would go elsewhere", 100*o.Moved)
	if len(parts) > 0 {
		s += fmt.Sprintf(", most of it %s at %s: %s", row[1], row[0], strings.Join(parts, ", "))
	}
	return s + "."
}
