package fleetgen

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/wardrop-lb/wardrop/fleet"
)

// Write writes a view as a configuration file.
func Write(w io.Writer, v *fleet.View) error {
	out := &strings.Builder{}
	fmt.Fprintln(out, "clusters:")
	for _, c := range v.Clusters {
		var distances, own []string
		for _, d := range v.Distances {
			switch {
			case d.Cluster != c.Name:
			case d.Engine != "":
				own = append(own, fmt.Sprintf("%s: %s", d.Engine, duration(d.Seconds)))
			default:
				distances = append(distances, fmt.Sprintf("%s: %s", d.Region, duration(d.Seconds)))
			}
		}
		fmt.Fprintf(out, "  - {name: %s, region: %s, distances: {%s}", c.Name, c.Region, strings.Join(distances, ", "))
		if own != nil {
			fmt.Fprintf(out, ", engine_distances: {%s}", strings.Join(own, ", "))
		}
		fmt.Fprintln(out, "}")
	}
	if v.Models != nil {
		fmt.Fprintln(out, "models:")
	}
	for _, m := range v.Models {
		fmt.Fprintf(out, "  - {name: %s, work: %v, token_seconds: %v, slot_seconds: %v, worth: {first_token: %v, decode: %v}}\n",
			m.Name, m.Work, m.TokenSeconds, m.SlotSeconds, m.FirstToken, m.Decode)
	}
	fmt.Fprintln(out, "engines:")
	for _, e := range v.Engines {
		p := e.Profile
		fmt.Fprintf(out, "  - {name: %s, region: %s, models: [%s], profile: {t0: %s, u_max: %v, batch: %v, kappa: %v",
			e.Name, e.Region, strings.Join(e.Models, ", "), duration(p.T0), p.UMax, p.Batch, p.Kappa)
		if v.Models != nil {
			fmt.Fprintf(out, ", first_token: %s, tokens: %v, slots: %v", duration(p.FirstToken), p.Tokens, p.Slots)
		}
		fmt.Fprintln(out, "}}")
	}
	fmt.Fprintln(out, "demand:")
	for _, d := range v.Demands {
		fmt.Fprintf(out, "  - {cluster: %s, model: %s, priority: %s, rate: %v}\n", d.Cluster, d.Model, d.Priority, d.Rate)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func duration(seconds float64) time.Duration {
	return time.Duration(seconds*1e6+0.5) * time.Microsecond
}
