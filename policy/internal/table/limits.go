package table

import (
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
)

// setModels takes in what the models' requests ask.
func (t *Table) setModels() {
	n := len(t.Models)
	if len(t.Work) != n {
		t.Work, t.worth = make([]float64, n), make([][2]float64, n)
		for r := range t.Holds {
			t.Holds[r] = make([]float64, n)
		}
	}
	for m := range t.Models {
		t.setModel(m, fleet.Model{})
	}
	for i := range t.View.Models {
		for m, name := range t.Models {
			if name == t.View.Models[i].Name {
				t.setModel(m, t.View.Models[i])
			}
		}
	}
}

func (t *Table) setModel(m int, x fleet.Model) {
	t.Work[m] = x.Load()
	t.worth[m][0], t.worth[m][1] = x.Worth()
	t.Holds[Tokens][m], t.Holds[Slots][m] = x.TokenSeconds/x.Load(), x.SlotSeconds/x.Load()
}

// setCurves makes every engine's curve.
func (t *Table) setCurves() {
	n := len(t.Engines)
	if len(t.Curve) != n {
		t.Curve, t.Cap, t.top = make([]latency.Model, n), make([]float64, n), make([]float64, n)
		for r := range t.Limits {
			t.Limits[r] = make([]float64, n)
		}
		t.plain = make([]bool, n)
		t.Own, t.Owns = make([]float64, len(t.serving)), make([][]fleet.OwnLatency, n)
	}
	for i, e := range t.Engines {
		t.setCurve(i, e)
	}
}

// setCurve makes one engine's curve and limits from its profile and its models.
func (t *Table) setCurve(i int, e *fleet.Engine) {
	models, at := t.Serves(int32(i)), t.ServesAt(int32(i))
	first, decode := 0.0, 0.0
	same := true
	for _, m := range models {
		first += t.worth[m][0] / float64(len(models))
		decode += t.worth[m][1] / float64(len(models))
		same = same && t.worth[m] == t.worth[models[0]]
	}
	if same {
		first, decode = t.worth[models[0]][0], t.worth[models[0]][1]
	}
	t.plain[i] = first == 1 && decode == 1
	t.Curve[i] = latency.Weighted(e.Profile, first, decode)
	t.Cap[i] = t.Curve[i].Capacity()
	t.setLimit(i, Tokens, e.Profile.Tokens)
	t.setLimit(i, Slots, e.Profile.Slots)
	slope := t.Curve[i].At(t.Cap[i]).Slope
	t.top[i] = 0
	t.Owns[i] = t.Owns[i][:0]
	for j, m := range models {
		own := 0.0
		if !same {
			// As it is alone in the engine; what the load adds counts for all alike, which
			// keeps the objective convex.
			own = t.Work[m] * ((t.worth[m][0]-first)*e.Profile.FirstToken + (t.worth[m][1]-decode)*(e.Profile.T0-e.Profile.FirstToken))
			t.Owns[i] = append(t.Owns[i], fleet.OwnLatency{Model: t.Models[m], Seconds: own})
		}
		t.Own[at[j]] = own
		t.top[i] = max(t.top[i], t.Work[m]*slope+own)
	}
}

// setLimit sees to one limit of an engine, 0 being none. Where all of its models
// hold alike it is one on the load, and where none could break it, it is none.
func (t *Table) setLimit(i int, r Resource, limit float64) {
	t.Limits[r][i] = 0
	if limit == 0 {
		return
	}
	models := t.Serves(int32(i))
	least, most := t.Holds[r][models[0]], 0.0
	for _, m := range models {
		least, most = min(least, t.Holds[r][m]), max(most, t.Holds[r][m])
	}
	switch {
	case most*t.Curve[i].Capacity() <= limit:
	case least == most:
		t.Cap[i] = min(t.Cap[i], limit/most)
	default:
		t.Limits[r][i] = limit
	}
}

// Room is what engine e can take beside flows in requests/s by element of Serving, in
// work/s of any of its models: the greediest counts.
func (t *Table) Room(e int32, flow []float64) float64 {
	room := t.Cap[e] - t.Load(e, flow)
	for r := range t.Limits {
		limit := t.Limits[r][e]
		if limit == 0 {
			continue
		}
		used, most, at := 0.0, 0.0, t.ServesAt(e)
		for j, m := range t.Serves(e) {
			used += flow[at[j]] * t.Work[m] * t.Holds[r][m]
			most = max(most, t.Holds[r][m])
		}
		room = min(room, (limit-used)/most)
	}
	return max(0, room)
}

// Seconds is what a request of work 1 spends in engine e at a load, given what that
// is worth.
func (t *Table) Seconds(e int32, load, worth float64) float64 {
	if t.plain[e] {
		return worth
	}
	return latency.New(t.Engines[e].Profile).Latency(load)
}

// Load is engine e's load in work/s, of flows in requests/s by element of Serving.
func (t *Table) Load(e int32, flow []float64) float64 {
	u := 0.0
	at := t.ServesAt(e)
	for j, m := range t.Serves(e) {
		u += flow[at[j]] * t.Work[m]
	}
	return u
}

// Excess is by how much, relatively, flows in requests/s by element of Serving break
// the limits of engine e that are not part of its cap; negative where they do not.
func (t *Table) Excess(e int32, flow []float64) float64 {
	excess := -1.0
	for r := range t.Limits {
		limit := t.Limits[r][e]
		if limit == 0 {
			continue
		}
		used, at := 0.0, t.ServesAt(e)
		for j, m := range t.Serves(e) {
			used += flow[at[j]] * t.Work[m] * t.Holds[r][m]
		}
		excess = max(excess, used/limit-1)
	}
	return excess
}
