package api

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
)

// The type URLs of the weight path's resources.
const (
	HeadType   = "type.googleapis.com/wardrop.v1.Head"
	EngineType = "type.googleapis.com/wardrop.v1.EngineTable"
	RowType    = "type.googleapis.com/wardrop.v1.Row"
)

// EngineTableName is the resource name of the one engine table.
const EngineTableName = "engines"

// RowName is the resource name of a cluster's row of a model.
func RowName(cluster, model string) string { return cluster + "/" + model }

// EncodeSnapshot splits a snapshot into its resources. The head names the other
// two with their digests.
func EncodeSnapshot(s *fleet.Snapshot) (*pb.Saved, error) {
	out := &pb.Saved{Engines: encodeEngines(s.Engines), Head: EncodeHead(s)}
	if err := addPart(out.Head, EngineType, EngineTableName, out.Engines); err != nil {
		return nil, err
	}
	for i := range s.Rows {
		row := encodeRow(s, &s.Rows[i])
		out.Rows = append(out.Rows, row)
		if err := addPart(out.Head, RowType, RowName(s.Cluster, row.Model), row); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// EncodeHead is a snapshot's head, without its parts.
func EncodeHead(s *fleet.Snapshot) *pb.Head {
	return &pb.Head{
		Cluster: s.Cluster, Epoch: s.Epoch, Version: s.Version, Wire: Wire,
		Published: timestamppb.New(s.Time), GoodFor: durationpb.New(s.GoodFor), Replicas: uint32(max(s.Replicas, 0)), Planes: s.Planes,
	}
}

// DecodeHead is a snapshot without its parts.
func DecodeHead(h *pb.Head) *fleet.Snapshot {
	return &fleet.Snapshot{
		Epoch: h.GetEpoch(), Version: h.GetVersion(), Cluster: h.GetCluster(),
		Time: h.GetPublished().AsTime(), GoodFor: h.GetGoodFor().AsDuration(), Replicas: int(h.GetReplicas()), Planes: h.GetPlanes(),
	}
}

func encodeEngines(engines []fleet.SnapshotEngine) *pb.EngineTable {
	out := &pb.EngineTable{Engines: make([]*pb.Engine, len(engines))}
	for i := range engines {
		out.Engines[i] = encodeEngine(&engines[i])
	}
	return out
}

func encodeEngine(e *fleet.SnapshotEngine) *pb.Engine {
	return &pb.Engine{
		Name: e.Name, Region: e.Region, Url: e.URL, Kind: e.Kind, Capacity: e.Capacity, Collector: e.Collector, Protocol: e.Protocol,
		Metrics: e.Metrics, Names: encodeNames(e.Names),
	}
}

func decodeEngines(t *pb.EngineTable) []fleet.SnapshotEngine {
	out := make([]fleet.SnapshotEngine, len(t.GetEngines()))
	for i, e := range t.GetEngines() {
		out[i] = fleet.SnapshotEngine{
			Name: e.Name, Region: e.Region, URL: e.Url, Kind: e.Kind, Capacity: e.Capacity, Collector: e.Collector, Protocol: e.Protocol,
			Metrics: e.Metrics, Names: decodeNames(e.Names),
		}
	}
	return out
}

func encodeNames(names map[string][]string) (out []*pb.Names) {
	for _, signal := range slices.Sorted(maps.Keys(names)) {
		out = append(out, &pb.Names{Signal: signal, Names: names[signal]})
	}
	return out
}

func decodeNames(names []*pb.Names) map[string][]string {
	if len(names) == 0 {
		return nil
	}
	out := make(map[string][]string, len(names))
	for _, n := range names {
		out[n.Signal] = n.Names
	}
	return out
}

func encodeRow(s *fleet.Snapshot, r *fleet.SnapshotRow) *pb.Row {
	row := &pb.Row{Cluster: s.Cluster, Model: r.Model, Shed: r.Shed[:], Utilisation: r.Utilisation}
	for _, t := range r.Targets {
		row.Targets = append(row.Targets, &pb.Target{
			Engine: s.Engines[t.Engine].Name, Weight: t.Weight, Predicted: t.Predicted, Network: t.Network, Limit: t.Limit,
		})
	}
	return row
}

func addPart(h *pb.Head, typeURL, name string, m proto.Message) error {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("%s %q: %w", typeURL, name, err)
	}
	h.Parts = append(h.Parts, &pb.Part{TypeUrl: typeURL, Name: name, Digest: Digest(b)})
	return nil
}

// Digest identifies a resource by its bytes.
func Digest(b []byte) uint64 { return xxhash.Sum64(b) }

// DecodeSnapshot puts a snapshot together from its resources and validates it:
// what it returns without an error may be routed by.
func DecodeSnapshot(p *pb.Saved) (*fleet.Snapshot, error) {
	if p.GetHead() == nil || p.Engines == nil {
		return nil, errors.New("snapshot: head or engine table is missing")
	}
	s := DecodeHead(p.Head)
	s.Engines = decodeEngines(p.Engines)
	index := make(map[string]int32, len(s.Engines))
	for i := range s.Engines {
		index[s.Engines[i].Name] = int32(i)
	}
	for _, r := range p.Rows {
		row, err := decodeRow(s.Cluster, r, index)
		if err != nil {
			return nil, fmt.Errorf("row %q: %w", r.Model, err)
		}
		s.Rows = append(s.Rows, row)
	}
	slices.SortFunc(s.Rows, func(a, b fleet.SnapshotRow) int { return strings.Compare(a.Model, b.Model) })
	return s, s.Validate()
}

func decodeRow(cluster string, r *pb.Row, index map[string]int32) (fleet.SnapshotRow, error) {
	row := fleet.SnapshotRow{Model: r.Model, Utilisation: r.Utilisation}
	if r.Cluster != cluster {
		return row, fmt.Errorf("it belongs to cluster %q, not %q", r.Cluster, cluster)
	}
	if len(r.Shed) != fleet.NumPriorities {
		return row, fmt.Errorf("shed: %d priorities, not %d", len(r.Shed), fleet.NumPriorities)
	}
	copy(row.Shed[:], r.Shed)
	for _, t := range r.Targets {
		i, ok := index[t.Engine]
		if !ok {
			return row, fmt.Errorf("unknown engine %q", t.Engine)
		}
		row.Targets = append(row.Targets, fleet.Target{Engine: i, Weight: t.Weight, Predicted: t.Predicted, Network: t.Network, Limit: t.Limit})
	}
	return row, nil
}
