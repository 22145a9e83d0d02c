package proxy

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/wardrop-lb/wardrop/route"
)

// Words say a decision as it was recorded, in the order in which it was made.
func (d *Decision) Words() []string {
	out := []string{d.arrivalWords()}
	if d.Aged > 0 {
		out = append(out, fmt.Sprintf("That plan was old: %.0f %% of its weights had given way to the engines' capacities.", 100*d.Aged))
	}
	if d.ShedPart > 0 {
		out = append(out, fmt.Sprintf("The plan refuses %.3g %% of %s requests; it drew %.3g, so it was %s.",
			100*d.ShedPart, d.Priority, d.Lot, either(d.Lot < d.ShedPart, "refused", "let through")))
	}
	if len(d.Probes) > 0 {
		out = append(out, d.keyWords())
	}
	out = append(out, d.probeWords()...)
	if d.Queued >= leastQueued {
		out = append(out, fmt.Sprintf("It waited %s for room: where it might have gone was full, or others waited before it.", spell(d.Queued)))
	}
	for i := range d.Attempts {
		out = append(out, d.Attempts[i].words(i))
	}
	if d.budgetMatters() {
		out = append(out, fmt.Sprintf("%.1f retries were left in the budget when it came, at %.0f %% utilisation.", d.RetriesLeft, 100*d.Utilisation))
	}
	return append(out, d.endWords())
}

// leastQueued is what is worth to be called a wait, seconds.
const leastQueued = 1e-4

func (d *Decision) arrivalWords() string {
	what := "request"
	switch {
	case d.Path == storedPath:
		what += " for a stored response"
	case d.Alias != "":
		what += fmt.Sprintf(" for %s, asked for as %s,", d.Model, d.Alias)
	case d.Model != "":
		what += " for " + d.Model
	}
	s := fmt.Sprintf("At %s a %s %s came to %s", d.Time.Format("15:04:05.000"), d.Priority, what, d.Cluster)
	if d.Epoch > 0 || d.Version > 0 { // else it was answered before the plan was looked at
		s += fmt.Sprintf(", which routed by plan %d.%d", d.Epoch, d.Version)
	}
	return s + "."
}

func either(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}

// find is the first look of a kind; nil if there is none.
func (d *Decision) find(kind route.LookKind) *Probe {
	i := slices.IndexFunc(d.Probes, func(p Probe) bool { return p.Look == kind.String() })
	if i < 0 {
		return nil
	}
	return &d.Probes[i]
}

// drawn says how many engines were compared because nothing said where to go; empty if none were.
func (d *Decision) drawn() string {
	var seen []string
	for i := range d.Probes {
		if p := &d.Probes[i]; p.Look == route.LookChoice.String() && !slices.Contains(seen, p.Engine) {
			seen = append(seen, p.Engine)
		}
	}
	return [...]string{"", "one engine", "two engines", "three engines", "four engines"}[min(len(seen), 4)]
}

// keyWords say what decided the order of engines.
func (d *Decision) keyWords() string {
	key := "Its " + d.Key
	if d.Depth > 0 {
		key = fmt.Sprintf("Its %s, %s deep,", d.Key, either(d.Depth == 1, "one block", fmt.Sprint(d.Depth, " blocks")))
	}
	place := d.find(route.LookPlace)
	switch {
	case d.drawn() != "":
		return either(d.Key == route.KeyNone.String(), "Nothing tied it to others: ", key+" is remembered of no engine that gets traffic: ") + d.drawnWords()
	case d.Key == route.KeyNone.String():
		return "Nothing tied it to others."
	case d.Remembered && d.Picked != "":
		return fmt.Sprintf("Its %s went to the same engine before, where its cache is to be expected.", d.Key)
	case place != nil && place.Engine != "":
		return fmt.Sprintf("Its %s went to %s before, where its cache is to be expected.", d.Key, place.Engine)
	case d.Depth > 0:
		return key + " decided the order of engines."
	}
	return key + " decided the order of engines, as for all with the same."
}

// drawnWords say which of the engines that were drawn it was to go to: the first whose bound was
// looked at.
func (d *Decision) drawnWords() string {
	best := d.find(route.LookProbe)
	switch {
	case d.drawn() == "one engine":
		return "one engine was drawn by its weight."
	case best == nil || best.Engine == d.Picked:
		return fmt.Sprintf("of %s it went to the one with the most room for its weight.", d.drawn())
	}
	return fmt.Sprintf("of %s %s had the most room for its weight.", d.drawn(), best.Engine)
}

// probeWords say what the decision looked at and did not take, an engine once for each reason.
func (d *Decision) probeWords() []string {
	var out []string
	said := map[[3]string]bool{}
	for i := range d.Probes {
		p := &d.Probes[i]
		reason := [3]string{p.Engine, p.State}
		if p.State == route.Within.String() {
			reason[2] = p.Look
		}
		if s := p.words(); s != "" && !said[reason] {
			said[reason] = true
			out = append(out, s)
		}
		if s := d.leastWords(i); s != "" {
			out = append(out, s)
		}
	}
	if d.Cut {
		out = append(out, fmt.Sprintf("It looked at more than the %d that are recorded.", len(d.Probes)))
	}
	return out
}

// words say why an engine was not taken, or was although it fails; "" where there is nothing to say.
func (p *Probe) words() string {
	switch p.State {
	case route.Over.String():
		return fmt.Sprintf("%s was passed over: %d tokens in flight, and its weight allows %.0f.", p.Engine, p.InFlight, p.Bound)
	case route.Failing.String():
		return p.Engine + " was passed over: it had failed or refused shortly before."
	case route.Probing.String():
		return p.Engine + " had failed or refused before; this request was to find out whether it is back."
	case route.Full.String():
		if p.Look == route.LookCrowded.String() {
			return "Most of the row was full: it could only wait for the engine that has its cache."
		}
		return fmt.Sprintf("%s was full: %d requests in flight, and this data plane may have %.0f there.", p.Engine, p.InFlight, math.Ceil(float64(p.Bound)))
	}
	switch {
	case p.Look == route.LookAny.String() && p.Engine == "":
		return "No engine that is well had room."
	case p.Look == route.LookAny.String():
		return fmt.Sprintf("Of all engines that are well and had room %s was the fastest.", p.Engine)
	case p.Look == route.LookStored.String() && p.Engine == "":
		return "The engine that holds the response that it goes on from is not to be used now."
	case p.Look == route.LookStored.String():
		return fmt.Sprintf("%s holds the response that it goes on from.", p.Engine)
	}
	return ""
}

// leastWords say at a look why an engine is next although it was passed over: because all were.
func (d *Decision) leastWords(i int) string {
	p := &d.Probes[i]
	before := func(state route.LookState, kinds ...route.LookKind) bool {
		return slices.ContainsFunc(d.Probes[:i], func(b Probe) bool {
			return b.Engine == p.Engine && b.State == state.String() && slices.ContainsFunc(kinds, func(k route.LookKind) bool { return b.Look == k.String() })
		})
	}
	switch {
	case p.Look == route.LookLast.String() && d.took(i) && before(route.Failing, route.LookProbe, route.LookNext):
		return fmt.Sprintf("No other was left than %s.", p.Engine)
	case p.Look == route.LookCharge.String() && d.firstCharge(i) && d.exhausted(i) && before(route.Over, route.LookProbe):
		return fmt.Sprintf("All that came into question were at their bounds or failing: %s was the least beyond its own.", p.Engine)
	}
	return ""
}

// took tells that the engine of a look got the request next.
func (d *Decision) took(i int) bool {
	if i+1 == len(d.Probes) {
		return false
	}
	next := &d.Probes[i+1]
	return next.Engine == d.Probes[i].Engine && next.Look == route.LookCharge.String() && next.State == route.Within.String()
}

// firstCharge tells that a look is for the place of the pick's first engine.
func (d *Decision) firstCharge(i int) bool {
	return !slices.ContainsFunc(d.Probes[:i], func(p Probe) bool { return p.Look == route.LookCharge.String() })
}

// exhausted tells that no engine was found to be within its bound before a look, and none was
// taken for another reason.
func (d *Decision) exhausted(i int) bool {
	return !slices.ContainsFunc(d.Probes[:i], func(p Probe) bool {
		switch p.Look {
		case route.LookProbe.String():
			return p.State == route.Within.String() || p.State == route.Probing.String()
		case route.LookStored.String():
			return p.Engine != ""
		}
		return false
	})
}

// budgetMatters tells that there was a retry, or could have been one.
func (d *Decision) budgetMatters() bool {
	n := len(d.Attempts)
	if n == 0 || d.Path == storedPath {
		return false
	}
	last := d.Attempts[n-1].Outcome
	return n > 1 || d.Status >= http.StatusInternalServerError || last != outcomeNames[0] && last != canceled
}

// endWords say what became of the request.
func (d *Decision) endWords() string {
	took := spell(d.Seconds)
	switch {
	case d.Refused == codeGone:
		return fmt.Sprintf("The connection to the client was closed %s after the request came, before there was an answer.", took)
	case d.Refused != "" && len(d.Attempts) > 0:
		return fmt.Sprintf("It was refused here with status %d, %s after it came: %s.", d.Status, took, refusals(d.Refused))
	case d.Refused != "":
		return fmt.Sprintf("It was refused here with status %d: %s.", d.Status, refusals(d.Refused))
	case d.Aborted == codeGone:
		return fmt.Sprintf("The connection to the client was closed %s after the request came, during the answer of status %d.", took, d.Status)
	case d.Aborted != "":
		return fmt.Sprintf("The answer had status %d and was cut off %s after the request came: %s.", d.Status, took, refusals(d.Aborted))
	case d.Status != 0:
		return fmt.Sprintf("The answer had status %d and ended %s after the request came.", d.Status, took)
	}
	return "There was no answer."
}

// WhyNot says why an engine did not get the request, by what was recorded.
func (d *Decision) WhyNot(engine string) []string {
	if d.Refused == "shed" {
		return []string{"No engine got it: it was refused before one was picked.", fmt.Sprintf("The plan refuses %.3g %% of %s requests, and it drew %.3g.", 100*d.ShedPart, d.Priority, d.Lot)}
	}
	var out []string
	if d.Picked == engine && engine != "" {
		out = append(out, engine+" was picked.")
	}
	said := map[string]bool{}
	for i := range d.Probes {
		p := &d.Probes[i]
		for _, s := range []string{p.words(), d.leastWords(i)} {
			if p.Engine == engine && s != "" && !said[s] {
				said[s], out = true, append(out, s)
			}
		}
	}
	for i := range d.Attempts {
		if a := &d.Attempts[i]; a.Engine == engine {
			out = append(out, a.words(i))
		}
	}
	if len(out) == 0 {
		out = []string{d.unreached(engine)}
	}
	if d.Picked != "" && d.Picked != engine {
		out = append(out, fmt.Sprintf("%s was picked.", d.Picked))
	}
	return out
}

// unreached says why there is nothing to say of an engine.
func (d *Decision) unreached(engine string) string {
	compared := slices.ContainsFunc(d.Probes, func(p Probe) bool { return p.Engine == engine && p.Look == route.LookChoice.String() })
	stored, place := d.find(route.LookStored), d.find(route.LookPlace)
	switch {
	case len(d.Probes) == 0 && len(d.Attempts) > 0:
		return fmt.Sprintf("%s was not asked: of the engines that may hold the response the first that has it answers.", engine)
	case len(d.Probes) == 0:
		return "The request ended before an engine was picked."
	case engine != d.Picked && slices.ContainsFunc(d.Probes, func(p Probe) bool { return p.Engine == engine && p.Look == route.LookCharge.String() }):
		return fmt.Sprintf("%s was to be next, but no retry was left.", engine)
	case stored != nil && stored.Engine != "":
		return fmt.Sprintf("%s does not hold the response that the request goes on from: %s does.", engine, stored.Engine)
	case compared:
		return fmt.Sprintf("%s was one of %s that were compared, and had less room for its weight.", engine, strings.TrimSuffix(d.drawn(), " engines"))
	case d.Cut:
		return fmt.Sprintf("%s is not among the %d looks that are recorded; there were more.", engine, len(d.Probes))
	case d.drawn() != "":
		return fmt.Sprintf("%s was not among %s.", engine, either(d.drawn() == "one engine", "those that could be drawn: one was, by its weight", "the "+strings.TrimSuffix(d.drawn(), " engines")+" that were drawn by their weights"))
	case d.Remembered && d.Picked != "":
		return fmt.Sprintf("%s was not looked at: the prefix went to %s before, which had room.", engine, d.Picked)
	case d.Picked == "" && place != nil && place.Engine != "":
		return fmt.Sprintf("%s was not looked at: the prefix went to %s before.", engine, place.Engine)
	}
	return fmt.Sprintf("%s was not reached: the request's %s leads to others first. How often it comes first is its weight: ask why weight.", engine, d.Key)
}

// words say how an attempt went, the i-th of its request.
func (a *Attempt) words(i int) string {
	s := fmt.Sprintf("%s was asked", a.Engine)
	if i > 0 {
		s = fmt.Sprintf("After %s %s was asked", spell(a.After), a.Engine)
	}
	after := ""
	if a.FailedAfter > 0 {
		after = " after " + spell(a.FailedAfter)
	}
	switch {
	case a.FirstByte > 0:
		return s + a.answerWords(after)
	case a.Outcome == outrun:
		return s + ", and the other was faster."
	case a.Outcome == canceled:
		return s + ", and had not begun to answer when it was called off" + after + "."
	case a.Outcome == notHere:
		return s + " and did not hold it."
	case a.Error != "":
		return fmt.Sprintf("%s: %s%s (%s).", s, a.Outcome, after, a.Error)
	}
	return fmt.Sprintf("%s: %s%s.", s, a.Outcome, after)
}

// answerWords say how an answer began, and that it failed later.
func (a *Attempt) answerWords(after string) string {
	s := fmt.Sprintf(" and began to answer after %s", spell(a.FirstByte))
	if a.Predicted > 0 {
		s += fmt.Sprintf("; %s were expected, and %s in all for a usual request", spell(a.Expected), spell(a.Predicted))
	}
	if a.Error != "" {
		return fmt.Sprintf("%s. It ended in %s%s (%s).", s, a.Outcome, after, a.Error)
	}
	return s + "."
}

// refusals says the codes that need more words than they have.
func refusals(code string) string {
	switch code {
	case "shed":
		return "the plan sheds this part of its priority, for demand exceeds capacity (shed)"
	case "full":
		return "no engine had room, and none came in time (full)"
	case "no_snapshot":
		return "there were no routing weights yet (no_snapshot)"
	case "no_engine":
		return "no engine could be reached (no_engine)"
	case codeLate:
		return "its time was up, or too short from the beginning (deadline)"
	case codeFailed:
		return "the engine failed (engine_failed)"
	}
	return strings.ReplaceAll(code, "_", " ")
}

func spell(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(100 * time.Microsecond).String()
}
