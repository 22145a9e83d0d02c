package integration

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// recordedPlans are those that a member can explain, as EPOCH.VERSION.
func (m *member) recordedPlans() (out []string) {
	var answer struct {
		Plans []struct{ Epoch, Version uint64 }
	}
	m.get("http://"+m.admin+"/v1/plans", &answer)
	for _, p := range answer.Plans {
		out = append(out, fmt.Sprintf("%d.%d", p.Epoch, p.Version))
	}
	return out
}

// TestWhyChangeSpansAFailover: what a leader did can be asked for when it is dead, beside what its
// successor does; and a member that was away has it all again when it is back.
func TestWhyChangeSpansAFailover(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{})
	dead := f.settled("it begins")
	_, was := f.leader()
	last := func() string { return fmt.Sprintf("%d.%d", was.Epoch, was.Version) }
	f.until("the others have the leader's plan", func() bool {
		_, was = f.leader()
		return was.Version > 0 && !slices.ContainsFunc(f.members, func(m *member) bool { return !slices.Contains(m.recordedPlans(), last()) })
	})
	dead.stop(syscall.SIGKILL)
	f.another(dead, was)
	next := f.settled("after the fail-over")
	_, is := f.leader()
	first := fmt.Sprintf("%d.1", is.Epoch)
	f.until("its plan is recorded", func() bool { return slices.Contains(next.recordedPlans(), first) })

	why := func(args ...string) string {
		out, err := exec.Command(f.binary, append([]string{"why", "change"}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	span := []string{"--from", last(), "--to", first}
	require.Contains(t, why(append(span, "-c", f.file)...), fmt.Sprintf("from plan %s to %s, ", last(), first))
	var change struct {
		From, To [2]uint64
		Words    []string
	}
	require.NoError(t, json.Unmarshal([]byte(why(append(span, "--json", "-c", f.file)...)), &change))
	require.Equal(t, [2]uint64{was.Epoch, was.Version}, change.From)
	require.Equal(t, [2]uint64{is.Epoch, 1}, change.To)
	require.NotEmpty(t, change.Words)

	f.startMember(dead)
	f.until("it answers again", func() bool { _, ok := dead.state(); return ok })
	require.Contains(t, why(append(span, "--admin", dead.admin)...), fmt.Sprintf("from plan %s to %s, ", last(), first), "it asks the others when it is asked")
}
