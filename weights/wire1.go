package weights

import (
	"fmt"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"

	"github.com/wardrop-lb/wardrop/api"
	"github.com/wardrop-lb/wardrop/fleet"
)

// wire1Types are the resources of wire 1, parts before heads, so that a head never waits for
// its parts.
var wire1Types = []string{api.EngineType, api.RowType, api.HeadType}

// wire1 serves snapshots to who speaks wire 1: every part whole, each type apart.
type wire1 struct {
	wire   int                           // that heads say
	caches map[string]*cache.LinearCache // by type URL
	served map[string]map[string]bool    // names, by type URL
}

func newWire1(wire int) *wire1 {
	w := &wire1{wire: wire, caches: map[string]*cache.LinearCache{}, served: map[string]map[string]bool{}}
	for _, t := range wire1Types {
		w.caches[t] = cache.NewLinearCache(t)
	}
	return w
}

// set replaces what is served. What has not changed is not sent again.
func (w *wire1) set(snapshots map[string]*fleet.Snapshot) error {
	resources := map[string]map[string]types.Resource{api.HeadType: {}, api.EngineType: {}, api.RowType: {}}
	for _, s := range snapshots {
		enc, err := api.EncodeSnapshot(s)
		if err != nil {
			return err
		}
		enc.Head.Wire = uint32(w.wire)
		resources[api.EngineType][api.EngineTableName] = enc.Engines
		resources[api.HeadType][s.Cluster] = enc.Head
		for _, r := range enc.Rows {
			resources[api.RowType][api.RowName(r.Cluster, r.Model)] = r
		}
	}
	for _, t := range wire1Types {
		var gone []string
		for name := range w.served[t] {
			if resources[t][name] == nil {
				gone = append(gone, name)
			}
		}
		w.served[t] = make(map[string]bool, len(resources[t]))
		for name := range resources[t] {
			w.served[t][name] = true
		}
		if err := w.caches[t].UpdateResources(resources[t], gone); err != nil {
			return fmt.Errorf("publish %s: %w", t, err)
		}
	}
	return nil
}
