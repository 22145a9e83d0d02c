package history

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/suppose"
)

// other is another member's history, and what goes wrong with it.
type other struct {
	*History
	asked []([2]uint64)
	spoil func(raw []byte) []byte
}

func (o *other) PlansFrom(_ context.Context, from [2]uint64) ([]Entry, error) {
	return o.From(from), nil
}

func (o *other) Record(_ context.Context, epoch, version uint64, w io.Writer) error {
	o.asked = append(o.asked, [2]uint64{epoch, version})
	packed, err := o.Packed(epoch, version)
	if err != nil {
		return err
	}
	defer func() { _ = packed.Close() }()
	raw, err := io.ReadAll(packed)
	if o.spoil != nil {
		raw = o.spoil(raw)
	}
	if err == nil {
		_, err = w.Write(raw)
	}
	return err
}

func open(t testing.TB, dir string, limit int64, records ...*suppose.Record) *History {
	t.Helper()
	h, err := Open(dir, limit)
	require.NoError(t, err)
	for _, r := range records {
		require.NoError(t, h.Add(r))
	}
	return h
}

func TestFollowTakesInWhatIsMissing(t *testing.T) {
	for name, dir := range map[string]func() string{"on disk": t.TempDir, "in memory": func() string { return "" }} {
		t.Run(name, func(t *testing.T) {
			leader := &other{History: open(t, dir(), 1<<20, record(t, 1, 1, 10), record(t, 1, 2, 20), record(t, 1, 3, 30))}
			mine := dir()
			h := open(t, mine, 1<<20, record(t, 1, 2, 20), record(t, 2, 1, 40))
			newest, err := h.Follow(t.Context(), [2]uint64{}, leader)
			require.NoError(t, err)
			require.Equal(t, [2]uint64{1, 3}, newest)
			require.ElementsMatch(t, [][2]uint64{{1, 1}, {1, 3}}, leader.asked, "what is here is not asked for")
			if mine != "" {
				h = open(t, mine, 1<<20)
			}
			list, err := h.Span([2]uint64{1, 1}, [2]uint64{2, 1})
			require.NoError(t, err)
			require.Len(t, list, 4)
			want := slim(record(t, 1, 3, 30))
			require.Equal(t, want.Plan.Rows, list[2].Plan.Rows)
			require.Equal(t, want.View, list[2].View)

			leader.asked = nil
			again := record(t, 1, 3, 30)
			again.Revision, again.Hold = 1, "held since"
			require.NoError(t, leader.Add(again))
			newest, err = h.Follow(t.Context(), newest, leader)
			require.NoError(t, err)
			require.Equal(t, [2]uint64{1, 3}, newest)
			require.Equal(t, [][2]uint64{{1, 3}}, leader.asked, "it has been made anew")
			list, err = h.Span([2]uint64{1, 3}, [2]uint64{1, 3})
			require.NoError(t, err)
			require.Equal(t, "held since", list[0].Hold)
		})
	}
}

// TestFollowKeepsToTheSpace: what would only be forgotten again is not fetched, however often.
func TestFollowKeepsToTheSpace(t *testing.T) {
	leader := &other{History: open(t, t.TempDir(), 1<<20)}
	for v := range uint64(20) {
		require.NoError(t, leader.Add(record(t, 1, v+1, 10)))
	}
	size := leader.Entries()[0].Bytes
	h := open(t, t.TempDir(), 5*size+size/2)
	for range 3 {
		_, err := h.Follow(t.Context(), [2]uint64{}, leader)
		require.NoError(t, err)
		require.LessOrEqual(t, h.bytes, h.limit)
	}
	require.Equal(t, uint64(20), h.Entries()[len(h.Entries())-1].Version)
	require.Len(t, leader.asked, 5)
	require.Len(t, h.Entries(), 5)

	old := record(t, 1, 1, 10)
	old.Time = at.Add(-25 * time.Hour)
	leader = &other{History: &History{entries: []Entry{entryOf(old), entryOf(record(t, 1, 2, 10))}}}
	leader.entries[0].record, leader.entries[1].record = old, record(t, 1, 2, 10)
	h = open(t, "", 0)
	_, err := h.Follow(t.Context(), [2]uint64{}, leader)
	require.NoError(t, err)
	require.Equal(t, [][2]uint64{{1, 2}}, leader.asked, "the other is more than a day older")
}

// TestFollowTakesNothingSpoilt: whatever becomes of the bytes on the way, what is kept is whole.
func TestFollowTakesNothingSpoilt(t *testing.T) {
	leader := &other{History: open(t, "", 0, record(t, 1, 1, 10), record(t, 1, 2, 20))}
	good, err := leader.Packed(1, 2)
	require.NoError(t, err)
	raw, err := io.ReadAll(good)
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.IntRange(0, len(raw)-1).Draw(t, "at") // of both: about as long
		leader.spoil = func(raw []byte) []byte {
			if rapid.Bool().Draw(t, "cut") {
				return raw[:min(at, len(raw)-1)]
			}
			raw = bytes.Clone(raw)
			raw[min(at, len(raw)-1)] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
			return raw
		}
		h, err := Open("", 0)
		require.NoError(t, err)
		_, err = h.Follow(context.Background(), [2]uint64{}, leader)
		for _, e := range h.Entries() { // a header's time may differ, and all else not
			require.Contains(t, []float64{10, 20}, e.record.View.Demands[0].Rate)
			require.InDelta(t, 10*e.Version, e.record.View.Demands[0].Rate, 0)
		}
		if err == nil {
			require.Len(t, h.Entries(), 2)
		}
	})
	leader.spoil = func([]byte) []byte { return make([]byte, maxPacked+1) }
	_, err = open(t, "", 0).Follow(t.Context(), [2]uint64{}, leader)
	require.ErrorContains(t, err, "plan 1.2: it has more than")
	_, err = leader.Packed(3, 1)
	require.ErrorIs(t, err, ErrGone)
	_, err = open(t, "", 0).Follow(t.Context(), [2]uint64{}, silent{})
	require.ErrorIs(t, err, errSilent)
}

var errSilent = errors.New("it does not answer")

type silent struct{ Source }

func (silent) PlansFrom(context.Context, [2]uint64) ([]Entry, error) { return nil, errSilent }
