package signals

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// keys are what the lists of Names are called in configurations and on the wire.
var keys = map[string]func(*Names) *[]string{
	"running":           func(n *Names) *[]string { return &n.Running },
	"waiting":           func(n *Names) *[]string { return &n.Waiting },
	"kv_usage":          func(n *Names) *[]string { return &n.KVUsage },
	"slots":             func(n *Names) *[]string { return &n.Slots },
	"kv_tokens":         func(n *Names) *[]string { return &n.KVTokens },
	"prompt_tokens":     func(n *Names) *[]string { return &n.PromptTokens },
	"generation_tokens": func(n *Names) *[]string { return &n.GenerationTokens },
	"preemptions":       func(n *Names) *[]string { return &n.Preemptions },
	"prefix_hits":       func(n *Names) *[]string { return &n.PrefixHits },
	"prefix_queries":    func(n *Names) *[]string { return &n.PrefixQueries },
	"progress":          func(n *Names) *[]string { return &n.Progress },
	"start":             func(n *Names) *[]string { return &n.Start },
}

// NameKeys gives the keys that NewNames knows, sorted.
func NameKeys() []string { return slices.Sorted(maps.Keys(keys)) }

// NewNames makes Names of lists by key. A key that is not known is passed over: it
// is that of a value which this version does not look for.
func NewNames(lists map[string][]string) (n Names) {
	for key, list := range lists {
		if field := keys[key]; field != nil {
			*field(&n) = list
		}
	}
	return n
}

// CheckName says what is wrong with one name of Names; nil when nothing is.
func CheckName(name string) error {
	if termForm.MatchString(strings.TrimSpace(name)) {
		return nil
	}
	return fmt.Errorf(`%.100q is not the name of a metric: want name or name{label="value"}`, name)
}

// CheckMetrics says what is wrong with a Target's MetricsURL for engines of a kind; nil
// when nothing is.
func CheckMetrics(kind, page string) error {
	u, err := url.Parse(page)
	switch {
	case page == "":
		return nil
	case kind == KindORCA:
		host, port, err := net.SplitHostPort(page)
		if n, bad := strconv.ParseUint(port, 10, 16); err == nil && bad == nil && n > 0 && host != "" && !strings.ContainsAny(host, "/ \t") {
			return nil
		}
		return fmt.Errorf("metrics at %.200q: want host:port, where load reports are streamed", page)
	case err != nil, strings.ContainsAny(page, " \t"):
	case strings.HasPrefix(page, "/") && !strings.HasPrefix(page, "//"):
		return nil
	case (u.Scheme == "http" || u.Scheme == "https") && u.Host != "":
		return nil
	}
	return fmt.Errorf("metrics at %.200q: want an http URL or a path below the engine's", page)
}
