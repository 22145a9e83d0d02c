package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/wardrop-lb/wardrop/route"
)

// Words say a decision as it was recorded, in the order in which it was made.
func (d *Decision) Words() []string {
	out := []string{fmt.Sprintf("At %s a %s request for %s came to %s, which routed by plan %d.%d.",
		d.Time.Format("15:04:05.000"), d.Priority, d.Model, d.Cluster, d.Epoch, d.Version)}
	if d.Aged > 0 {
		out = append(out, fmt.Sprintf("That plan was old: %.0f %% of its weights had given way to the engines' capacities.", 100*d.Aged))
	}
	if d.ShedPart > 0 {
		out = append(out, fmt.Sprintf("The plan refuses %.0f %% of %s requests; it drew %.2f, so it was %s.",
			100*d.ShedPart, d.Priority, d.Lot, either(d.Lot < d.ShedPart, "refused", "let through")))
	}
	if d.Refused != "shed" {
		out = append(out, d.keyWords())
	}
	out = append(out, d.probeWords()...)
	if d.Queued > 0 {
		out = append(out, fmt.Sprintf("It waited %s for room, for every engine was full.", spell(d.Queued)))
	}
	for i := range d.Attempts {
		out = append(out, d.Attempts[i].words(i))
	}
	if len(d.Attempts) > 0 && d.Status >= http.StatusInternalServerError || len(d.Attempts) > 1 {
		out = append(out, fmt.Sprintf("%.1f retries were left in the budget when it came, at %.0f %% utilisation.", d.RetriesLeft, 100*d.Utilisation))
	}
	switch {
	case d.Refused != "":
		out = append(out, fmt.Sprintf("It was refused here with status %d: %s.", d.Status, refusals(d.Refused)))
	case d.Status != 0:
		out = append(out, fmt.Sprintf("The answer had status %d and ended %s after the request came.", d.Status, spell(d.Seconds)))
	default:
		out = append(out, "The client had gone before there was an answer.")
	}
	return out
}

func either(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}

func (d *Decision) keyWords() string {
	switch {
	case d.Key == route.KeyNone.String():
		return "Nothing tied it to others: of four engines it went to the one with the most room for its weight."
	case d.Remembered:
		return fmt.Sprintf("Its %s went to the same engine before, where its cache is to be expected.", d.Key)
	case d.Depth > 0:
		return fmt.Sprintf("Its %s, %d blocks deep, decided the order of engines.", d.Key, d.Depth)
	}
	return fmt.Sprintf("Its %s decided the order of engines, as for all with the same.", d.Key)
}

// probeWords say what the decision looked at and did not take, an engine once for each reason.
func (d *Decision) probeWords() []string {
	var out []string
	said := map[[2]string]bool{}
	for i := range d.Probes {
		p := &d.Probes[i]
		if s := p.words(); s != "" && !said[[2]string{p.Engine, p.State}] {
			said[[2]string{p.Engine, p.State}] = true
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
		return p.Engine + " was passed over for failures shortly before."
	case route.Probing.String():
		return p.Engine + " had failed before; this request was to find out whether it is back."
	case route.Full.String():
		if p.Look == route.LookCrowded.String() {
			return "Most of the row was full: it could only wait for the engine that has its cache."
		}
		return fmt.Sprintf("%s was full: %d requests in flight, and this data plane may have %.0f there.", p.Engine, p.InFlight, p.Bound)
	}
	switch {
	case p.Look == route.LookAny.String() && p.Engine == "":
		return "None of all the engines had room."
	case p.Look == route.LookAny.String():
		return fmt.Sprintf("Of all engines that had room %s was the fastest.", p.Engine)
	case p.Look == route.LookStored.String() && p.Engine != "":
		return fmt.Sprintf("%s holds the response that it goes on from.", p.Engine)
	}
	return ""
}

// WhyNot says why an engine did not get the request, by what was recorded.
func (d *Decision) WhyNot(engine string) []string {
	if d.Refused == "shed" {
		return []string{"No engine got it: it was refused before one was picked.", fmt.Sprintf("The plan refuses %.0f %% of %s requests, and it drew %.2f.", 100*d.ShedPart, d.Priority, d.Lot)}
	}
	var out []string
	said := map[string]bool{}
	compared := false
	for i := range d.Probes {
		p := &d.Probes[i]
		compared = compared || p.Engine == engine && p.Look == route.LookChoice.String()
		if s := p.words(); p.Engine == engine && s != "" && !said[s] {
			said[s], out = true, append(out, s)
		}
	}
	for i := range d.Attempts {
		if a := &d.Attempts[i]; a.Engine == engine {
			out = append(out, a.words(i))
		}
	}
	if len(out) == 0 {
		out = []string{d.unreached(engine, compared)}
	}
	if d.Picked != "" && d.Picked != engine {
		out = append(out, fmt.Sprintf("%s was picked.", d.Picked))
	}
	return out
}

// unreached says why there is nothing to say of an engine.
func (d *Decision) unreached(engine string, compared bool) string {
	switch {
	case len(d.Probes) == 0:
		return "The request was answered before an engine was picked."
	case compared:
		return fmt.Sprintf("%s was one of four that were compared, and had less room for its weight.", engine)
	case d.Remembered:
		return fmt.Sprintf("%s was not looked at: the prefix went to %s before, which had room.", engine, d.Picked)
	case d.Key == route.KeyNone.String():
		return fmt.Sprintf("%s was not among the four that were drawn by their weights.", engine)
	case d.Cut:
		return fmt.Sprintf("%s is not among the %d looks that are recorded; there were more.", engine, len(d.Probes))
	}
	return fmt.Sprintf("%s was not reached: the request's %s leads to others first. How often it comes first is its weight: ask why weight.", engine, d.Key)
}

func (a *Attempt) words(i int) string {
	s := fmt.Sprintf("%s was asked", a.Engine)
	if i > 0 {
		s = fmt.Sprintf("After %s %s was asked", spell(a.After), a.Engine)
	}
	switch {
	case a.FirstByte > 0 && a.Predicted > 0:
		return fmt.Sprintf("%s and began to answer after %s; %s were expected, and %s in all for a usual request.", s, spell(a.FirstByte), spell(a.Expected), spell(a.Predicted))
	case a.FirstByte > 0:
		return fmt.Sprintf("%s and began to answer after %s.", s, spell(a.FirstByte))
	case a.Outcome == "outrun":
		return s + ", and the other was faster."
	case a.Error != "":
		return fmt.Sprintf("%s: %s (%s).", s, a.Outcome, a.Error)
	}
	return fmt.Sprintf("%s: %s.", s, a.Outcome)
}

// refusals says the codes that need more words than they have.
func refusals(code string) string {
	switch code {
	case "shed":
		return "the plan sheds this part of its priority, for demand exceeds capacity (shed)"
	case "full":
		return "no engine had room, and none came in time (full)"
	}
	return strings.ReplaceAll(code, "_", " ")
}

func spell(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(100 * time.Microsecond).String()
}
