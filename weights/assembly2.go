package weights

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/wardrop-lb/wardrop/api"
	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
)

// assembly2 is that of wire 2: each response brings all parts that a head needs and that are
// not there yet. What does not fit together is an error, after which the assembly is of no
// use any more: it must be begun anew.
type assembly2 struct {
	cluster  string // whose head alone may come; empty for any
	tables   map[string]*heldTable
	holdings map[string]*holding // by cluster
	versions map[string]string
	siblings func(yield func(*assembly2) bool) // of other upstreams: what is the same is kept once
}

// heldTable is an engine table.
type heldTable struct {
	digest  uint64
	engines []fleet.SnapshotEngine
}

// holding is what is there of a cluster.
type holding struct {
	head      *pb.Head
	fresh     bool // it came over the stream that is open
	table     *heldTable
	rows      map[string]*heldRow // by model
	candidate *candidate
}

// heldRow is a row, of which the engines stand in the holding's table.
type heldRow struct {
	digest uint64
	row    fleet.SnapshotRow
	valid  bool // it was validated
}

func newAssembly2(cluster string, siblings func(func(*assembly2) bool)) *assembly2 {
	return &assembly2{
		cluster: cluster, tables: map[string]*heldTable{}, holdings: map[string]*holding{}, versions: map[string]string{}, siblings: siblings,
	}
}

func (a *assembly2) held(string) map[string]string { return a.versions }

func (a *assembly2) broken() {
	for _, h := range a.holdings {
		h.fresh = false
	}
}

func (a *assembly2) whole() (out []*candidate) {
	for _, cluster := range slices.Sorted(maps.Keys(a.holdings)) {
		if h := a.holdings[cluster]; h.fresh {
			out = append(out, h.candidate)
		}
	}
	return out
}

func (a *assembly2) add(r *discovery.DeltaDiscoveryResponse) (gone []string, err error) {
	if r.GetTypeUrl() != api.HeadType {
		return nil, fmt.Errorf("unknown resource type %q", r.GetTypeUrl())
	}
	var heads []*pb.Head
	rows := map[string][]*discovery.Resource{} // by cluster
	for _, res := range r.GetResources() {
		table, cluster, model := api.SplitPart(res.GetName())
		switch {
		case table:
			err = a.addTable(res)
		case model != "":
			rows[cluster] = append(rows[cluster], res)
		default:
			h := &pb.Head{}
			if err = proto.Unmarshal(res.GetResource().GetValue(), h); err == nil && (h.Cluster != cluster || a.cluster != "" && h.Cluster != a.cluster) {
				err = fmt.Errorf("the head is cluster %q's, not %q's", h.Cluster, cmp.Or(a.cluster, cluster))
			}
			heads = append(heads, h)
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", res.GetName(), err)
		}
		a.versions[res.GetName()] = res.GetVersion()
	}
	for _, h := range heads {
		if err := a.addHead(h, rows[h.Cluster]); err != nil {
			return nil, fmt.Errorf("%q: %w", h.Cluster, err)
		}
		delete(rows, h.Cluster)
	}
	for cluster := range rows {
		return nil, fmt.Errorf("rows of %q without its head", cluster)
	}
	return a.remove(r.GetRemovedResources()), nil
}

func (a *assembly2) remove(names []string) (gone []string) {
	for _, name := range names {
		delete(a.versions, name)
		table, cluster, model := api.SplitPart(name)
		switch h := a.holdings[cluster]; {
		case table:
			delete(a.tables, name)
		case h == nil:
		case model != "":
			delete(h.rows, model)
		default:
			delete(a.holdings, cluster)
			gone = append(gone, cluster)
		}
	}
	return gone
}

func update(res *discovery.Resource) (*pb.Update, error) {
	u := &pb.Update{}
	return u, proto.Unmarshal(res.GetResource().GetValue(), u)
}

func (a *assembly2) addTable(res *discovery.Resource) error {
	u, err := update(res)
	if err != nil {
		return err
	}
	var old *heldTable
	if u.Since != 0 {
		if old = a.tables[api.EnginesPart(u.Since)]; old == nil {
			return errors.New("what has changed since an unknown table")
		}
	} else {
		old = &heldTable{}
	}
	t := &heldTable{}
	if t.engines, err = api.DecodeEngines(old.engines, u); err != nil {
		return err
	}
	if t.digest = api.EnginesDigest(t.engines); api.EnginesPart(t.digest) != res.GetName() {
		return errors.New("it does not say what its digest says")
	}
	for s := range a.siblings {
		if same := s.tables[res.GetName()]; same != nil {
			t = same
		}
	}
	a.tables[res.GetName()] = t
	return nil
}

// addHead puts the parts of a head together.
func (a *assembly2) addHead(h *pb.Head, rows []*discovery.Resource) error {
	old := a.holdings[h.Cluster]
	if old == nil {
		old = &holding{table: &heldTable{}, rows: map[string]*heldRow{}}
	}
	next := &holding{head: h, fresh: true, rows: make(map[string]*heldRow, len(h.Parts))}
	if len(h.Parts) > 0 {
		next.table = a.tables[h.Parts[0].Name]
	}
	if next.table == nil || next.table.digest != h.Parts[0].Digest {
		return errors.New("its engine table did not come")
	}
	was := old.rows
	if next.table != old.table {
		was = renumber(old, next.table)
	}
	came := make(map[string]*heldRow, len(rows))
	for _, res := range rows {
		_, _, model := api.SplitPart(res.GetName())
		r, err := next.decode(was[model], model, res)
		if err != nil {
			return fmt.Errorf("row %q: %w", model, err)
		}
		came[model] = r
	}
	for _, part := range h.Parts[1:] {
		_, cluster, model := api.SplitPart(part.Name)
		r := came[model]
		if r == nil {
			r = was[model]
		}
		if r == nil || r.digest != part.Digest || cluster != h.Cluster {
			return fmt.Errorf("%q is not what the head names", part.Name)
		}
		next.rows[model] = a.known(h.Cluster, model, next.table, r)
	}
	next.candidate = newCandidate(h, next.snapshot)
	a.holdings[h.Cluster] = next
	return nil
}

// renumber gives the rows of a holding with their engines' places in another table.
func renumber(old *holding, table *heldTable) map[string]*heldRow {
	places := api.Renumber(old.table.engines, table.engines)
	if places == nil {
		return old.rows
	}
	out := make(map[string]*heldRow, len(old.rows))
	for model, r := range old.rows {
		out[model] = &heldRow{digest: r.digest, row: api.RenumberRow(r.row, places)}
	}
	return out
}

// decode is a row after an update.
func (h *holding) decode(old *heldRow, model string, res *discovery.Resource) (*heldRow, error) {
	u, err := update(res)
	if err != nil {
		return nil, err
	}
	var was *fleet.SnapshotRow
	if u.Since != 0 {
		if old == nil || old.digest != u.Since {
			return nil, errors.New("what has changed since an unknown version")
		}
		was = &old.row
	}
	row, err := api.DecodeRow(was, model, len(h.table.engines), u)
	if err != nil {
		return nil, err
	}
	return &heldRow{digest: api.RowDigest(h.table.engines, &row), row: row}, nil
}

// known is the same row of another upstream, if one has it, so that it is kept once.
func (a *assembly2) known(cluster, model string, table *heldTable, r *heldRow) *heldRow {
	for s := range a.siblings {
		if h := s.holdings[cluster]; h != nil && h.table == table {
			if same := h.rows[model]; same != nil && same.digest == r.digest {
				return same
			}
		}
	}
	return r
}

// snapshot is the holding as what can be routed by, or an error that says why it cannot.
func (h *holding) snapshot() (*fleet.Snapshot, error) {
	s := api.DecodeHead(h.head)
	s.Engines = h.table.engines
	for _, part := range h.head.Parts[1:] {
		_, _, model := api.SplitPart(part.Name)
		r := h.rows[model]
		if !r.valid {
			if err := r.row.Validate(len(s.Engines)); err != nil {
				return nil, fmt.Errorf("row %q: %w", model, err)
			}
			r.valid = true
		}
		s.Rows = append(s.Rows, r.row)
	}
	return s, s.ValidateHead()
}
