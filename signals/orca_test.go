package signals

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestORCA(t *testing.T) {
	both := Values{KVUsage: Some(.4), Waiting: Some(3)}
	for header, want := range map[string]Values{
		"TEXT named_metrics.kv_cache_usage_perc=0.4, named_metrics.num_requests_waiting=3.0":               both,
		`JSON {"named_metrics": {"kv_cache_usage_perc": 0.4, "num_requests_waiting": 3.0}}`:                both,
		"named_metrics.kv_cache_usage_perc=0.4,named_metrics.num_requests_waiting=3.0":                     both, // vLLM's frontend in Rust
		`{"named_metrics":{"kv_cache_usage_perc":0.4,"num_requests_waiting":3.0}}`:                         both,
		"text  num_requests_waiting = 3 ,named_metrics.kv_cache_usage_perc=0.4,":                           both,
		`json {"cpu_utilization":0.5,"namedMetrics":{"kv_cache_usage_perc":0.4,"num_requests_waiting":3}}`: both,
		"TEXT cpu_utilization=0.3, rps_fractional=10.0, named_metrics.num_requests_running=7":              {Running: Some(7)},
		`JSON {"named_metrics":{"kv_cache_utilization":1.0,"max_token_capacity":4096}}`:                    {KVUsage: Some(1), KVTokens: Some(4096)}, // Triton
		"TEXT kv_cache_usage_perc=0.2, kv_cache_usage_perc=0.6, kv_cache_usage_perc=0.4":                   {KVUsage: Some(.6)},
		`JSON {"named_metrics":{"kv_cache_usage_perc":"0.4","num_requests_waiting":3}}`:                    {Waiting: Some(3)},
		"TEXT kv_cache_usage_perc=NaN, num_requests_waiting=1, x=, =3":                                     {Waiting: Some(1)},
		"TEXT kv_cache_usage_perc=40, num_requests_waiting=-1, num_requests_running=2":                     {Running: Some(2)},
	} {
		v, err := ParseORCA(header)
		require.NoError(t, err, header)
		require.Equal(t, want, v, header)
	}
	for header, want := range map[string]error{
		"": errORCAFormat, "BIN CgQ=": errORCAFormat, "hello": errORCAFormat, "JSON": errORCAFormat,
		"TEXT ": errORCAFormat, "TEXT cpu_utilization=1": errORCANothing, "JSON {": errORCANothing, "JSON []": errORCANothing,
		`JSON {"named_metrics":[1]}`: errORCANothing, "TEXT kv_cache_usage_perc=+Inf": errORCANothing,
		"TEXT " + strings.Repeat("a=1,", 2000) + "num_requests_waiting=1": errORCATooLong,
	} {
		v, err := ParseORCA(header)
		require.ErrorIs(t, err, want, header)
		require.Zero(t, v)
	}
}

// TestInBandReportsOnlyAddNews: whatever the order in which readings and reports
// come, the newest counts, nothing known becomes absent, and no signal that was
// given away changes.
func TestInBandReportsOnlyAddNews(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := time.Unix(1.8e9, 0)
		opt := rapid.Custom(func(t *rapid.T) Opt {
			if rapid.Bool().Draw(t, "absent") {
				return Opt{}
			}
			return Some(float64(rapid.IntRange(0, 9).Draw(t, "value")))
		})
		reading := &Signal{Engine: "e", Incarnation: 7, Sequence: 3, Time: base, Values: Values{Running: opt.Draw(t, "r"), Waiting: opt.Draw(t, "w"), Progress: Some(5)}}
		given := *reading
		st := State{Engine: "e", Signal: reading}
		newest, want := base, given.Values
		for range rapid.IntRange(1, 6).Draw(t, "reports") {
			at := base.Add(time.Duration(rapid.IntRange(-3, 9).Draw(t, "at")) * time.Second)
			report := Values{Running: opt.Draw(t, "r"), Waiting: opt.Draw(t, "w"), KVUsage: opt.Draw(t, "kv")}
			if !at.Before(newest) && report != (Values{}) {
				newest = at
				for _, f := range []struct {
					to   *Opt
					from Opt
				}{{&want.Running, report.Running}, {&want.Waiting, report.Waiting}, {&want.KVUsage, report.KVUsage}} {
					if f.from.Known {
						*f.to = f.from
					}
				}
			}
			before := *st.Signal
			pointer := st.Signal
			st = st.InBand(report, at)
			require.Equal(t, before, *pointer)
			require.Equal(t, want, st.Signal.Values)
			require.Equal(t, [3]any{base, uint64(7), uint64(3)}, [3]any{st.Signal.Time, st.Signal.Incarnation, st.Signal.Sequence})
		}
		require.Equal(t, given, *reading)
	})
}

func TestInBandBeforeAnyReadingAndOfManyRanks(t *testing.T) {
	now := time.Unix(1.8e9, 0)
	st := State{Engine: "e", Err: "unreachable"}.InBand(Values{Waiting: Some(2)}, now)
	require.Equal(t, &Signal{Engine: "e", Time: now, InBand: now, Values: Values{Waiting: Some(2)}}, st.Signal)
	require.Nil(t, State{Engine: "e"}.InBand(Values{}, now).Signal)
	ranks := State{Engine: "e", Ranks: 2, Signal: &Signal{Values: Values{Waiting: Some(8)}}}
	require.Equal(t, ranks, ranks.InBand(Values{Waiting: Some(1)}, now), "the report is the first rank's")
}

func FuzzORCA(f *testing.F) {
	f.Add("TEXT named_metrics.kv_cache_usage_perc=0.4, named_metrics.num_requests_waiting=3.0")
	f.Add(`JSON {"named_metrics": {"kv_cache_usage_perc": 0.4, "num_requests_waiting": 3.0}}`)
	f.Add("named_metrics.kv_cache_usage_perc=0.4,named_metrics.num_requests_waiting=-nan")
	f.Add(`{"named_metrics":{"kv_cache_usage_perc":1e999}}`)
	f.Fuzz(func(t *testing.T, header string) {
		v, err := ParseORCA(header)
		require.Equal(t, err != nil, v == (Values{}))
		sane(t, v)
		again, _ := ParseORCA(header)
		require.Equal(t, v, again, "the order of a JSON object's keys does not matter")
	})
}

func ExampleParseORCA() {
	v, err := ParseORCA("TEXT named_metrics.kv_cache_usage_perc=0.4, named_metrics.num_requests_waiting=3.0")
	fmt.Println(v.KVUsage.Value, v.Waiting.Value, v.Running.Known, err)
	// Output: 0.4 3 false <nil>
}
