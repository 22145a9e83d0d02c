package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wardrop-lb/wardrop/sim"
	"github.com/wardrop-lb/wardrop/sim/baseline"
)

type simCmd struct {
	File     string        `arg:"" help:"Scenario: a fleet, its load, and what happens to it; scenarios/ has some." type:"existingfile"`
	Policies []string      `help:"Policies to compare, in place of the scenario's; all takes every one." placeholder:"NAME,..."`
	Seed     uint64        `help:"Seed of the first run." default:"1"`
	Seeds    int           `help:"Run N seeds and give 95% confidence intervals." default:"1" placeholder:"N"`
	For      time.Duration `help:"Run that much virtual time, in place of the scenario's." placeholder:"DURATION"`
	Util     float64       `help:"Scale demand to that part of the engines' capacity, like 0.8." placeholder:"PART"`
	Steps    bool          `help:"Run engines step by step: slower, and what the fast mode is measured by."`
	JSON     bool          `help:"Print results as JSON."`
	HTML     string        `name:"html" help:"Write a report with pictures to this file, which needs no other." placeholder:"FILE"`
}

// makers are all policies that there are.
func makers() map[string]sim.Maker {
	all := sim.Policies()
	maps.Copy(all, baseline.Policies())
	return all
}

// Validate checks the numbers.
func (c *simCmd) Validate() error {
	if c.Seeds < 1 || c.Seeds > 1000 {
		return errors.New("--seeds: want 1 to 1000")
	}
	if c.Util < 0 || c.Util > 100 {
		return errors.New("--util: want 0 to 100")
	}
	return nil
}

// Run simulates the scenario under every policy and seed.
func (c *simCmd) Run(env *environment) error {
	s, err := c.load()
	if err != nil {
		return err
	}
	all := makers()
	for _, name := range s.Policies {
		if all[name] == nil {
			return usageError{fmt.Errorf("unknown policy %q: known are %s", name, strings.Join(slices.Sorted(maps.Keys(all)), ", "))}
		}
	}
	start := time.Now()
	summaries, err := c.runAll(env, s, all)
	if err != nil {
		return err
	}
	took := time.Since(start)
	bound, err := sim.Bound(s)
	if err != nil { // nothing else depends on it
		fmt.Fprintln(env.stderr, err)
	}
	if c.HTML != "" {
		if err := c.writeHTML(s, summaries, bound); err != nil {
			return err
		}
	}
	if err := c.print(env, s, summaries, bound, took); err != nil {
		return err
	}
	return c.check(env, s, summaries, bound)
}

func (c *simCmd) load() (*sim.Scenario, error) {
	s, err := loadScenario(c.File)
	if err != nil {
		return nil, err
	}
	if c.For > 0 {
		s.Shorten(c.For)
	}
	if c.Util > 0 {
		s.Utilise(c.Util)
	}
	if len(c.Policies) == 1 && c.Policies[0] == "all" {
		c.Policies = slices.Sorted(maps.Keys(makers()))
	}
	if len(c.Policies) > 0 {
		s.Policies = c.Policies
	}
	return s, nil
}

// loadScenario reads a scenario and the traces beside it.
func loadScenario(file string) (*sim.Scenario, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return sim.LoadScenario(file, data, func(name string) ([]byte, error) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(file), name)
		}
		return os.ReadFile(name)
	})
}

// runAll runs as many at once as there are cores; each run has one.
func (c *simCmd) runAll(env *environment, s *sim.Scenario, all map[string]sim.Maker) ([]*sim.Summary, error) {
	p := newProgress(env.stderr, len(s.Policies)*c.Seeds)
	defer p.done()
	summaries := make([]*sim.Summary, len(s.Policies))
	type job struct{ policy, seed int }
	jobs := make(chan job)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for i, name := range s.Policies {
		summaries[i] = &sim.Summary{Policy: name, Runs: make([]*sim.Result, c.Seeds)}
	}
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for j := range jobs {
				name := s.Policies[j.policy]
				tell := p.part()
				r, err := sim.Run(env.ctx, s, name, all[name], sim.Options{Seed: c.Seed + uint64(j.seed), Steps: c.Steps, Progress: tell})
				tell(1)
				mu.Lock()
				summaries[j.policy].Runs[j.seed] = r
				failed = errors.Join(failed, err)
				mu.Unlock()
			}
		})
	}
	for i := range s.Policies {
		for k := range c.Seeds {
			jobs <- job{i, k}
		}
	}
	close(jobs)
	wg.Wait()
	return summaries, failed
}

// print shows the results beside the bound, which is 0 when there is none.
func (c *simCmd) print(env *environment, s *sim.Scenario, all []*sim.Summary, bound float64, took time.Duration) error {
	if c.JSON {
		e := json.NewEncoder(env.stdout)
		e.SetIndent("", "  ")
		return e.Encode(struct {
			About    string         `json:"about"`
			Bound    float64        `json:"bound,omitempty"` // seconds
			Policies []*sim.Summary `json:"policies"`
		}{s.About, bound, all})
	}
	fmt.Fprintf(env.stdout, "%s\n\n", s.About)
	if err := sim.WriteTable(env.stdout, all); err != nil {
		return err
	}
	requests := 0
	for _, x := range all {
		for _, r := range x.Runs {
			requests += r.Arrived
			if r.Partial {
				fmt.Fprintf(env.stdout, "partial: %s was stopped\n", x.Policy)
			}
		}
	}
	printBound(env.stdout, all, bound)
	fmt.Fprintf(env.stdout, "%v of virtual time, %d requests measured, in %v\n", time.Duration(s.Duration), requests, took.Round(time.Millisecond))
	return nil
}

// printBound says how far from the bound each policy's mean is.
func printBound(w io.Writer, all []*sim.Summary, bound float64) {
	if bound == 0 {
		return
	}
	var above []string
	for _, x := range all {
		mean := 0.0
		for _, r := range x.Runs {
			mean += r.Whole.Mean / float64(len(x.Runs))
		}
		above = append(above, fmt.Sprintf("%s %+.1f %%", x.Policy, 100*(mean/bound-1)))
	}
	fmt.Fprintf(w, "\nfluid bound of the mean %.3gs, the optimum at the true mean rates by the engines' profiles, without chance and caches; from it: %s\n",
		bound, strings.Join(above, ", "))
}

// check looks at the scenario's expectations, by the first seed.
func (c *simCmd) check(env *environment, s *sim.Scenario, all []*sim.Summary, bound float64) error {
	var first []*sim.Result
	if bound > 0 {
		first = append(first, &sim.Result{Policy: "bound", Whole: sim.Latency{Mean: bound}})
	}
	for _, x := range all {
		if x.Runs[0].Partial {
			return env.ctx.Err()
		}
		first = append(first, x.Runs[0])
	}
	failed, _ := s.Check(first)
	for _, text := range failed {
		fmt.Fprintln(env.stderr, "not as expected:", text)
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d expectations of %s do not hold", len(failed), len(s.Expect), c.File)
	}
	return nil
}

func (c *simCmd) writeHTML(s *sim.Scenario, all []*sim.Summary, bound float64) error {
	return writeTo(c.HTML, nil, func(out io.Writer) error { return sim.WriteHTML(out, s, all, bound) })
}
