package kube

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/discover"
)

// What a slice may say of its engines, as a label or an annotation. Kubernetes copies
// both from a Service to its slices.
const (
	keyRegion = "wardrop/region"
	keyKind   = "wardrop/kind"
	keyModels = "wardrop/models" // with commas between
)

// found gives the engines of some slices. It is a function of its arguments alone.
func found(s config.Source, all []*discoveryv1.EndpointSlice) discover.Found {
	all = slices.Clone(all)
	// An engine may be in several slices, of which a dual stack has one per family:
	// the first that has it counts, IPv4 before the others.
	slices.SortFunc(all, func(a, b *discoveryv1.EndpointSlice) int {
		if c := strings.Compare(string(a.AddressType), string(b.AddressType)); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	out := discover.Found{Engines: []config.Engine{}}
	at := map[string]int{} // by pod or address
	for _, slice := range all {
		port, err := portOf(s.Kubernetes.Port, slice)
		if err != nil {
			out.Refused = append(out.Refused, err.Error())
			continue
		}
		for i := range slice.Endpoints {
			p := &slice.Endpoints[i]
			drain, there := condition(p.Conditions)
			if !there || len(p.Addresses) == 0 {
				continue
			}
			e := engine(s, slice, p)
			e.Drain = drain
			if e.URL, err = discover.Target(s.Scheme, net.JoinHostPort(p.Addresses[0], strconv.Itoa(port))); err != nil {
				out.Refused = append(out.Refused, err.Error())
				continue
			}
			key := e.URL
			if e.Name != "" {
				key = e.Name
			}
			if old, ok := at[key]; !ok {
				at[key] = len(out.Engines)
				out.Engines = append(out.Engines, e)
			} else if out.Engines[old].Drain && !drain { // one of the slices is behind
				out.Engines[old] = e
			}
		}
	}
	return out
}

// condition says whether an engine is there, and whether it drains. What is not said
// is true of ready and false of terminating, as the API has it.
func condition(c discoveryv1.EndpointConditions) (drain, there bool) {
	if c.Terminating != nil && *c.Terminating {
		return true, true
	}
	return false, c.Ready == nil || *c.Ready
}

func engine(s config.Source, slice *discoveryv1.EndpointSlice, p *discoveryv1.Endpoint) config.Engine {
	say := func(key string) string {
		if v := slice.Annotations[key]; v != "" {
			return v
		}
		return slice.Labels[key]
	}
	e := config.Engine{Region: say(keyRegion), Kind: say(keyKind)}
	if p.TargetRef != nil {
		e.Name = p.TargetRef.Name
	}
	for m := range strings.SplitSeq(say(keyModels), ",") {
		if m = strings.TrimSpace(m); m != "" {
			e.Models = append(e.Models, m)
		}
	}
	zone := zoneOf(p)
	if e.Region == "" {
		e.Region = s.Kubernetes.Zones[zone]
	}
	if e.Region == "" && s.Region == "" {
		e.Region = zone
	}
	return e
}

// zoneOf is where an endpoint is, else the first zone whose clients are to use it.
func zoneOf(p *discoveryv1.Endpoint) string {
	if p.Zone != nil && *p.Zone != "" {
		return *p.Zone
	}
	if p.Hints != nil && len(p.Hints.ForZones) > 0 {
		return p.Hints.ForZones[0].Name
	}
	return ""
}

// portOf finds a slice's port by name or number, or the only one it has.
func portOf(want string, slice *discoveryv1.EndpointSlice) (int, error) {
	var known []string
	port := 0
	for _, p := range slice.Ports {
		if p.Port == nil || p.Protocol != nil && *p.Protocol != "TCP" {
			continue
		}
		name, number := "", strconv.Itoa(int(*p.Port))
		if p.Name != nil {
			name = *p.Name
		}
		known = append(known, strings.TrimPrefix(name+" "+number, " "))
		if want == "" || want == name || want == number {
			port = int(*p.Port)
		}
	}
	switch {
	case port == 0:
		return 0, fmt.Errorf("slice %.80q has no port %q: it has %v", slice.Name, want, known)
	case want == "" && len(known) > 1:
		return 0, fmt.Errorf("slice %.80q has several ports, %v: say which by port", slice.Name, known)
	}
	return port, nil
}
