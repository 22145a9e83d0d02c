package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnwrittenPages(t *testing.T) {
	for line, want := range map[string]bool{
		"00400000-01801000 r-xp 00001000 08:01 123                    /bin/wardrop":           true,
		"01801000-03000000 r--p 01402000 08:01 123                    /bin/wardrop":           true,
		"03000000-03100000 rw-p 02c00000 08:01 123                    /bin/wardrop":           false,
		"7f0000000000-7f0000100000 r-xp 00000000 08:01 9              /lib/libc.so.6":         false,
		"c000000000-c000400000 rw-p 00000000 00:00 0 ":                                        false,
		"00400000-01801000 r-xp 00001000 08:01 123                    /bin/wardrop (deleted)": false,
		"zz-01801000 r-xp 00001000 08:01 123                          /bin/wardrop":           false,
		"": false,
	} {
		_, _, ok := unwritten(line, "/bin/wardrop")
		require.Equal(t, want, ok, line)
	}
	begin, end, _ := unwritten("00400000-01801000 r-xp 00001000 08:01 123 /bin/wardrop", "/bin/wardrop")
	require.EqualValues(t, 0x400000, begin)
	require.EqualValues(t, 0x1801000, end)
}

// What is unmapped comes back: this process goes on.
func TestForgetPages(t *testing.T) {
	forgetPages()
	_, err := os.Readlink("/proc/self/exe")
	require.NoError(t, err)
	code, out, _ := command(t, "--help")
	require.Zero(t, code)
	require.Contains(t, out, "Wardrop balances")
}
