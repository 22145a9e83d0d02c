package proxy

import (
	"fmt"
	"time"
)

// Words say a decision as it was recorded, in the order in which it was made.
func (d *Decision) Words() []string {
	out := []string{fmt.Sprintf("At %s a %s request for %s came to %s, which routed by plan %d.%d.",
		d.Time.Format("15:04:05.000"), d.Priority, d.Model, d.Cluster, d.Epoch, d.Version)}
	if d.Aged > 0 {
		out = append(out, fmt.Sprintf("That plan was old: %.0f %% of its weights had given way to the engines' capacities.", 100*d.Aged))
	}
	out = append(out, d.keyWords())
	if d.Spilled > 0 {
		out = append(out, fmt.Sprintf("%s passed over, at the bound of what their weights allow.", engines(d.Spilled)))
	}
	if d.Passed > 0 {
		out = append(out, fmt.Sprintf("%s passed over for failures shortly before.", engines(d.Passed)))
	}
	if d.Queued > 0 {
		out = append(out, fmt.Sprintf("It waited %s for room, for every engine was full.", spell(d.Queued)))
	}
	for i := range d.Attempts {
		out = append(out, d.Attempts[i].words(i))
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

func engines(n int) string {
	if n == 1 {
		return "One engine of its order was"
	}
	return fmt.Sprintf("%d engines of its order were", n)
}

func (d *Decision) keyWords() string {
	switch {
	case d.Key == "none":
		return "Nothing tied it to others: of four engines it went to the one with the most room for its weight."
	case d.Remembered:
		return fmt.Sprintf("Its %s went to the same engine before, where its cache is to be expected.", d.Key)
	case d.Depth > 0:
		return fmt.Sprintf("Its %s, %d blocks deep, decided the order of engines.", d.Key, d.Depth)
	}
	return fmt.Sprintf("Its %s decided the order of engines, as for all with the same.", d.Key)
}

func (a *Attempt) words(i int) string {
	s := fmt.Sprintf("%s was asked", a.Engine)
	if i > 0 {
		s = fmt.Sprintf("Then %s was asked", a.Engine)
	}
	switch {
	case a.FirstByte > 0 && a.Predicted > 0:
		return fmt.Sprintf("%s and began to answer after %s; %s in all were predicted.", s, spell(a.FirstByte), spell(a.Predicted))
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
	return code
}

func spell(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(100 * time.Microsecond).String()
}
