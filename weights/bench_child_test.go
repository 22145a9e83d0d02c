package weights

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
)

// publishForBench makes the test binary a publisher, and nothing else: its address, its epoch,
// and how many models cluster-00 has.
const publishForBench = "WARDROP_BENCH_PUBLISHER"

// TestPublishForBench is a publisher in a process of its own; it ends with its input. A line
// with a number has it publish that many plans, and every line has it say its resident memory
// and its heap, after a collection, in KiB, and how many messages and bytes it has sent.
func TestPublishForBench(t *testing.T) {
	fields := strings.Fields(os.Getenv(publishForBench))
	if len(fields) == 0 {
		t.Skip("a process of the benchmarks")
	}
	epoch, err := strconv.ParseUint(fields[1], 10, 64)
	require.NoError(t, err)
	models, err := strconv.Atoi(fields[2])
	require.NoError(t, err)
	snapshots := fleetOf(1, models)
	for _, s := range snapshots {
		s.Epoch = epoch
	}
	sent := &sentBytes{}
	s := serve(t, fields[0], grpc.StatsHandler(sent))
	defer s.stop()
	require.NoError(t, s.Publish(snapshots))
	random := rand.New(rand.NewPCG(epoch, 0))
	fmt.Printf("listening %s\n", s.addr)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		n, _ := strconv.Atoi(in.Text())
		for range n {
			snapshots = shift(random, snapshots)
			require.NoError(t, s.Publish(snapshots))
		}
		rss := resident()
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		fmt.Printf("%d %d %d %d\n", rss, m.HeapInuse>>10, sent.messages.Load(), sent.bytes.Load())
	}
}

// resident is the process's resident memory, in KiB.
func resident() (kib int) {
	b, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	_, _ = fmt.Sscan(rest, &kib)
	return kib
}

// publisherProcess is a publisher in a process of its own.
type publisherProcess struct {
	tb    testing.TB
	addr  string
	in    io.WriteCloser
	lines *bufio.Scanner
	cmd   *exec.Cmd
}

func publisherChild(tb testing.TB, addr string, epoch, models int) *publisherProcess {
	tb.Helper()
	p := &publisherProcess{tb: tb, cmd: exec.Command(os.Args[0], "-test.run=^TestPublishForBench$")}
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d", publishForBench, addr, epoch, models))
	p.cmd.Stderr = os.Stderr
	var err error
	p.in, err = p.cmd.StdinPipe()
	require.NoError(tb, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(tb, err)
	require.NoError(tb, p.cmd.Start())
	p.lines = bufio.NewScanner(out)
	require.True(tb, p.lines.Scan())
	p.addr = strings.TrimPrefix(p.lines.Text(), "listening ")
	return p
}

// end stops it; kill does it as a crash would.
func (p *publisherProcess) end(kill bool) {
	if kill {
		_ = p.cmd.Process.Kill()
	}
	_ = p.in.Close()
	_ = p.cmd.Wait()
}

// usage is what a publisher says of itself; memory in MiB.
type usage struct {
	resident, heap  float64
	messages, bytes int64
}

// publish has it publish n plans, which may be none, and say how it is.
func (p *publisherProcess) publish(n int) (u usage) {
	p.tb.Helper()
	_, err := fmt.Fprintln(p.in, n)
	require.NoError(p.tb, err)
	require.True(p.tb, p.lines.Scan())
	_, err = fmt.Sscan(p.lines.Text(), &u.resident, &u.heap, &u.messages, &u.bytes)
	require.NoError(p.tb, err)
	u.resident, u.heap = u.resident/1024, u.heap/1024
	return u
}
