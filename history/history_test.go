package history

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy/optimal"
	"github.com/wardrop-lb/wardrop/suppose"
)

var at = time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)

func record(t testing.TB, epoch, version uint64, rate float64) *suppose.Record {
	t.Helper()
	v := &fleet.View{
		Time:     at,
		Clusters: []fleet.Cluster{{Name: "a", Region: "r"}},
		Engines: []fleet.Engine{
			{Name: "e", Region: "r", Models: []string{"m"}, Profile: fleet.Profile{T0: 1, UMax: 100, Batch: 100, Kappa: 0.9}},
			{Name: "far", Region: "s", Models: []string{"m"}, Profile: fleet.Profile{T0: 1, UMax: 100, Batch: 100, Kappa: 0.9}},
		},
		Demands:   []fleet.Demand{{Cluster: "a", Model: "m", Rate: rate}},
		Distances: []fleet.Distance{{Cluster: "a", Region: "r"}, {Cluster: "a", Region: "s", Seconds: 9}},
	}
	p, err := optimal.New(optimal.Options{}).Plan(v, nil)
	require.NoError(t, err)
	return &suppose.Record{
		Epoch: epoch, Version: version, Time: at.Add(time.Duration(version) * time.Second), View: v, Plan: p,
		Settings: "s", Overrides: map[string]string{"drain/x": ""}, Hold: "h",
	}
}

func TestRecordsSurvive(t *testing.T) {
	for name, dir := range map[string]string{"on disk": filepath.Join(t.TempDir(), "sub"), "in memory": ""} {
		t.Run(name, func(t *testing.T) {
			h, err := Open(dir, 1<<20)
			require.NoError(t, err)
			_, err = h.Span([2]uint64{1, 1}, [2]uint64{1, 2})
			require.ErrorIs(t, err, ErrGone)
			require.ErrorContains(t, err, "none is recorded yet")
			for _, x := range [][2]uint64{{1, 1}, {1, 2}, {2, 1}, {1, 10}} { // in any order
				require.NoError(t, h.Add(record(t, x[0], x[1], 10)))
			}
			if dir != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "1-1-x.json.gz"), nil, 0o600))
				h, err = Open(dir, 1<<20)
				require.NoError(t, err)
			}
			require.Len(t, h.Entries(), 4)
			list, err := h.Span([2]uint64{1, 2}, [2]uint64{2, 1})
			require.NoError(t, err)
			require.Len(t, list, 3)
			want := record(t, 1, 10, 10)
			require.Equal(t, want.View, list[1].View)
			require.Equal(t, want.Overrides, list[1].Overrides)
			require.Equal(t, "s h", list[1].Settings+" "+list[1].Hold)
			require.True(t, want.Time.Equal(list[1].Time))
			require.Equal(t, want.Plan.Rows[0].Arcs[0], list[1].Plan.Rows[0].Arcs[0])
			if dir != "" {
				require.Len(t, list[1].Plan.Rows[0].Arcs, 1, "what is not used is not kept")
			}
			_, err = h.Span([2]uint64{1, 3}, [2]uint64{2, 1})
			require.ErrorContains(t, err, "1.3; there are 1.1 to 2.1")
			_, err = h.Span([2]uint64{2, 1}, [2]uint64{1, 1})
			require.ErrorContains(t, err, "2.1 is after 1.1")
		})
	}
}

// TestARecordIsMadeAnew: the one of the highest revision is kept, in whatever order they come.
func TestARecordIsMadeAnew(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 0, 1}} {
		for _, dir := range []string{t.TempDir(), ""} {
			h, err := Open(dir, 1<<20)
			require.NoError(t, err)
			for _, revision := range order {
				r := record(t, 1, 1, 10)
				r.Revision, r.Hold = revision, strings.Repeat("x", revision)
				require.NoError(t, h.Add(r))
			}
			if dir != "" {
				files, err := os.ReadDir(dir)
				require.NoError(t, err)
				require.Len(t, files, 1)
				info, err := files[0].Info()
				require.NoError(t, err)
				require.Equal(t, info.Size(), h.bytes)
				h, err = Open(dir, 1<<20)
				require.NoError(t, err)
				require.Equal(t, info.Size(), h.bytes)
			}
			require.Len(t, h.Entries(), 1)
			list, err := h.Span([2]uint64{1, 1}, [2]uint64{1, 1})
			require.NoError(t, err)
			require.Equal(t, "xx", list[0].Hold)
		}
	}
}

func TestSpaceIsBounded(t *testing.T) {
	dir := t.TempDir()
	h, err := Open(dir, 4096)
	require.NoError(t, err)
	for v := range uint64(30) {
		require.NoError(t, h.Add(record(t, 1, v+1, 10)))
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	total := int64(0)
	for _, f := range files {
		info, err := os.Stat(f)
		require.NoError(t, err)
		total += info.Size()
	}
	require.LessOrEqual(t, total, int64(4096))
	require.Greater(t, len(files), 1)
	require.Len(t, h.Entries(), len(files))
	require.Equal(t, uint64(30), h.Entries()[len(files)-1].Version, "the newest stay")

	old := record(t, 1, 31, 10)
	old.Time = at.Add(25 * time.Hour)
	require.NoError(t, h.Add(old))
	require.Len(t, h.Entries(), 1, "the others are more than a day older")

	memory, err := Open("", 1)
	require.NoError(t, err)
	for v := range uint64(200) {
		require.NoError(t, memory.Add(record(t, 1, v+1, 10)))
	}
	require.Len(t, memory.Entries(), inMemory)
}

func TestSpoiltRecords(t *testing.T) {
	dir := t.TempDir()
	h, err := Open(dir, 1<<20)
	require.NoError(t, err)
	require.NoError(t, h.Add(record(t, 1, 1, 10)))
	file := filepath.Join(dir, h.entries[0].name())
	require.NoError(t, os.WriteFile(file, []byte("not packed"), 0o600))
	_, err = h.Span([2]uint64{1, 1}, [2]uint64{1, 1})
	require.ErrorContains(t, err, "plan 1.1: gzip: invalid header")
	for _, bad := range []string{"", "{", "{}", `{"View":{},"Plan":{"Rows":[{"Arcs":[{"Engine":1}]}]}}`, `{"View":{"Engines":[{}]},"Plan":{}}`} {
		_, err := decode(strings.NewReader(bad))
		require.Error(t, err, bad)
	}
	_, err = Open("/dev/null/x", 1)
	require.Error(t, err)
}

func FuzzDecode(f *testing.F) {
	f.Add(`{"View":{},"Plan":{}}`)
	f.Add(`{"View":{"Clusters":[{"Name":"a"}]},"Plan":{"Rows":[{"Arcs":[{"Engine":-1}]}]}}`)
	f.Fuzz(func(t *testing.T, data string) {
		if r, err := decode(strings.NewReader(data)); err == nil {
			require.NoError(t, r.View.Validate())
		}
	})
}

func TestParse(t *testing.T) {
	got, err := Parse("3.17")
	require.NoError(t, err)
	require.Equal(t, [2]uint64{3, 17}, got)
	for _, bad := range []string{"", "3", "3.", ".3", "3.17.1", "-1.2", "3.17x", "3 .17"} {
		_, err := Parse(bad)
		require.Error(t, err, bad)
	}
}
