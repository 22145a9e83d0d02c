package proxy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/route"
)

// truth is one decision of the real picker, and what was so when it was made.
type truth struct {
	d       Decision
	names   []string
	failing map[string]bool
	full    map[string]bool
	order   []string // who got it, and who came next
}

// troubled is a row whose engines fail and fill up at random.
type troubled struct {
	rng  *rand.Rand
	row  *route.Row
	held []route.Charge
	now  int64
}

func newTroubled(rng *rand.Rand) *troubled {
	n, sum := 1+rng.IntN(8), 0.0
	s := &fleet.Snapshot{Cluster: "c", Epoch: 1, Version: 1, Replicas: 1 + rng.IntN(2)}
	r := fleet.SnapshotRow{Model: "m", Utilisation: rng.Float64()}
	for i := range n {
		s.Engines = append(s.Engines, fleet.SnapshotEngine{Name: fmt.Sprintf("e%d", i), Capacity: 1})
		t := fleet.Target{Engine: int32(i), Predicted: 0.1 + rng.Float64(), Limit: float64(rng.IntN(3)) * 1.2}
		if i == 0 || rng.IntN(4) > 0 {
			t.Weight = rng.ExpFloat64() + 0.01
		}
		sum += t.Weight
		r.Targets = append(r.Targets, t)
	}
	for i := range r.Targets {
		r.Targets[i].Weight /= sum
	}
	s.Rows = []fleet.SnapshotRow{r}
	return &troubled{rng: rng, row: route.New(s, route.NewFlights(), 0.25, nil).Row("m"), now: 1e15}
}

func (f *troubled) disturb() {
	f.now += int64(f.rng.IntN(400e6))
	for len(f.held) > 12 || len(f.held) > 0 && f.rng.IntN(4) == 0 {
		k := f.rng.IntN(len(f.held))
		f.held[k].Release()
		f.held[k] = f.held[len(f.held)-1]
		f.held = f.held[:len(f.held)-1]
	}
	i := f.rng.IntN(len(f.row.Targets()))
	switch f.rng.IntN(6) {
	case 0:
		f.row.PassOver(i, f.now, f.now+int64(f.rng.IntN(1e9)))
	case 1:
		f.row.Targets()[i].Flight.Recovered(f.now)
	}
}

func (f *troubled) decide() truth {
	x := truth{names: f.row.Names(), failing: map[string]bool{}, full: map[string]bool{}}
	for _, t := range f.row.Targets() {
		x.failing[t.Engine.Name] = t.Flight.PassedOver()
		x.full[t.Engine.Name] = t.Limit > 0 && float64(t.Flight.Requests()) >= t.Limit
	}
	r := record{names: x.names, status: 200, key: route.KeySource(f.rng.IntN(5)), hash: uint64(f.rng.IntN(40)) * 0x9e3779b97f4a7c15, work: int64(1 + f.rng.IntN(2000)), arrived: f.now}
	p := f.row.Decide(route.Query{Source: r.key, Hash: r.hash, Work: r.work, Now: f.now, Trace: &r.probes})
	if r.key == route.KeyConversation {
		f.row.Prefer(&p, x.names[f.rng.IntN(len(x.names))])
	}
	if c, ok := f.row.Take(&p, r.work, f.now); ok {
		f.held, x.order = append(f.held, c), append(x.order, x.names[p.At(0)])
		r.attempt(Attempt{Engine: x.order[0], Outcome: "success", FirstByte: 0.1})
		for f.rng.IntN(4) == 0 {
			i, c, ok := f.row.TakeNext(&p, r.work, f.now)
			if !ok {
				break
			}
			f.held, x.order = append(f.held, c), append(x.order, x.names[i])
			*r.last() = Attempt{Engine: r.last().Engine, Outcome: "failure", Error: "status 500", FailedAfter: 0.1}
			r.attempt(Attempt{Engine: x.names[i], After: 0.2, Outcome: "success", FirstByte: 0.1})
		}
	} else {
		r.status, r.refused = 429, "full"
	}
	r.spilled, r.passed, r.remembered = uint16(p.Spilled), uint16(p.Passed), p.Remembered
	x.d = r.decision("c-1", "c")
	return x
}

// Whatever the picker does, what is told of it is so.
func TestWordsAreTrue(t *testing.T) {
	rng, told := rand.New(rand.NewPCG(21, 22)), map[string]int{}
	for range 80 {
		f := newTroubled(rng)
		for range 100 {
			f.disturb()
			x := f.decide()
			x.holds(t, x.d.Words(), told)
			for _, name := range x.names {
				x.holdsNot(t, name, told)
			}
		}
	}
	t.Log(told)
	for _, s := range []string{
		"was passed over: it had", "tokens in flight", "was full", "Most of the row", "No engine that", "Of all engines", "No other was left", "was the least", "holds the response",
		"is not to be used now", "went to the one", "had the most room", "went to the same engine", "to find out whether", "is remembered of no engine", "one engine was drawn",
		"was not looked at", "was one of", "was not among", "was not reached", "was picked.",
	} {
		require.Greater(t, told[s], 10, s)
	}
}

// holds checks what is told of the whole.
func (x *truth) holds(t *testing.T, words []string, told map[string]int) {
	t.Helper()
	all := strings.Join(words, "\n")
	about := fmt.Sprintf("%s\n%+v\n%+v", all, x.d, x.order)
	require.NotContains(t, all, "%!", about)
	require.NotContains(t, all, "  ", about)
	require.NotContains(t, all, "Its none", about)
	first := ""
	if len(x.order) > 0 {
		first = x.order[0]
	}
	require.Equal(t, first, x.d.Picked, about)
	seen := map[string]bool{}
	for _, line := range words {
		require.False(t, seen[line], "twice: %s\n%s", line, about)
		seen[line] = true
		subject, rest, _ := strings.Cut(line, " ")
		switch {
		case strings.Contains(rest, "had failed or refused shortly before"):
			require.True(t, x.failing[subject], about)
			told["was passed over: it had"]++
		case strings.Contains(rest, "to find out whether"):
			require.True(t, x.failing[subject], about)
			told["to find out whether"]++
		case strings.Contains(rest, "tokens in flight"):
			told["tokens in flight"]++
		case strings.HasPrefix(rest, "was full"):
			require.True(t, x.full[subject], about)
			told["was full"]++
		case strings.HasPrefix(line, "Most of the row"):
			require.Empty(t, first, about)
			told["Most of the row"]++
		case strings.HasPrefix(line, "No engine that"):
			for name := range x.full {
				require.True(t, x.full[name] || x.failing[name], "%s: %s", name, about)
			}
			told["No engine that"]++
		case strings.HasPrefix(line, "Of all engines"):
			require.Contains(t, line, "had room "+first+" was", about)
			told["Of all engines"]++
		case strings.HasPrefix(line, "No other was left"):
			for name := range x.failing {
				require.True(t, x.failing[name] || x.full[name] || slices.Contains(x.order, name), "%s: %s", name, about)
			}
			told["No other was left"]++
		case strings.Contains(line, "was the least"):
			for _, p := range x.d.Probes {
				require.False(t, p.Look == "probe" && (p.State == "within" || p.State == "probing"), about)
			}
			told["was the least"]++
		case strings.HasSuffix(line, "goes on from."):
			require.False(t, x.failing[subject], about)
			told["holds the response"]++
		}
		for _, s := range []string{"is not to be used now", "went to the one", "had the most room", "went to the same engine", "is remembered of no engine", "one engine was drawn"} {
			if strings.Contains(line, s) {
				told[s]++
			}
		}
		if strings.Contains(line, "went to the one") || strings.Contains(line, "went to the same engine") {
			require.NotEmpty(t, first, about)
		}
	}
}

// holdsNot checks what is told of one engine.
func (x *truth) holdsNot(t *testing.T, engine string, told map[string]int) {
	t.Helper()
	words := x.d.WhyNot(engine)
	all := strings.Join(words, "\n")
	about := fmt.Sprintf("why not %s?\n%s\n%+v\n%+v", engine, all, x.d, x.order)
	got := len(x.order) > 0 && x.order[0] == engine
	require.Equal(t, got, strings.Contains(all, engine+" was picked."), about)
	if len(x.order) > 0 {
		require.Contains(t, all, x.order[0]+" was picked.", about)
		told["was picked."]++
	}
	looked := false
	for _, p := range x.d.Probes {
		looked = looked || p.Engine == engine && p.Look != "choice"
	}
	for _, s := range []string{"was not looked at", "was not reached", "was not among", "was one of"} {
		if strings.Contains(all, engine+" "+s) {
			told[s]++
			require.False(t, looked, about)
		}
	}
}
