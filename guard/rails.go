package guard

import (
	"fmt"

	"github.com/wardrop-lb/wardrop/fleet"
)

// fresh holds what rests on a view of which most is a guess: stale is not dead.
func fresh(in *Inputs) *Hold {
	for _, x := range []struct {
		heard Heard
		words string
	}{
		{in.Clusters, "%d of %d clusters that reported still do: nothing moves until more than that is known"},
		{in.Engines, "%d of %d engines that could be read still can: nothing moves until more than that is known"},
	} {
		if x.heard.Known == 0 {
			continue
		}
		if part := float64(x.heard.Fresh) / float64(x.heard.Known); part < in.Limits.Fresh {
			return &Hold{
				Rail: Fresh, Figure: part, Limit: in.Limits.Fresh,
				Reason: fmt.Sprintf("only "+x.words+" (at least %s)", x.heard.Fresh, x.heard.Known, percent(in.Limits.Fresh)),
			}
		}
	}
	return nil
}

// spareRoom is the part of its capacity that an engine must have left to be called free.
const spareRoom = 0.01

// emptiedHold holds a plan that leaves a row with nothing which it could have.
func (m *movement) emptiedHold(view *fleet.View, last *fleet.Plan) *Hold {
	for _, at := range m.missing {
		if r := &last.Rows[at]; serves(view, r) {
			m.empty = append(m.empty, emptyRow{r.Cluster, r.Model, "without engines"})
		}
	}
	if len(m.empty) == 0 {
		return nil
	}
	r, more := m.empty[0], ""
	if n := len(m.empty) - 1; n > 0 {
		more = fmt.Sprintf(", and %d more", n)
	}
	return &Hold{
		Rail: Emptied, Figure: float64(len(m.empty)) / float64(len(last.Rows)),
		Reason: fmt.Sprintf("would leave model %s in cluster %s %s%s, though engines of it live and have room", r.model, r.cluster, r.how, more),
	}
}

// serves says whether the view still has the row's cluster and an engine for it.
func serves(view *fleet.View, r *fleet.Row) bool {
	cluster := false
	for i := range view.Clusters {
		cluster = cluster || view.Clusters[i].Name == r.Cluster
	}
	if !cluster {
		return false
	}
	for i := range view.Engines {
		for _, m := range view.Engines[i].Models {
			if m == r.Model {
				return true
			}
		}
	}
	return false
}

func percent(part float64) string { return fmt.Sprintf("%.3g %%", 100*part) }
