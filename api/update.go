package api

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
)

// Wire 2 sends no number that the other end has. Nothing is rounded: what is put together
// from updates is the same to the bit wherever it is, and the digests, which are of what
// parts say and not of how they were sent, show it.

// EnginesPart is the name of the resource that an engine table with this digest is.
func EnginesPart(digest uint64) string { return fmt.Sprintf("%s %016x", enginesPrefix, digest) }

// RowPart is the name of the resource that a cluster's row of a model is.
func RowPart(cluster, model string) string { return rowPrefix + " " + cluster + " " + model }

const (
	enginesPrefix = "engines"
	rowPrefix     = "row"
)

// SplitPart tells what a resource of wire 2 is by its name: an engine table, a cluster's row of
// a model, or else a cluster's head.
func SplitPart(name string) (engines bool, cluster, model string) {
	kind, rest, part := strings.Cut(name, " ")
	switch {
	case !part:
		return false, name, ""
	case kind == enginesPrefix:
		return true, "", ""
	}
	cluster, model, _ = strings.Cut(rest, " ")
	return false, cluster, model
}

// EnginesDigest identifies an engine table by what it says: xxHash64 of its numbers, and of its
// texts with their lengths.
func EnginesDigest(engines []fleet.SnapshotEngine) uint64 {
	d, b := xxhash.New(), make([]byte, 0, 2*hashChunk)
	for i := range engines {
		e := &engines[i]
		for _, s := range [...]string{e.Name, e.Region, e.URL, e.Kind, e.Protocol, e.Collector, e.Metrics} {
			b = appendText(b, s)
		}
		b = appendNumbers(b, e.Capacity)
		b = binary.LittleEndian.AppendUint64(b, uint64(len(e.Names)))
		for _, n := range encodeNames(e.Names) {
			b = binary.LittleEndian.AppendUint64(appendText(b, n.Signal), uint64(len(n.Names)))
			for _, name := range n.Names {
				b = appendText(b, name)
			}
		}
		b = flush(d, b, hashChunk)
	}
	flush(d, b, 0)
	return d.Sum64()
}

// RowDigest identifies a row by what it says of which engines, wherever these stand in the table.
func RowDigest(engines []fleet.SnapshotEngine, r *fleet.SnapshotRow) uint64 {
	d, b := xxhash.New(), make([]byte, 0, 2*hashChunk)
	b = appendNumbers(appendText(b, r.Model), r.Utilisation)
	b = appendNumbers(b, r.Shed[:]...)
	for i := range r.Targets {
		t := &r.Targets[i]
		b = appendNumbers(appendText(b, engines[t.Engine].Name), t.Weight, t.Predicted, t.Network, t.Limit)
		b = flush(d, b, hashChunk)
	}
	flush(d, b, 0)
	return d.Sum64()
}

// hashChunk is from how many bytes on they are hashed. It makes no difference to the digest.
const hashChunk = 4 << 10

func flush(d *xxhash.Digest, b []byte, from int) []byte {
	if len(b) < from {
		return b
	}
	_, _ = d.Write(b) // it never fails
	return b[:0]
}

func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

func appendNumbers(b []byte, numbers ...float64) []byte {
	for _, x := range numbers {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	}
	return b
}

// columns are the numbers of a target, in the order of the message's columns.
var columns = [4]func(*fleet.Target) *float64{
	func(t *fleet.Target) *float64 { return &t.Weight },
	func(t *fleet.Target) *float64 { return &t.Predicted },
	func(t *fleet.Target) *float64 { return &t.Network },
	func(t *fleet.Target) *float64 { return &t.Limit },
}

func columnsOf(c *pb.Columns) [4]*pb.Column {
	return [4]*pb.Column{c.GetWeight(), c.GetPredicted(), c.GetNetwork(), c.GetLimit()}
}

// Renumber tells where each engine of a table stands in another, -1 for one that is gone; nil if
// all stand where they stood.
func Renumber(from, to []fleet.SnapshotEngine) []int32 {
	if len(from) == len(to) {
		same := true
		for i := range from {
			same = same && from[i].Name == to[i].Name
		}
		if same {
			return nil
		}
	}
	places := make(map[string]int32, len(to))
	for i := range to {
		places[to[i].Name] = int32(i)
	}
	out := make([]int32, len(from))
	for i := range from {
		out[i] = -1
		if at, ok := places[from[i].Name]; ok {
			out[i] = at
		}
	}
	return out
}

// RenumberRow is a row as Renumber has it. Targets that are gone have engine -1: they must not be
// there any more once the row is updated.
func RenumberRow(r fleet.SnapshotRow, places []int32) fleet.SnapshotRow {
	if places == nil {
		return r
	}
	r.Targets = slices.Clone(r.Targets)
	for i := range r.Targets {
		r.Targets[i].Engine = places[r.Targets[i].Engine]
	}
	return r
}

// EncodeRow says all of a row.
func EncodeRow(r *fleet.SnapshotRow) *pb.Update { return rowUpdate(&fleet.SnapshotRow{}, r) }

// EncodeRowChange says what has changed since a row that RenumberRow has put into the same table,
// with this digest. It is nil where that cannot be said.
func EncodeRowChange(old, r *fleet.SnapshotRow, since uint64) *pb.Update {
	if len(r.Targets) == 0 {
		return nil // no engines would be the same engines
	}
	u := rowUpdate(old, r)
	u.Since = since
	return u
}

func rowUpdate(old, r *fleet.SnapshotRow) *pb.Update {
	c := &pb.Columns{Utilisation: r.Utilisation}
	for _, f := range r.Shed {
		if math.Float64bits(f) != 0 {
			c.Shed = r.Shed[:]
		}
	}
	base := old.Targets
	if !slices.EqualFunc(base, r.Targets, func(a, b fleet.Target) bool { return a.Engine == b.Engine }) {
		before := int32(0)
		engines := make([]int32, len(r.Targets))
		c.Engines = make([]int32, len(r.Targets))
		for i := range r.Targets {
			engines[i] = r.Targets[i].Engine
			c.Engines[i], before = engines[i]-before, engines[i]
		}
		base = rebase(base, engines)
	}
	var changed [4]pb.Column
	var last [4]int
	for i := range r.Targets {
		was, is := &base[i], &r.Targets[i]
		for k, x := range [4][2]float64{{was.Weight, is.Weight}, {was.Predicted, is.Predicted}, {was.Network, is.Network}, {was.Limit, is.Limit}} {
			if math.Float64bits(x[0]) != math.Float64bits(x[1]) {
				changed[k].At = append(changed[k].At, uint32(i-last[k]))
				changed[k].Values = append(changed[k].Values, x[1])
				last[k] = i
			}
		}
	}
	c.Weight, c.Predicted = pack(&changed[0], len(r.Targets)), pack(&changed[1], len(r.Targets))
	c.Network, c.Limit = pack(&changed[2], len(r.Targets)), pack(&changed[3], len(r.Targets))
	return &pb.Update{Row: c}
}

// rebase gives targets of other engines what is known of them.
func rebase(known []fleet.Target, engines []int32) []fleet.Target {
	out := make([]fleet.Target, len(engines))
	at := make(map[int32]int, len(known))
	for i := range known {
		at[known[i].Engine] = i
	}
	for i, e := range engines {
		if k, ok := at[e]; ok {
			out[i] = known[k]
		}
		out[i].Engine = e
	}
	return out
}

// pack makes a column of the values that differ as short as it can be without losing a bit; nil
// if there are none.
func pack(c *pb.Column, targets int) *pb.Column {
	if len(c.Values) == 0 {
		return nil
	}
	if len(c.Values) == targets {
		c.At = nil
		if !slices.ContainsFunc(c.Values, func(v float64) bool { return math.Float64bits(v) != math.Float64bits(c.Values[0]) }) {
			c.Values = c.Values[:1]
		}
	}
	narrow := make([]float32, len(c.Values))
	for i, v := range c.Values {
		if narrow[i] = float32(v); math.Float64bits(float64(narrow[i])) != math.Float64bits(v) {
			return c
		}
	}
	c.Values, c.Narrow = nil, narrow
	return c
}

// DecodeRow is a row after an update. What it was before is not touched; it counts if the update
// is no whole. The engine table has that many engines.
func DecodeRow(old *fleet.SnapshotRow, model string, engines int, u *pb.Update) (fleet.SnapshotRow, error) {
	c := u.GetRow()
	out := fleet.SnapshotRow{Model: model, Utilisation: c.GetUtilisation()}
	if c == nil {
		return out, errors.New("the update is none of a row")
	}
	if n := len(c.Shed); n != 0 && n != fleet.NumPriorities {
		return out, fmt.Errorf("shed: %d priorities, not %d", n, fleet.NumPriorities)
	}
	copy(out.Shed[:], c.Shed)
	var known []fleet.Target
	if u.Since != 0 && old == nil {
		return out, errors.New("what has changed since an unknown row")
	} else if u.Since != 0 {
		known = old.Targets
	}
	if len(c.Engines) == 0 {
		out.Targets = slices.Clone(known)
	} else {
		places := make([]int32, len(c.Engines))
		at := int64(0)
		for i, d := range c.Engines {
			if at += int64(d); at < 0 || at >= int64(engines) {
				return out, fmt.Errorf("unknown engine %d of %d", at, engines)
			}
			places[i] = int32(at)
		}
		out.Targets = rebase(known, places)
	}
	for i := range out.Targets {
		if out.Targets[i].Engine < 0 {
			return out, errors.New("a target's engine is gone")
		}
	}
	for k, column := range columnsOf(c) {
		if err := patch(out.Targets, column, columns[k]); err != nil {
			return out, err
		}
	}
	return out, nil
}

var errColumn = errors.New("a column does not fit its targets")

// patch sets what a column says.
func patch(targets []fleet.Target, c *pb.Column, of func(*fleet.Target) *float64) error {
	if c == nil {
		return nil
	}
	n := len(c.Values) + len(c.Narrow)
	value := func(i int) float64 {
		if len(c.Values) > 0 {
			return c.Values[i]
		}
		return float64(c.Narrow[i])
	}
	switch {
	case len(c.Values) > 0 && len(c.Narrow) > 0:
		return errColumn
	case len(c.At) > 0:
		if len(c.At) != n {
			return errColumn
		}
		at := uint64(0)
		for i, d := range c.At {
			if at += uint64(d); at >= uint64(len(targets)) {
				return errColumn
			}
			*of(&targets[at]) = value(i)
		}
	case n == 1:
		for i := range targets {
			*of(&targets[i]) = value(0)
		}
	case n == len(targets):
		for i := range targets {
			*of(&targets[i]) = value(i)
		}
	default:
		return errColumn
	}
	return nil
}

// EncodeEngines says all of an engine table.
func EncodeEngines(engines []fleet.SnapshotEngine) *pb.Update {
	return &pb.Update{Engines: encodeEngines(engines)}
}

// EncodeEnginesChange says what has changed since a table with this digest. It is nil where that
// cannot be said.
func EncodeEnginesChange(old, engines []fleet.SnapshotEngine, since uint64) *pb.Update {
	if !sorted(old) || !sorted(engines) {
		return nil
	}
	u := &pb.Update{Since: since, Engines: &pb.EngineTable{}}
	i := 0
	for k := range engines {
		for i < len(old) && old[i].Name < engines[k].Name {
			u.Gone = append(u.Gone, old[i].Name)
			i++
		}
		if i < len(old) && old[i].Name == engines[k].Name {
			i++
			if old[i-1].Equal(engines[k]) {
				continue
			}
		}
		u.Engines.Engines = append(u.Engines.Engines, encodeEngine(&engines[k]))
	}
	for ; i < len(old); i++ {
		u.Gone = append(u.Gone, old[i].Name)
	}
	return u
}

func sorted(engines []fleet.SnapshotEngine) bool {
	for i := 1; i < len(engines); i++ {
		if engines[i-1].Name >= engines[i].Name {
			return false
		}
	}
	return true
}

// DecodeEngines is an engine table after an update. What it was before is not touched; it counts
// if the update is no whole.
func DecodeEngines(old []fleet.SnapshotEngine, u *pb.Update) ([]fleet.SnapshotEngine, error) {
	if u.GetEngines() == nil {
		return nil, errors.New("the update is none of an engine table")
	}
	fresh := decodeEngines(u.Engines)
	if u.Since == 0 {
		return fresh, nil
	}
	if !sorted(old) || !sorted(fresh) {
		return nil, errors.New("engines are not sorted by name")
	}
	gone := make(map[string]bool, len(u.Gone))
	for _, name := range u.Gone {
		gone[name] = true
	}
	out := make([]fleet.SnapshotEngine, 0, len(old)+len(fresh))
	for len(old) > 0 || len(fresh) > 0 {
		switch {
		case len(fresh) == 0 || len(old) > 0 && old[0].Name < fresh[0].Name:
			if !gone[old[0].Name] {
				out = append(out, old[0])
			}
			old = old[1:]
		default:
			if len(old) > 0 && old[0].Name == fresh[0].Name {
				old = old[1:]
			}
			out = append(out, fresh[0])
			fresh = fresh[1:]
		}
	}
	return out, nil
}
