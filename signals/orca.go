package signals

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"
)

const (
	// ORCAHeader is the response header in which engines report their load, as
	// the ORCA design has it. They send it to requests that carry ORCARequestHeader.
	ORCAHeader = "endpoint-load-metrics"
	// ORCARequestHeader asks for the report; its value is the format, TEXT or JSON.
	ORCARequestHeader = "endpoint-load-metrics-format"

	maxORCA = 4096 // bytes of a report
)

var (
	errORCATooLong = errors.New("load report: too long")
	errORCAFormat  = errors.New("load report: neither text nor JSON")
	errORCANothing = errors.New("load report: none of the metrics looked for")
)

// ParseORCA reads the value of an ORCAHeader, at most 4096 bytes: text
// (`TEXT named_metrics.a=0.4, named_metrics.b=3`) or JSON (`JSON
// {"named_metrics": {"a": 0.4}}`), with the format in front or without. What it
// cannot read it leaves out. The error says why nothing is known, and then the
// values are all absent.
func ParseORCA(header string) (Values, error) {
	if len(header) > maxORCA {
		return Values{}, errORCATooLong
	}
	var v Values
	body := strings.TrimSpace(header)
	format, rest, spaced := strings.Cut(body, " ")
	switch {
	case spaced && strings.EqualFold(format, "TEXT"):
		orcaText(rest, &v)
	case spaced && strings.EqualFold(format, "JSON"):
		orcaJSON(rest, &v)
	case strings.HasPrefix(body, "{"):
		orcaJSON(body, &v)
	case strings.Contains(body, "=") && !strings.EqualFold(format, "BIN"):
		orcaText(body, &v)
	default:
		return Values{}, errORCAFormat
	}
	if v == (Values{}) {
		return Values{}, errORCANothing
	}
	return v, nil
}

func orcaText(text string, v *Values) {
	for pair := range strings.SplitSeq(text, ",") {
		name, number, ok := strings.Cut(pair, "=")
		if !ok {
			continue
		}
		if n, err := strconv.ParseFloat(strings.TrimSpace(number), 64); err == nil {
			orcaSet(strings.TrimPrefix(strings.TrimSpace(name), "named_metrics."), n, v)
		}
	}
}

func orcaJSON(text string, v *Values) {
	var report map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &report) != nil {
		return
	}
	for _, key := range []string{"named_metrics", "namedMetrics"} {
		var named map[string]json.RawMessage
		if json.Unmarshal(report[key], &named) != nil {
			continue
		}
		for name, raw := range named {
			var n float64
			if json.Unmarshal(raw, &n) == nil {
				orcaSet(name, n, v)
			}
		}
	}
}

// orcaSet takes one metric, under vLLM's name or Triton's.
func orcaSet(name string, n float64, v *Values) {
	switch name {
	case "kv_cache_usage_perc", "gpu_cache_usage_perc", "kv_cache_utilization":
		orcaTake(&v.KVUsage, fraction(atLeastZero(n)))
	case "num_requests_waiting":
		orcaTake(&v.Waiting, atLeastZero(n))
	case "num_requests_running":
		orcaTake(&v.Running, atLeastZero(n))
	case "max_token_capacity":
		orcaTake(&v.KVTokens, atLeastZero(n))
	}
}

// orcaTake keeps the larger of two that are called the same, so that the order
// of a report does not matter.
func orcaTake(to *Opt, o Opt) {
	if o.Known && (!to.Known || o.Value > to.Value) {
		*to = o
	}
}

// InBand gives the state with what an engine said of itself in an answer at that
// time: what the report has is newer than the reading, everything else stays as
// it was. A report that is older than the reading or than the last report changes
// nothing, and neither does one of an engine with several ranks, which speaks of
// the first only. The state given is not changed, nor is its signal.
func (st State) InBand(report Values, at time.Time) State {
	if report == (Values{}) || st.Ranks > 1 {
		return st
	}
	next := Signal{Engine: st.Engine, Time: at}
	if st.Signal != nil {
		if at.Before(st.Signal.Time) || at.Before(st.Signal.InBand) {
			return st
		}
		next = *st.Signal
	}
	next.InBand = at
	for _, f := range []struct {
		to   *Opt
		from Opt
	}{
		{&next.Running, report.Running}, {&next.Waiting, report.Waiting},
		{&next.KVUsage, report.KVUsage}, {&next.KVTokens, report.KVTokens},
	} {
		if f.from.Known {
			*f.to = f.from
		}
	}
	st.Signal = &next
	return st
}
