package integration

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// said is what a process said, and whose it is; each start is a process of its own.
type said struct {
	name    string
	process *process
}

// history is what members and data planes did, as their logs tell.
type history struct {
	t       testing.TB
	members []said
	planes  []said
}

// What the rules of leadership are about.
const (
	leads   = "leads"   // a member gets an epoch
	plans   = "plans"   // a member publishes a plan of an epoch
	applies = "applies" // a data plane routes by a plan of an epoch
)

type act struct {
	what, by       string
	epoch, version uint64
}

// term is the state of the model: who has which epoch, and what each data plane routes by.
type term struct {
	epoch  uint64
	owners map[uint64]string
	routes map[string][2]uint64
}

// leadership is the rule: every epoch is one member's, and higher than all before; nobody
// else makes its plans; no data plane goes back.
var leadership = porcupine.Model{
	Init: func() any { return term{owners: map[uint64]string{}, routes: map[string][2]uint64{}} },
	Step: func(state, input, _ any) (bool, any) { return state.(term).step(input.(act)) },
	Equal: func(x, y any) bool {
		a, b := x.(term), y.(term)
		return a.epoch == b.epoch && maps.Equal(a.owners, b.owners) && maps.Equal(a.routes, b.routes)
	},
}

func (s term) step(in act) (bool, any) {
	switch in.what {
	case leads:
		if in.epoch <= s.epoch {
			return false, s
		}
		owners := maps.Clone(s.owners)
		owners[in.epoch] = in.by
		return true, term{in.epoch, owners, s.routes}
	case plans:
		return s.owners[in.epoch] == in.by, s
	}
	last, next := s.routes[in.by], [2]uint64{in.epoch, in.version}
	if s.owners[in.epoch] == "" || slices.Compare(next[:], last[:]) < 0 {
		return false, s
	}
	routes := maps.Clone(s.routes)
	routes[in.by] = next
	return true, term{s.epoch, s.owners, routes}
}

var (
	stampLine = regexp.MustCompile(`(?m)^time=(\S+) .*?msg="?([^"\n]*?)"? (?:.* )?epoch=(\d+)(?: version=(\d+))?`)
	acts      = map[string]string{"leading": leads, "plan published": plans, "snapshot applied": applies}
)

// check holds the history against the rules.
func (h *history) check() {
	h.t.Helper()
	var ops []porcupine.Operation
	for client, s := range slices.Concat(h.members, h.planes) {
		ops = append(ops, s.operations(h.t, client)...)
	}
	require.NotEmpty(h.t, ops)
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	result := porcupine.CheckOperationsTimeout(leadership, ops, time.Minute)
	require.Equal(h.t, porcupine.Ok, result, "%v", ops)
}

// took bounds how long before its line in the log a plan is published or applied.
const took = 2 * time.Second

// operations are what one process did. Its log has the time when a thing was done; when it
// began is not before the last thing that it did. A leader may have stood still between.
func (s said) operations(t testing.TB, client int) (out []porcupine.Operation) {
	last := int64(0)
	for _, m := range stampLine.FindAllStringSubmatch(s.process.log.all(), -1) {
		at, err := time.Parse(time.RFC3339Nano, m[1])
		require.NoError(t, err)
		what, ok := acts[m[2]]
		if !ok {
			continue
		}
		epoch, _ := strconv.ParseUint(m[3], 10, 64)
		version, _ := strconv.ParseUint(m[4], 10, 64)
		end := at.Add(time.Millisecond).UnixNano() // the log rounds down
		begin := last + 1
		if what != leads {
			begin = max(begin, end-took.Nanoseconds())
		}
		out = append(out, porcupine.Operation{ClientId: client, Input: act{what, s.name, epoch, version}, Call: begin, Return: end})
		last = end
	}
	return out
}

// TestHistoryFindsTwoLeaders: the rules would notice.
func TestHistoryFindsTwoLeaders(t *testing.T) {
	op := func(at int64, what, by string, epoch, version uint64) porcupine.Operation {
		return porcupine.Operation{Input: act{what, by, epoch, version}, Call: at, Return: at}
	}
	for name, c := range map[string]struct {
		ops []porcupine.Operation
		ok  bool
	}{
		"in order":           {[]porcupine.Operation{op(1, leads, "a", 1, 0), op(2, plans, "a", 1, 1), op(3, applies, "x", 1, 1), op(4, leads, "b", 2, 0), op(5, plans, "a", 1, 2)}, true},
		"one epoch twice":    {[]porcupine.Operation{op(1, leads, "a", 1, 0), op(2, leads, "b", 1, 0)}, false},
		"an epoch that fell": {[]porcupine.Operation{op(1, leads, "a", 2, 0), op(2, leads, "b", 1, 0)}, false},
		"another's plan":     {[]porcupine.Operation{op(1, leads, "a", 1, 0), op(2, plans, "b", 1, 1)}, false},
		"went back":          {[]porcupine.Operation{op(1, leads, "a", 1, 0), op(2, leads, "b", 2, 0), op(3, applies, "x", 2, 1), op(4, applies, "x", 1, 9)}, false},
		"nobody's plan":      {[]porcupine.Operation{op(1, applies, "x", 1, 1)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.ok, porcupine.CheckOperations(leadership, c.ops))
		})
	}
}
