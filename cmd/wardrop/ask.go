package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/wardrop-lb/wardrop/admin"
)

// askFlags are those of commands that show what a running control plane knows.
type askFlags struct {
	adminFlags
	JSON  bool `help:"Print JSON."`
	Watch bool `short:"w" help:"Show it anew every second, until interrupted."`
}

const watchInterval = time.Second

// show asks the member that leads and prints; write prints for people.
func show[T any](f *askFlags, env *environment, ask func(context.Context, admin.Client) (T, error), write func(io.Writer, T) error) error {
	return showAnswer(f, env, func(ctx context.Context) (answer T, err error) {
		a, err := f.client(ctx)
		if err != nil {
			return answer, err
		}
		return ask(ctx, a)
	}, write)
}

// showAnswer prints what ask gives.
func showAnswer[T any](f *askFlags, env *environment, ask func(context.Context) (T, error), write func(io.Writer, T) error) error {
	render := func(ctx context.Context) (string, error) {
		answer, err := ask(ctx)
		if err != nil {
			return "", err
		}
		out := &strings.Builder{}
		if f.JSON {
			e := json.NewEncoder(out)
			e.SetIndent("", "  ")
			err = e.Encode(answer)
		} else {
			err = write(out, answer)
		}
		return out.String(), err
	}
	if f.Watch {
		return watch(env.ctx, env.stdout, render)
	}
	text, err := render(env.ctx)
	if err == nil {
		_, err = io.WriteString(env.stdout, text)
	}
	return err
}

// watch shows what render gives every second, in place of the last on a terminal, until
// ctx is done. A control plane that goes away meanwhile is waited for.
func watch(ctx context.Context, w io.Writer, render func(context.Context) (string, error)) error {
	file, _ := w.(*os.File)
	terminal := file != nil && term.IsTerminal(int(file.Fd()))
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for lines, first := 0, true; ; first = false {
		text, err := render(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil:
			text = fmt.Sprintf("wardrop: %v\n", err)
		}
		if terminal {
			text, lines = redraw(text, lines, int(file.Fd()))
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// column is one of a table; an empty cell has nothing to say.
type column[T any] struct {
	head string
	cell func(T) string
}

// writeTable prints rows, without the columns that say nothing in any of them.
func writeTable[T any](w io.Writer, rows []T, columns []column[T]) error {
	used := columns[:0:0]
	for _, c := range columns {
		for _, r := range rows {
			if c.cell(r) != "" {
				used = append(used, c)
				break
			}
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, c := range used {
		fmt.Fprint(t, c.head, end(i, len(used)))
	}
	for _, r := range rows {
		for i, c := range used {
			cell := c.cell(r)
			if cell == "" {
				cell = "-"
			}
			fmt.Fprint(t, cell, end(i, len(used)))
		}
	}
	return t.Flush()
}

// end is what stands behind a cell.
func end(i, n int) string {
	if i == n-1 {
		return "\n"
	}
	return "\t"
}

// number writes one that may be absent.
func number(x *float64, format string) string {
	if x == nil {
		return ""
	}
	return fmt.Sprintf(format, *x)
}

// positive writes a number that says nothing when it is 0.
func positive(x float64, format string) string {
	if x == 0 {
		return ""
	}
	return fmt.Sprintf(format, x)
}

// age writes seconds since.
func age(seconds float64) string {
	if seconds >= 100 {
		return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
	}
	return fmt.Sprintf("%.1fs", seconds)
}
