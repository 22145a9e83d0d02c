package testaddr

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
)

// given are the addresses that Own gave: those of a process that is not running are still its own.
var given sync.Map

// Own gives a free address of this machine that nothing else takes meanwhile: no other test of
// this process, and, where the whole of 127.0.0.0/8 is this machine's, no other process either, not
// even for a connection of its own, which begins at 127.0.0.1. Safe for concurrent use.
func Own(t testing.TB) string {
	t.Helper()
	host := "127.0.0.1"
	if runtime.GOOS == "linux" {
		host = fmt.Sprintf("127.%d.%d.1", 1+os.Getpid()>>8&0x7f, os.Getpid()&0xff)
	}
	for {
		l, err := net.Listen("tcp", host+":0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		_ = l.Close()
		if _, before := given.LoadOrStore(addr, true); !before {
			return addr
		}
	}
}
