package testaddr

import "testing"

// The kernel gives a port anew as soon as it is free: of 300, a few twice.
func TestOwnNeverTwice(t *testing.T) {
	seen := map[string]bool{}
	for range 2000 {
		addr := Own(t)
		if seen[addr] {
			t.Fatalf("%s twice", addr)
		}
		seen[addr] = true
	}
}
