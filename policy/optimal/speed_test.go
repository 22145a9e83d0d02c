package optimal

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/wardrop-lb/wardrop/fleet"
	"os"
	"runtime/pprof"
)

func cpu() time.Duration {
	var ts syscall.Timespec
	_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 3, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}

var ViewX func(multi float64, big bool) *fleet.View

func TestX(t *testing.T) {
	runtime.LockOSThread()
	if os.Getenv("PROF") != "" {
		f, _ := os.Create("/tmp/cpu.out")
		_ = pprof.StartCPUProfile(f)
		defer pprof.StopCPUProfile()
	}
	multi := 0.0
	if os.Getenv("MULTI") != "" {
		multi = 0.2
	}
	for _, big := range []bool{false, true} {
		v := ViewX(multi, big)
		p := New(Options{})
		n := 0
		_, err := p.Plan(v, nil)
		if err != nil {
			t.Fatal(err)
		}
		best := [6]time.Duration{1e18, 1e18, 1e18, 1e18, 1e18, 1e18}
		gap := 0.0
		pr := make([]float64, len(v.Engines))
		pricer := NewPricer(v)
		for range 60 {
			n = 0
			t0 := cpu()
			_ = p.see(v)
			p.tick.past = nil
			t1 := cpu()
			_ = p.solve()
			for _, s := range p.solvers {
				n += s.interior.iterations
			}
			t2 := cpu()
			plan := p.blank()
			p.snapper.snap(neat)
			p.snapper.write(plan)
			t3 := cpu()
			c, err := p.judge.Measure(v, nil, plan, p.problem)
			if err != nil {
				t.Fatal(err)
			}
			t4 := cpu()
			pricer.Pass(pr)
			t5 := cpu()
			gap = c.Gap
			p.Recycle(plan)
			for i, d := range []time.Duration{t1 - t0, t2 - t1, t3 - t2, t4 - t3, t5 - t4} {
				best[i] = min(best[i], d)
			}
		}
		fmt.Println(len(v.Engines), "see", best[0], "solve", best[1], "write", best[2], "cert", best[3], "pass", best[4], "gap", gap, "its", n, "passes", float64(best[1])/float64(best[4]))
	}
}
