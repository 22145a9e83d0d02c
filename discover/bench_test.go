package discover

import (
	"fmt"
	"testing"

	"github.com/wardrop-lb/wardrop/config"
)

// What a change costs in a fleet of ten thousand found engines.
func BenchmarkMerge(b *testing.B) {
	c := parse(b, mergeFile)
	var engines []config.Engine
	for i := range maxEngines {
		engines = append(engines, config.Engine{URL: fmt.Sprintf("http://10.1.%d.%d:8000", i/250, i%250)})
	}
	found := map[string][]config.Engine{"one": engines}
	for b.Loop() {
		merge(c, found, nil)
	}
}
