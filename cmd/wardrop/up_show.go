package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/term"

	"github.com/wardrop-lb/wardrop/explain"
	"github.com/wardrop-lb/wardrop/loadgen"
)

const (
	showTerminal = time.Second
	showLog      = 10 * time.Second // where lines are kept, not redrawn
)

// show prints the live table until ctx is done and the load's last answers are
// in: redrawn on a terminal, now and then elsewhere.
func (up *fleetUp) show(ctx context.Context, s *servers, w io.Writer, quiet bool) {
	file, _ := w.(*os.File)
	terminal := file != nil && term.IsTerminal(int(file.Fd()))
	interval := showLog
	if terminal {
		interval = showTerminal
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	lines := 0
	for {
		select {
		case <-ctx.Done():
			up.ended = time.Now()
			up.settle(s)
			if !quiet {
				up.draw(w, false, 0)
			}
			return
		case <-s.ctx.Done():
			return
		case <-tick.C:
			if !quiet {
				lines = up.draw(w, terminal, lines)
			}
		}
	}
}

// settle waits for the load's last answers.
func (up *fleetUp) settle(s *servers) {
	if up.load == nil {
		return
	}
	select {
	case <-up.loadDone:
	case <-s.ctx.Done():
	}
}

// countLines counts what passes through it.
type countLines struct {
	io.Writer
	n int
}

func (c *countLines) Write(b []byte) (int, error) {
	for _, x := range b {
		if x == '\n' {
			c.n++
		}
	}
	return c.Writer.Write(b)
}

// draw prints the table over the last one and returns its height.
func (up *fleetUp) draw(w io.Writer, over bool, last int) int {
	if over && last > 0 {
		fmt.Fprintf(w, "\x1b[%dA\x1b[J", last)
	}
	out := &countLines{Writer: w}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nCLUSTER\tMODEL\tENGINE\tWEIGHT\tREQ/S\tFIRST BYTE\tIN FLIGHT\tREQUESTS\tFAILED\n")
	for _, p := range up.planes {
		for _, x := range p.Stats() {
			fmt.Fprintf(t, "%s\t%s\t%s\t%.3f\t%.1f\t%.0f ms\t%d\t%d\t%d\n",
				p.cluster, x.Model, x.Engine, x.Weight, x.Rate, 1e3*x.FirstByte, x.InFlight, x.Requests, x.Failed)
		}
	}
	_ = t.Flush()
	if s := up.control.State(); s != nil {
		fmt.Fprintf(out, "plan %d.%d (epoch.version), policy %s, gap %.1e, tick %.1f ms", s.Plan.Epoch, s.Plan.Version, s.Plan.Policy, s.Plan.Gap, 1e3*s.TickTook.Seconds())
		if s.Trouble != "" {
			fmt.Fprintf(out, ", fallback in force: %s", s.Trouble)
		}
		fmt.Fprintln(out)
	}
	if up.load != nil {
		c := up.load.Counts()
		fmt.Fprintf(out, "load: %d sent, %d answered, %d shed, %d failed", c.Sent, c.Succeeded, c.Shed, c.Failed)
		if c.LastError != "" {
			fmt.Fprintf(out, " (last: %s)", c.LastError)
		}
		fmt.Fprintln(out)
	}
	return out.n
}

// upReport is the final state. Counts are attempts at engines over the whole
// run; load is what an engine got, in requests/s since the load began, or since
// the start without one.
type upReport struct {
	Requests []upRequests        `json:"requests"`
	Engines  map[string]upEngine `json:"engines"`
	Plan     *explain.Plan       `json:"plan"`
	Load     *loadgen.Counts     `json:"load,omitempty"`
	Seconds  float64             `json:"seconds"`
}

type upRequests struct {
	Cluster string `json:"cluster"`
	Model   string `json:"model"`
	Engine  string `json:"engine"`
	Count   uint64 `json:"count"`
	Failed  uint64 `json:"failed"`
}

type upEngine struct {
	Load     float64 `json:"load"`
	Capacity float64 `json:"capacity"`
}

func (up *fleetUp) report(path string) error {
	since := up.started
	if up.load != nil {
		since = up.loadSince
	}
	r := upReport{Requests: []upRequests{}, Engines: map[string]upEngine{}, Seconds: up.ended.Sub(since).Seconds()}
	plan := up.control.State().Plan
	r.Plan = explain.NewPlan(plan)
	for _, e := range plan.Engines {
		r.Engines[e.Name] = upEngine{Capacity: e.Capacity}
	}
	for _, p := range up.planes {
		for _, x := range p.Stats() {
			r.Requests = append(r.Requests, upRequests{p.cluster, x.Model, x.Engine, x.Requests, x.Failed})
			e := r.Engines[x.Engine]
			e.Load += float64(x.Requests) / r.Seconds
			r.Engines[x.Engine] = e
		}
	}
	if up.load != nil {
		c := up.load.Counts()
		r.Load = &c
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
