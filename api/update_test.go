package api

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
)

// drawTable is some of ten engines, sorted by name.
func drawTable(t *rapid.T) (out []fleet.SnapshotEngine) {
	for i := range 10 {
		if !rapid.Bool().Draw(t, "there") {
			continue
		}
		out = append(out, fleet.SnapshotEngine{
			Name: fmt.Sprintf("e%d", i), Region: "r", URL: "http://x", Kind: rapid.SampledFrom([]string{"vllm", "generic"}).Draw(t, "kind"),
			Capacity: rapid.SampledFrom([]float64{1, 2.5}).Draw(t, "capacity"),
			Names:    rapid.SampledFrom([]map[string][]string{nil, {"running": {"a", "b"}, "waiting": {"c"}}}).Draw(t, "names"),
		})
	}
	return out
}

// number draws floats of all kinds, few of them, so that some stay the same.
func number(t *rapid.T) float64 {
	return rapid.OneOf(
		rapid.SampledFrom([]float64{0, 1, 1.0 / 3, 0.25, math.Copysign(0, -1), math.MaxFloat64, math.SmallestNonzeroFloat64, math.Inf(1)}),
		rapid.Float64(),
	).Draw(t, "number")
}

func drawRow(t *rapid.T, engines int) fleet.SnapshotRow {
	r := fleet.SnapshotRow{Model: "m", Utilisation: number(t), Shed: [3]float64{number(t), 0, 0}}
	for i := range engines {
		if rapid.IntRange(0, 3).Draw(t, "target") > 0 {
			r.Targets = append(r.Targets, fleet.Target{Engine: int32(i), Weight: number(t), Predicted: number(t), Network: 0.25, Limit: number(t)})
		}
	}
	if rapid.IntRange(0, 9).Draw(t, "order") == 0 { // nobody promises it
		slices.Reverse(r.Targets)
	}
	return r
}

// over sends an update over the wire.
func over(t require.TestingT, u *pb.Update) *pb.Update {
	b, err := proto.Marshal(u)
	require.NoError(t, err)
	out := &pb.Update{}
	require.NoError(t, proto.Unmarshal(b, out))
	return out
}

// bits are a row's numbers as they are: NaN is NaN, and -0 is not 0.
func bits(r fleet.SnapshotRow) string {
	var b strings.Builder
	fmt.Fprint(&b, r.Model, math.Float64bits(r.Utilisation), math.Float64bits(r.Shed[0]), r.Shed[1:])
	for _, t := range r.Targets {
		fmt.Fprintf(&b, " %d", t.Engine)
		for _, of := range columns {
			fmt.Fprintf(&b, ":%x", math.Float64bits(*of(&t)))
		}
	}
	return b.String()
}

// TestUpdatesLoseNothing: whatever a table and a row were and are, whole or as a change, what
// arrives is what was sent, to the bit, and its digest says so.
func TestUpdatesLoseNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		was, is := drawTable(t), drawTable(t)
		whole, err := DecodeEngines(nil, over(t, EncodeEngines(is)))
		require.NoError(t, err)
		require.ElementsMatch(t, is, whole)
		changed, err := DecodeEngines(was, over(t, EncodeEnginesChange(was, is, EnginesDigest(was)|1)))
		require.NoError(t, err)
		require.Equal(t, whole, changed)
		require.Equal(t, EnginesDigest(is), EnginesDigest(changed))

		before, row := drawRow(t, len(was)), drawRow(t, len(is))
		got, err := DecodeRow(nil, "m", len(is), over(t, EncodeRow(&row)))
		require.NoError(t, err)
		require.Equal(t, bits(row), bits(got))
		require.Equal(t, RowDigest(is, &row), RowDigest(is, &got))

		kept := bits(before)
		moved := RenumberRow(before, Renumber(was, is))
		u := EncodeRowChange(&moved, &row, 1)
		if u == nil {
			require.Empty(t, row.Targets)
			return
		}
		got, err = DecodeRow(&moved, "m", len(is), over(t, u))
		require.NoError(t, err)
		require.Equal(t, bits(row), bits(got))
		require.Equal(t, kept, bits(before), "what was is not touched")
	})
}

// TestDigestsTellApart what differs in anything, and nothing else.
func TestDigestsTellApart(t *testing.T) {
	table := []fleet.SnapshotEngine{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	row := func() *fleet.SnapshotRow {
		return &fleet.SnapshotRow{Model: "m", Targets: []fleet.Target{{Engine: 1, Weight: 0.5}, {Engine: 2, Weight: 0.5}}}
	}
	seen := map[uint64]string{RowDigest(table, row()): "itself"}
	for name, change := range map[string]func(*fleet.SnapshotRow){
		"model": func(r *fleet.SnapshotRow) { r.Model = "n" }, "utilisation": func(r *fleet.SnapshotRow) { r.Utilisation = 1 },
		"shed": func(r *fleet.SnapshotRow) { r.Shed[2] = 1 }, "engine": func(r *fleet.SnapshotRow) { r.Targets[0].Engine = 0 },
		"weight": func(r *fleet.SnapshotRow) { r.Targets[0].Weight = math.Nextafter(0.5, 1) }, "limit": func(r *fleet.SnapshotRow) { r.Targets[0].Limit = 4 },
		"network": func(r *fleet.SnapshotRow) { r.Targets[0].Network = 4 }, "predicted": func(r *fleet.SnapshotRow) { r.Targets[0].Predicted = 4 },
		"fewer": func(r *fleet.SnapshotRow) { r.Targets = r.Targets[:1] },
	} {
		r := row()
		change(r)
		d := RowDigest(table, r)
		require.NotContains(t, seen, d, name)
		seen[d] = name
	}
	moved := RenumberRow(*row(), Renumber(table, table[1:]))
	require.Equal(t, RowDigest(table, row()), RowDigest(table[1:], &moved), "where an engine stands does not matter")
	require.NotEqual(t, EnginesDigest(table), EnginesDigest(table[1:]))
	long := []fleet.SnapshotEngine{{Name: strings.Repeat("x", 5000)}}
	other := []fleet.SnapshotEngine{{Name: strings.Repeat("x", 4999) + "y"}}
	require.NotEqual(t, EnginesDigest(long), EnginesDigest(other))
}

func TestPartNames(t *testing.T) {
	engines, _, _ := SplitPart(EnginesPart(1))
	require.True(t, engines)
	engines, cluster, model := SplitPart(RowPart("a/b", "c/d"))
	require.Equal(t, []any{false, "a/b", "c/d"}, []any{engines, cluster, model})
	engines, cluster, model = SplitPart("engines")
	require.Equal(t, []any{false, "engines", ""}, []any{engines, cluster, model}, "a cluster may be called so")
}

// TestDecodeRefusesUpdates that fit nothing.
func TestDecodeRefusesUpdates(t *testing.T) {
	row := &fleet.SnapshotRow{Model: "m", Targets: []fleet.Target{{Engine: 0, Weight: 1}, {Engine: 1}}}
	for name, u := range map[string]*pb.Update{
		"nothing":              {},
		"an engine table":      EncodeEngines(nil),
		"a place too far":      {Row: &pb.Columns{Engines: []int32{5}}},
		"a place before all":   {Row: &pb.Columns{Engines: []int32{1, -2}}},
		"priorities":           {Since: 1, Row: &pb.Columns{Shed: []float64{1}}},
		"a target too far":     {Since: 1, Row: &pb.Columns{Weight: &pb.Column{At: []uint32{2}, Values: []float64{1}}}},
		"a target far too far": {Since: 1, Row: &pb.Columns{Weight: &pb.Column{At: []uint32{1, math.MaxUint32}, Values: []float64{1, 1}}}},
		"values too few":       {Since: 1, Row: &pb.Columns{Limit: &pb.Column{At: []uint32{0, 1}, Narrow: []float32{1}}}},
		"values too many":      {Since: 1, Row: &pb.Columns{Limit: &pb.Column{Narrow: []float32{1, 2, 3}}}},
		"no values":            {Since: 1, Row: &pb.Columns{Limit: &pb.Column{}}},
		"values of both kinds": {Since: 1, Row: &pb.Columns{Limit: &pb.Column{Narrow: []float32{1}, Values: []float64{1}}}},
	} {
		_, err := DecodeRow(row, "m", 3, u)
		require.Error(t, err, name)
	}
	_, err := DecodeRow(nil, "m", 3, &pb.Update{Since: 1, Row: &pb.Columns{}})
	require.Error(t, err, "since what")
	gone := RenumberRow(*row, []int32{0, -1})
	_, err = DecodeRow(&gone, "m", 3, &pb.Update{Since: 1, Row: &pb.Columns{}})
	require.ErrorContains(t, err, "gone")
	_, err = DecodeEngines(nil, &pb.Update{Row: &pb.Columns{}})
	require.Error(t, err)
	_, err = DecodeEngines([]fleet.SnapshotEngine{{Name: "b"}, {Name: "a"}}, &pb.Update{Since: 1, Engines: &pb.EngineTable{}})
	require.ErrorContains(t, err, "not sorted")
}

// FuzzUpdate: whatever decodes as an update refers to engines that are there.
func FuzzUpdate(f *testing.F) {
	old := fleet.SnapshotRow{Model: "m", Targets: []fleet.Target{{Engine: 0, Weight: 0.5}, {Engine: 2, Weight: 0.5}}}
	r := fleet.SnapshotRow{Model: "m", Targets: []fleet.Target{{Engine: 0, Weight: 0.25}, {Engine: 1, Weight: 0.75, Limit: 4}}}
	for _, u := range []*pb.Update{EncodeRow(&r), EncodeRowChange(&old, &r, 1)} {
		b, _ := proto.Marshal(u)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		u := &pb.Update{}
		if proto.Unmarshal(data, u) != nil {
			return
		}
		got, err := DecodeRow(&old, "m", 3, u)
		if err != nil {
			return
		}
		for _, x := range got.Targets {
			if x.Engine < 0 || x.Engine >= 3 {
				t.Fatal("an engine that is not there")
			}
		}
		_, _ = DecodeEngines([]fleet.SnapshotEngine{{Name: "a"}}, u)
	})
}

// TestSpoken: ends that are one apart speak the lower wire, others not.
func TestSpoken(t *testing.T) {
	for _, c := range []struct{ own, other, want int }{{2, 2, 2}, {2, 1, 1}, {2, 0, 1}, {1, 2, 1}, {2, 3, 2}, {3, 2, 2}, {1, 0, 1}} {
		got, err := Spoken(c.own, c.other)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	_, err := Spoken(2, 4)
	require.EqualError(t, err, "one end speaks wire 4 and this one 2: they must not be more than one apart")
	_, err = Spoken(3, 0)
	require.EqualError(t, err, "one end speaks wire 1 and this one 3: they must not be more than one apart")
}
