package proxy

import (
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/route"
)

// alias is a name that stands for one or more models.
type alias struct {
	name   string
	models []string  // sorted
	upTo   []float64 // cumulative parts; the last is 1
	shared *route.Popularity
}

// aliasSpread is the number of parts that an alias's keys are told apart for.
const aliasSpread = 16

func newAliases(list []config.Alias) map[string]*alias {
	out := make(map[string]*alias, len(list))
	for _, c := range list {
		a := &alias{name: c.Name, models: slices.Sorted(maps.Keys(c.To)), shared: route.NewPopularity(aliasSpread)}
		sum := 0.0
		for _, m := range a.models {
			sum += c.To[m]
			a.upTo = append(a.upTo, sum)
		}
		for i := range a.upTo {
			a.upTo[i] /= sum
		}
		out[c.Name] = a
	}
	return out
}

// choose gives the model for a key: the same for the same key.
func (a *alias) choose(key uint64) string {
	x := float64(key>>11) / (1 << 53)
	for i, up := range a.upTo {
		if x < up {
			return a.models[i]
		}
	}
	return a.models[len(a.models)-1]
}

// rename puts another model's name in the place of the one in the body. Nothing
// else changes.
func (b *bodyBuffer) rename(at [2]int, model string, quoted bool) (*bodyBuffer, error) {
	name := []byte(model)
	if quoted {
		var err error
		if name, err = jsontext.AppendQuote(nil, model); err != nil {
			return nil, err
		}
	}
	data := make([]byte, 0, len(b.data)+len(name))
	data = append(data, b.data[:at[0]]...)
	data = append(data, name...)
	return newBody(append(data, b.data[at[1]:]...)), nil
}
