package fleet

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func view() *View {
	return &View{
		Clusters:  []Cluster{{Name: "a", Region: "r"}},
		Engines:   []Engine{{Name: "e", Region: "r", Models: []string{"m"}, Profile: Profile{T0: 1, UMax: 10, Batch: 8, Kappa: 0.9}}},
		Demands:   []Demand{{Cluster: "a", Model: "m", Rate: 1}},
		Distances: []Distance{{Cluster: "a", Region: "r", Seconds: 0.01}},
	}
}

// TestViewErrorsNameTheField breaks a valid view in every way there is.
func TestViewErrorsNameTheField(t *testing.T) {
	require.NoError(t, view().Validate())
	whole := view()
	whole.Engines[0].Profile.FirstToken, whole.Engines[0].Profile.Spread = 1, MaxSpread
	require.NoError(t, whole.Validate(), "the ends of the ranges are in them")
	for want, mutate := range map[string]func(*View){
		"clusters[0]: no name":                    func(v *View) { v.Clusters[0].Name = "" },
		`clusters[1]: "a" is there twice`:         func(v *View) { v.Clusters = append(v.Clusters, v.Clusters[0]) },
		"engines[0]: no name":                     func(v *View) { v.Engines[0].Name = "" },
		`engines[1]: "e" is there twice`:          func(v *View) { v.Engines = append(v.Engines, v.Engines[0]) },
		"models: none":                            func(v *View) { v.Engines[0].Models = nil },
		`models: "m" is empty or there twice`:     func(v *View) { v.Engines[0].Models = []string{"m", "m"} },
		"profile.t0: NaN":                         func(v *View) { v.Engines[0].Profile.T0 = math.NaN() },
		"profile.u_max: +Inf":                     func(v *View) { v.Engines[0].Profile.UMax = math.Inf(1) },
		"profile.batch: 0":                        func(v *View) { v.Engines[0].Profile.Batch = 0 },
		"profile.kappa: 1 is not in (0, 0.95]":    func(v *View) { v.Engines[0].Profile.Kappa = 1 },
		"penalty: -1":                             func(v *View) { v.Engines[0].Penalty = -1 },
		"ramp: 1.5 is not in [0, 1]":              func(v *View) { v.Engines[0].Ramp = 1.5 },
		"profile.first_token: 2 is not in [0, 1]": func(v *View) { v.Engines[0].Profile.FirstToken = 2 },
		"profile.first_token: NaN":                func(v *View) { v.Engines[0].Profile.FirstToken = math.NaN() },
		"profile.spread: 11 is not in [0, 10]":    func(v *View) { v.Engines[0].Profile.Spread = 11 },
		"profile.spread: -1":                      func(v *View) { v.Engines[0].Profile.Spread = -1 },
		"profile.tokens: -1":                      func(v *View) { v.Engines[0].Profile.Tokens = -1 },
		"profile.slots: NaN":                      func(v *View) { v.Engines[0].Profile.Slots = math.NaN() },
		`models[0]: "" is empty`:                  func(v *View) { v.Models = []Model{{}} },
		"models[0]: work: -1":                     func(v *View) { v.Models = []Model{{Name: "m", Work: -1}} },
		"models[0]: work: 1e-09 is not":           func(v *View) { v.Models = []Model{{Name: "m", Work: 1e-9}} },
		"models[0]: token_seconds: 1e+16 is not":  func(v *View) { v.Models = []Model{{Name: "m", TokenSeconds: 1e16}} },
		"models[0]: first_token: NaN":             func(v *View) { v.Models = []Model{{Name: "m", FirstToken: math.NaN()}} },
		"models[0]: decode: 2e+06 is not":         func(v *View) { v.Models = []Model{{Name: "m", Decode: 2e6}} },
		"models[0]: token_seconds: -1":            func(v *View) { v.Models = []Model{{Name: "m", TokenSeconds: -1}} },
		"models[0]: slot_seconds: NaN":            func(v *View) { v.Models = []Model{{Name: "m", SlotSeconds: math.NaN()}} },
		`engine "e" is in region "r", not "s"`: func(v *View) {
			v.Distances = append(v.Distances, Distance{Cluster: "a", Region: "s", Engine: "e"})
		},
		`distances[2]: "a" to "e" is there twice`: func(v *View) {
			d := Distance{Cluster: "a", Region: "r", Engine: "e"}
			v.Distances = append(v.Distances, d, d)
		},
		"offset: NaN":                                   func(v *View) { v.Engines[0].Offset = math.NaN() },
		"weight: -1":                                    func(v *View) { v.Engines[0].Weight = -1 },
		`none from cluster "a" to region "s"`:           func(v *View) { v.Engines[0].Region = "s" },
		`distances[0]: unknown cluster "b"`:             func(v *View) { v.Distances[0].Cluster = "b" },
		`distances[1]: "a" to "r" is there twice`:       func(v *View) { v.Distances = append(v.Distances, v.Distances[0]) },
		"distances[0]: seconds: -1":                     func(v *View) { v.Distances[0].Seconds = -1 },
		`demand[0]: unknown cluster "b"`:                func(v *View) { v.Demands[0].Cluster = "b" },
		"demand[0]: no model":                           func(v *View) { v.Demands[0].Model = "" },
		"demand[0]: unknown priority 9":                 func(v *View) { v.Demands[0].Priority = 9 },
		`demand[1]: critical of "m" at "a" is there tw`: func(v *View) { v.Demands = append(v.Demands, v.Demands[0]) },
		"demand[0]: rate: +Inf":                         func(v *View) { v.Demands[0].Rate = math.Inf(1) },
	} {
		v := view()
		mutate(v)
		require.ErrorContains(t, v.Validate(), want)
	}
}

func TestSnapshotValidation(t *testing.T) {
	good := func() *Snapshot {
		return &Snapshot{Cluster: "a", Engines: []SnapshotEngine{{Name: "e"}}, Rows: []SnapshotRow{{Model: "m", Targets: []Target{{Weight: 1, Predicted: 1}}}}}
	}
	require.NoError(t, good().Validate())
	for want, mutate := range map[string]func(*Snapshot){
		"no cluster":       func(s *Snapshot) { s.Cluster = "" },
		"unknown engine 1": func(s *Snapshot) { s.Rows[0].Targets[0].Engine = 1 },
		"add up to 0":      func(s *Snapshot) { s.Rows[0].Targets[0].Weight = 0 },
		"weight: NaN":      func(s *Snapshot) { s.Rows[0].Targets[0].Weight = math.NaN() },
		"predicted: -1":    func(s *Snapshot) { s.Rows[0].Targets[0].Predicted = -1 },
		"network: NaN":     func(s *Snapshot) { s.Rows[0].Targets[0].Network = math.NaN() },
		"shed: NaN":        func(s *Snapshot) { s.Rows[0].Shed[1] = math.NaN() },
		"utilisation: NaN": func(s *Snapshot) { s.Rows[0].Utilisation = math.NaN() },
		"not sorted":       func(s *Snapshot) { s.Rows = append(s.Rows, s.Rows[0]) },
	} {
		s := good()
		mutate(s)
		require.ErrorContains(t, s.Validate(), want)
	}
}

func TestPriorityNames(t *testing.T) {
	for k := range NumPriorities {
		b, err := Priority(k).MarshalText()
		require.NoError(t, err)
		var p Priority
		require.NoError(t, p.UnmarshalText(b))
		require.Equal(t, Priority(k), p)
	}
	_, err := ParsePriority("high")
	require.ErrorContains(t, err, "want critical, standard or batch")
	require.Equal(t, "priority(9)", Priority(9).String())
}

func TestTermsAddUp(t *testing.T) {
	p := &Plan{
		Engines: []EngineLoad{{Name: "e", Latency: 1, Congestion: 2, Cap: 3, Penalty: 4}},
		Rows:    []Row{{Cluster: "a", Model: "m", Demand: [3]float64{1, 2, 4}, Shed: [3]float64{0, 0.5, 1}, Arcs: []Arc{{Network: 5, Churn: 6}}}},
	}
	require.Equal(t, 21.0, p.Terms(&p.Rows[0], p.Rows[0].Arcs[0]).Total)
	require.Equal(t, 10.0, p.Engines[0].Price())
	require.Equal(t, 2.0, p.Row("a", "m").Admitted())
	require.Nil(t, p.Row("a", "n"))
}

// TestUsed: what is left says the same of the arcs in use, and changes nothing of the plan.
func TestUsed(t *testing.T) {
	p := &Plan{Engines: []EngineLoad{{Name: "a"}, {Name: "b"}}, Rows: []Row{
		{Cluster: "x", Arcs: []Arc{{Engine: 0}, {Engine: 1, Weight: 1}}},
		{Cluster: "y"},
		{Cluster: "z", Arcs: []Arc{{Engine: 0, Weight: 0.5}, {Engine: 1, Weight: 0.5}}},
	}}
	used := p.Used()
	require.Equal(t, []Arc{{Engine: 1, Weight: 1}}, used.Rows[0].Arcs)
	require.Empty(t, used.Rows[1].Arcs)
	require.Equal(t, p.Rows[2].Arcs, used.Rows[2].Arcs)
	used.Rows[2].Arcs[0].Weight, used.Engines[0].Name, used.Rows[0].Cluster = 7, "c", "w"
	require.Equal(t, 0.5, p.Rows[2].Arcs[0].Weight)
	require.Equal(t, "a", p.Engines[0].Name)
	require.Equal(t, "x", p.Rows[0].Cluster)
	require.Len(t, p.Rows[0].Arcs, 2)
}
