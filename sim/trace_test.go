package sim

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	mooncake = `{"timestamp":0,"input_length":1000,"output_length":5,"hash_ids":[0,1]}
{"timestamp":3000,"input_length":1500,"output_length":7,"hash_ids":[0,1,2]}
`
	bailian = `{"chat_id":1,"parent_chat_id":-1,"timestamp":0.5,"input_length":20,"output_length":5,"type":"text","turn":1,"hash_ids":[5,6]}
{"chat_id":2,"parent_chat_id":1,"timestamp":1.5,"input_length":40,"output_length":5,"type":"text","turn":2,"hash_ids":[5,6,7]}
`
	azure    = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n"
	burstgpt = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,10,0,10,x\n118,GPT-4,417,276,693,y\n"
	rates    = "model,client,window_start_s,rate_rps,cv,pattern,shape,scale\nm,1,600,2,1.1,Gamma,0.7,0.5\nm,1,1200,1,,,,\n"
	lengths  = "model,client,window_start_s,field,mean,p01,p05,p10,p25,p50,p75,p90,p95,p99,p999\n" +
		"m,1,0,input_tokens,25,18,19,19,20,27,28,31,32,38,46\nm,1,0,output_tokens,3,1,1,1,2,2,3,6,8,14,25\n"
)

func files(name string) ([]byte, error) {
	text, ok := map[string]string{"mooncake": mooncake, "bailian": bailian, "azure": azure, "burstgpt": burstgpt, "rates": rates, "lengths": lengths}[name]
	if !ok {
		return nil, os.ErrNotExist
	}
	return []byte(text), nil
}

func TestTraceFormats(t *testing.T) {
	read := func(format string) *Trace {
		x := &Trace{File: format, Format: format}
		if format == "servegen" {
			x.File, x.Lengths = "rates", "lengths"
		}
		require.NoError(t, x.read(files), format)
		return x
	}
	m := read("mooncake")
	require.Len(t, m.requests, 2)
	require.Equal(t, 1000, m.requests[0].prompt)
	require.Equal(t, []int{512, 1000}, []int{m.requests[0].prefix[0].End, m.requests[0].prefix[1].End})
	require.Equal(t, m.requests[0].prefix[0], m.requests[1].prefix[0])
	require.Equal(t, 1500, m.requests[1].prefix[2].End)
	b := read("bailian")
	require.Equal(t, time.Second, b.requests[1].at)
	require.Equal(t, []int{16, 20}, []int{b.requests[0].prefix[0].End, b.requests[0].prefix[1].End})
	a := read("azure")
	require.Equal(t, 52*time.Millisecond, a.requests[1].at)
	require.Equal(t, []int{3180, 8}, []int{a.requests[1].prompt, a.requests[1].output})
	g := read("burstgpt")
	require.Len(t, g.requests, 2, "what failed there is left out")
	require.Equal(t, 113*time.Second, g.requests[1].at)
	s := read("servegen")
	require.InDelta(t, 1800, float64(len(s.requests)), 250, "two a second for ten minutes, then one")
	prompt, output, _ := s.usual()
	require.InDelta(t, 25, prompt, 2)
	require.InDelta(t, 3, output, 0.6)
	_, _, repeated := m.usual()
	require.InDelta(t, 512, repeated, 1, "of the second prompt, two blocks were in the first")
}

func TestTraceMistakes(t *testing.T) {
	for want, x := range map[string]struct{ format, text string }{
		"t:2: invalid character":               {"mooncake", mooncake[:strings.Index(mooncake, "\n")] + "\n{x"},
		"t:1: want timestamp, input_length":    {"mooncake", `{"a":1}` + "\n"},
		`t:1: no column "GeneratedTokens"`:     {"azure", "TIMESTAMP,ContextTokens\n"},
		`t:2: parsing time "yesterday"`:        {"azure", "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n"},
		`t:3: strconv.Atoi: parsing "many"`:    {"azure", strings.Replace(azure, "3180", "many", 1)},
		"t: fewer than two requests":           {"azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n"},
		"t: all requests come at once":         {"bailian", strings.Replace(bailian, "1.5", "0.5", 1)},
		"file does not exist":                  {"azure", ""},
		`t:2: strconv.ParseFloat: parsing "x"`: {"burstgpt", strings.Replace(burstgpt, "\n5,", "\nx,", 1)},
	} {
		trace := &Trace{File: "t", Format: x.format}
		err := trace.read(func(string) ([]byte, error) {
			if x.text == "" {
				return nil, os.ErrNotExist
			}
			return []byte(x.text), nil
		})
		require.ErrorContains(t, err, want)
	}
}

// TestReplay: all of a trace's requests come, at the demand's rate, round after round,
// and a round finds nothing of the one before in a cache.
func TestReplay(t *testing.T) {
	text := strings.Replace(small, "load:", "traces:\n  - {file: mooncake, format: mooncake}\nload:", 1)
	s, err := LoadScenario("s.yaml", []byte(text), files)
	require.NoError(t, err)
	r := simulate(t, s, "optimal", Options{Seed: 1})
	require.InEpsilon(t, 50*120, r.Arrived, 0.02)
	require.InEpsilon(t, 1250*r.Arrived, r.Prompt, 0.01)
	require.InDelta(t, 0.41, float64(r.Cacheable)/float64(r.Prompt), 0.01)
	_, err = LoadScenario("s.yaml", []byte(strings.Replace(text, "file: mooncake", "file: gone", 1)), files)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestPublicTraces reads the real ones where somebody has put them.
func TestPublicTraces(t *testing.T) {
	for _, name := range []string{"mooncake", "azure-code", "servegen"} {
		file := filepath.Join("..", "scenarios", "traces", name+".yaml")
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		s, err := LoadScenario(file, text, func(name string) ([]byte, error) {
			b, err := os.ReadFile(filepath.Join(filepath.Dir(file), name))
			if errors.Is(err, os.ErrNotExist) {
				b, err = os.ReadFile(filepath.Join("..", "..", "shared", "traces", name))
			}
			return b, err
		})
		if errors.Is(err, os.ErrNotExist) {
			t.Skip("the public traces are not there, see scenarios/traces/README.md")
		}
		require.NoError(t, err)
		require.Greater(t, len(s.Traces[0].requests), 5000, name)
	}
}

func FuzzTraces(f *testing.F) {
	for _, text := range []string{mooncake, bailian, azure, burstgpt} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for name := range formats {
			x := &Trace{File: "t", Format: name}
			if x.read(func(string) ([]byte, error) { return data, nil }) != nil {
				continue
			}
			for i := range x.requests {
				r := &x.requests[i]
				if r.prompt < 1 || r.output < 1 || i > 0 && r.at < x.requests[i-1].at {
					t.Fatalf("%s: %+v", name, r)
				}
				for k, b := range r.prefix {
					if b.End > r.prompt || k > 0 && b.End <= r.prefix[k-1].End {
						t.Fatalf("%s: %+v", name, r)
					}
				}
			}
		}
	})
}

func FuzzScenario(f *testing.F) {
	f.Add([]byte(small))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := LoadScenario("s.yaml", data, files)
		if (s == nil) == (err == nil) {
			t.Fatal("a scenario or an error, never both or neither")
		}
	})
}
