package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// readServeGen makes requests of ServeGen's published laws (Xiang et al. 2025): each
// client's rate and law of arrivals by windows of ten minutes, and quantiles of its
// sizes by windows of six hours. Only the first hour is made; whoever reads it gets the
// same requests.
func readServeGen(rates, lengths []byte) ([]traced, error) {
	sizes, err := readSizes(lengths)
	if err != nil {
		return nil, fmt.Errorf("lengths:%w", err)
	}
	earliest := math.Inf(1)
	err = table(rates, []string{"window_start_s"}, func(_ int, cell []string) error {
		start, err := strconv.ParseFloat(cell[0], 64)
		earliest = min(earliest, start)
		return err
	})
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(3, 4))
	var out []traced
	err = table(rates, []string{"model", "client", "window_start_s", "rate_rps", "pattern", "shape"}, func(_ int, cell []string) error {
		start, err1 := strconv.ParseFloat(cell[2], 64)
		rate, err2 := strconv.ParseFloat(cell[3], 64)
		if err1 != nil || err2 != nil {
			return fmt.Errorf("want numbers in window_start_s and rate_rps")
		}
		shape, _ := strconv.ParseFloat(cell[5], 64) // empty where no law was fitted
		client := sizes.of(cell[0]+"/"+cell[1], start)
		if client == nil || rate <= 0 || start >= earliest+serveGenSpan {
			return nil
		}
		for t := 0.0; ; {
			t += gapOf(random, cell[4], shape) / rate
			if t >= serveGenWindow {
				return nil
			}
			out = append(out, traced{
				at:     time.Duration((start + t) * 1e9),
				prompt: client.input.draw(random.Float64()), output: client.output.draw(random.Float64()),
			})
			if len(out) > serveGenMost {
				return fmt.Errorf("more than %d requests: take a part of the file", serveGenMost)
			}
		}
	})
	return out, err
}

const (
	serveGenWindow = 600.0  // seconds
	serveGenSpan   = 3600.0 // seconds
	serveGenMost   = 20_000_000
)

// gapOf is a time of mean 1 by a fitted law.
func gapOf(r *rand.Rand, law string, shape float64) float64 {
	switch {
	case law == "Gamma" && shape > 0:
		return gamma(r, shape) / shape
	case law == "Weibull" && shape > 0:
		return math.Pow(r.ExpFloat64(), 1/shape) / math.Gamma(1+1/shape)
	}
	return r.ExpFloat64()
}

// quantileLevels are those that the file has.
var quantileLevels = []float64{0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 0.999}

var quantileNames = []string{"p01", "p05", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "p999"}

type quantilesOf [10]float64

// draw goes in straight lines from quantile to quantile.
func (q *quantilesOf) draw(u float64) int {
	i, _ := slices.BinarySearch(quantileLevels, u)
	switch {
	case i == 0:
		return max(1, int(q[0]))
	case i == len(q):
		return max(1, int(q[len(q)-1]))
	}
	part := (u - quantileLevels[i-1]) / (quantileLevels[i] - quantileLevels[i-1])
	return max(1, int(math.Round(q[i-1]+part*(q[i]-q[i-1]))))
}

type clientSizes struct {
	start         float64
	input, output quantilesOf
}

type sizesByClient map[string][]*clientSizes

// of is a client's sizes at a time: those of the last window that began before.
func (s sizesByClient) of(client string, at float64) *clientSizes {
	var best *clientSizes
	for _, x := range s[client] {
		if best == nil || x.start <= at && x.start > best.start {
			best = x
		}
	}
	return best
}

func readSizes(data []byte) (sizesByClient, error) {
	out := sizesByClient{}
	columns := append([]string{"model", "client", "window_start_s", "field"}, quantileNames...)
	err := table(data, columns, func(_ int, cell []string) error {
		start, err := strconv.ParseFloat(cell[2], 64)
		if err != nil {
			return err
		}
		var q quantilesOf
		for i := range q {
			if q[i], err = strconv.ParseFloat(cell[4+i], 64); err != nil {
				return err
			}
		}
		client := cell[0] + "/" + cell[1]
		i := slices.IndexFunc(out[client], func(x *clientSizes) bool { return x.start == start })
		if i < 0 {
			i = len(out[client])
			out[client] = append(out[client], &clientSizes{start: start})
		}
		switch cell[3] {
		case "input_tokens":
			out[client][i].input = q
		case "output_tokens":
			out[client][i].output = q
		}
		return nil
	})
	return out, err
}
