package signals

import (
	"bytes"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

// TestAReadingAllocatesLittle: however many series a page has, what a reading
// allocates depends on those looked for.
func TestAReadingAllocatesLittle(t *testing.T) {
	p := pages{"/metrics": golden(t, "vllm_full.txt")}
	require.LessOrEqual(t, testing.AllocsPerRun(20, func() {
		if _, err := (vllm{"/metrics"}).Read(t.Context(), p.get); err != nil {
			t.Fatal(err)
		}
	}), 20.0)
}

// BenchmarkVLLMPage reads the largest page that a vLLM has, and has Prometheus'
// own parser read it in turns.
func BenchmarkVLLMPage(b *testing.B) {
	page := golden(b, "vllm_full.txt")
	p := pages{"/metrics": page}
	var ours, theirs time.Duration
	b.SetBytes(int64(len(page.Body)))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		begin := time.Now()
		if _, err := (vllm{"/metrics"}).Read(b.Context(), p.get); err != nil {
			b.Fatal(err)
		}
		ours += time.Since(begin)
		if n++; n%16 != 0 {
			continue
		}
		b.StopTimer()
		begin = time.Now()
		parser := expfmt.NewTextParser(model.UTF8Validation)
		if _, err := parser.TextToMetricFamilies(bytes.NewReader(page.Body)); err != nil {
			b.Fatal(err)
		}
		theirs += 16 * time.Since(begin)
		b.StartTimer()
	}
	b.ReportMetric(float64(theirs)/float64(ours)*float64(n)/float64(n/16*16), "expfmt/ours")
}
