package integration

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// lastOfWire1 is the last commit whose binary speaks version 1 of the wire.
const lastOfWire1 = "1e19c85"

// oldBinary builds wardrop as it was.
func oldBinary(t *testing.T, commit string) string {
	t.Helper()
	if err := exec.Command("git", "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		t.Skipf("the history of this checkout does not reach back to %s, whose binary is needed", commit)
	}
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	for _, command := range [][]string{
		{"git", "clone", "--quiet", "--shared", "--no-checkout", "..", tree},
		{"git", "-C", tree, "checkout", "--quiet", commit},
		{"go", "build", "-C", tree, "-o", filepath.Join(dir, "wardrop"), "./cmd/wardrop"},
	} {
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		require.NoError(t, err, "%v: %s", command, out)
	}
	return filepath.Join(dir, "wardrop")
}

// TestRollingUpgrade: a member and a data plane of the version before work with those of this
// one, whoever leads.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{old: oldBinary(t, lastOfWire1)})
	before := f.allWeights()
	led := map[string]bool{}
	for range 20 {
		leader := f.settled("with both versions")
		led[leader.name] = true
		if led["c"] && len(led) > 1 {
			break
		}
		leader.kill()
		f.settled("without the leader")
		f.startMember(leader)
		f.until("it is back", func() bool { s, ok := leader.state(); return ok && len(s.DataPlanes) == len(f.planes) })
	}
	require.True(t, led["c"] && len(led) > 1, "both versions have led: %v", led)
	// One after the other is replaced.
	current, err := binary()
	require.NoError(t, err)
	f.load.pause("y")
	f.planes[1].kill()
	f.planes[1].binary = current
	f.startPlane(f.planes[1])
	f.load.resume("y")
	c := f.members[2]
	c.kill()
	c.binary = current
	f.startMember(c)
	f.settled("with one version")
	f.sameWeights(before)
	f.noneFailed()
}
