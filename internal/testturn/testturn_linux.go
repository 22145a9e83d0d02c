package testturn

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Take waits until no other test of this machine has the turn, and keeps it until the test ends. If
// its process dies the turn is free.
func Take(t testing.TB) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(os.TempDir(), "wardrop-test-turn"), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		t.Logf("without a turn: %v", err)
		return
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Logf("without a turn: %v", err)
	}
}
