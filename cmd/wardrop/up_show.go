package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/term"

	"github.com/wardrop-lb/wardrop/explain"
	"github.com/wardrop-lb/wardrop/loadgen"
	"github.com/wardrop-lb/wardrop/sim"
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
				_, _ = io.WriteString(w, up.table())
			}
			return
		case <-s.ctx.Done():
			up.ended = time.Now()
			return
		case <-tick.C:
		}
		if quiet {
			continue
		}
		text := up.table()
		if terminal {
			text, lines = redraw(text, lines, int(file.Fd()))
		}
		_, _ = io.WriteString(w, text)
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

// redraw makes a text appear in place of the last one, which had so many lines.
func redraw(text string, last, fd int) (over string, lines int) {
	if width, height, err := term.GetSize(fd); err == nil {
		text = fit(text, width, height)
	}
	if last > 0 {
		text = fmt.Sprintf("\x1b[%dA\x1b[J", last) + text
	}
	return text, strings.Count(text, "\n")
}

// fit cuts a text to a terminal: a line that wraps, or that has scrolled away,
// could not be drawn over. The last two lines, which sum up, stay.
func fit(text string, width, height int) string {
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	const summary = 2
	if room := height - 1; room > summary && len(lines) > room {
		lines = slices.Concat(lines[:room-summary], lines[len(lines)-summary:])
	}
	for i, l := range lines {
		l = strings.TrimSuffix(l, "\n")
		if r := []rune(l); width > 0 && len(r) > width {
			l = string(r[:width])
		}
		lines[i] = l + "\n"
	}
	return strings.Join(lines, "")
}

// table shows what flows where, then the plan and the load in a line each.
func (up *fleetUp) table() string {
	out := &strings.Builder{}
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
		c := up.load()
		fmt.Fprintf(out, "load: %d sent, %d answered, %d shed, %d failed", c.Sent, c.Succeeded, c.Shed, c.Failed)
		if c.LastError != "" {
			fmt.Fprintf(out, " (last: %s)", c.LastError)
		}
		fmt.Fprintln(out)
	}
	return out.String()
}

// showResult prints what the scenario's clients saw, as sim does.
func (up *fleetUp) showResult(w io.Writer) error {
	fmt.Fprintf(w, "\n%s\n\n", up.scenario.About)
	if up.result.Partial {
		fmt.Fprintf(w, "partial: it was stopped after %.0f s\n", time.Since(up.loadSince).Seconds())
	}
	return sim.WriteTable(w, []*sim.Summary{{Policy: up.result.Policy, Runs: []*sim.Result{up.result}}})
}

// upReport is the final state. Counts are attempts at engines over the whole
// run; load is what an engine got, in requests/s since the load began, or since
// the start without one.
type upReport struct {
	Requests []upRequests        `json:"requests"`
	Engines  map[string]upEngine `json:"engines"`
	Plan     *explain.Plan       `json:"plan"`
	Load     *loadgen.Counts     `json:"load,omitempty"`
	Measured *sim.Result         `json:"measured,omitempty"` // of a scenario's file
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
	r := upReport{Requests: []upRequests{}, Engines: map[string]upEngine{}, Seconds: up.ended.Sub(since).Seconds(), Measured: up.result}
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
		c := up.load()
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
