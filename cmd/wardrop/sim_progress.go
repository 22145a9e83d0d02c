package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// progress shows how far several runs are: a bar on a terminal, a line now and then
// elsewhere. Safe for concurrent use.
type progress struct {
	mu       sync.Mutex
	out      io.Writer
	terminal bool
	runs     int
	parts    []float64
	last     time.Time
}

func newProgress(out io.Writer, runs int) *progress {
	file, _ := out.(*os.File)
	return &progress{out: out, terminal: file != nil && term.IsTerminal(int(file.Fd())), runs: runs, last: time.Now()}
}

// part is for one run to tell how far it is, 0 to 1.
func (p *progress) part() func(float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := len(p.parts)
	p.parts = append(p.parts, 0)
	return func(part float64) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.parts[i] = part
		p.show()
	}
}

func (p *progress) show() {
	interval := 10 * time.Second
	if p.terminal {
		interval = 100 * time.Millisecond
	}
	if time.Since(p.last) < interval {
		return
	}
	p.last = time.Now()
	sum := 0.0
	for _, x := range p.parts {
		sum += x
	}
	done := sum / float64(p.runs)
	if !p.terminal {
		fmt.Fprintf(p.out, "%.0f %% of %d runs\n", 100*done, p.runs)
		return
	}
	const width = 40
	full := int(width * done)
	fmt.Fprintf(p.out, "\r[%s%s] %3.0f %% of %d runs ", strings.Repeat("#", full), strings.Repeat(".", width-full), 100*done, p.runs)
}

// done takes the bar away.
func (p *progress) done() {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
