package main

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// forgetPages unmaps the pages of the binary. Those that are used come back from the page cache as they
// are touched; those that only a start touches, which initialises what every role is linked with, do not,
// and they are three times as many. It does what it can: without it everything goes on as well.
func forgetPages() {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer func() { _ = maps.Close() }()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		if begin, end, ok := unwritten(lines.Text(), self); ok {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, begin, end-begin, unix.MADV_DONTNEED)
		}
	}
}

// unwritten reads a line of /proc/self/maps; false unless it is a mapping of the file that nobody
// can have written to.
func unwritten(line, file string) (begin, end uintptr, ok bool) {
	fields := strings.Fields(line)
	if len(fields) != 6 || fields[5] != file || strings.Contains(fields[1], "w") {
		return 0, 0, false
	}
	from, to, _ := strings.Cut(fields[0], "-")
	first, err1 := strconv.ParseUint(from, 16, 64)
	last, err2 := strconv.ParseUint(to, 16, 64)
	return uintptr(first), uintptr(last), err1 == nil && err2 == nil && first < last
}
