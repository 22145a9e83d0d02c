package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/control"
)

// TestAskAFleet asks a fleet of processes what it knows: engines of which nobody said
// the kind, of which one dies, demand as it arrives, distances as they are.
func TestAskAFleet(t *testing.T) {
	t.Parallel()
	r := newRoles(t, 20)
	x := send(t, r.base, 20, true)
	r.control.until("engines are read as what they are", func() bool {
		var a admin.Engines
		return get(r.controlURL+"/v1/engines", &a) && len(a.Engines) == 2 && !slices.ContainsFunc(a.Engines, func(e control.Engine) bool {
			return e.Kind != "vllm" || e.State != control.EngineLive || e.Reading.Age == nil
		})
	})
	r.control.until("distances are measured", func() bool {
		var a admin.Distances
		return get(r.controlURL+"/v1/distances", &a) && a.Distances[0].Source == control.SourceMeasured
	})
	code, stdout, stderr := command(t, "engines", "-c", r.file, "--json")
	require.Zero(t, code, stderr)
	var engines admin.Engines
	require.NoError(t, json.Unmarshal([]byte(stdout), &engines))
	big := engines.Engines[0]
	require.Equal(t, []string{"big", control.EngineLive, "c"}, []string{big.Name, big.State, big.Reading.Cluster})
	require.Less(t, *big.Reading.Age, 5.0)
	require.Positive(t, big.Load)
	require.Greater(t, big.Capacity, big.Load)
	require.NotNil(t, big.Reading.KVUsage)
	code, stdout, stderr = command(t, "engines", "-c", r.file)
	require.Zero(t, code, stderr)
	require.Regexp(t, `(?m)^ENGINE +REGION +KIND +STATE +RUNNING +WAITING +KV +LOAD +CAPACITY .*AGE +READ BY`, stdout)
	require.Regexp(t, `(?m)^big +r +vllm +live\b`, stdout)

	r.control.until("demand is measured", func() bool {
		var a admin.Demand
		return get(r.controlURL+"/v1/demand", &a) && len(a.Demand) == 1 && a.Demand[0].Source == control.SourceMeasured && a.Demand[0].Window > 5 && a.Demand[0].Samples > 0
	})
	code, stdout, stderr = command(t, "demand", "--admin", strings.TrimPrefix(r.controlURL, "http://"), "--json")
	require.Zero(t, code, stderr)
	var demand admin.Demand
	require.NoError(t, json.Unmarshal([]byte(stdout), &demand))
	require.Len(t, demand.Demand, 1)
	require.Equal(t, control.SourceMeasured, demand.Demand[0].Source)
	require.InDelta(t, 20, demand.Demand[0].Rate, 10)
	require.Positive(t, demand.Demand[0].Requests)
	require.InDelta(t, 16, float64(demand.Demand[0].OutputTokens)/float64(demand.Demand[0].Samples), 3, "tokens of an answer")

	code, stdout, stderr = command(t, "distances", "-c", r.file)
	require.Zero(t, code, stderr)
	require.Regexp(t, `(?m)^c +r +[0-9.]+ms +measured +1ms +[0-9.]+s$`, stdout)

	x.end()
	r.engines["small"].kill()
	r.control.until("the engine is seen to be dead", func() bool {
		var a admin.Engines
		return get(r.controlURL+"/v1/engines", &a) && a.Engines[1].State == control.EngineDead
	})
	code, stdout, stderr = command(t, "engines", "-c", r.file)
	require.Zero(t, code, stderr)
	require.Regexp(t, `(?m)^small +r +vllm +dead\b.*connection refused$`, stdout)
}
