package route

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func prefix(parts ...string) *Prefix {
	p := &Prefix{}
	for _, s := range parts {
		p.Add([]byte(s))
	}
	return p
}

func TestPrefixChains(t *testing.T) {
	one, two := prefix("system", "hello"), prefix("system", "hello", "answer", "more")
	require.Equal(t, one.hashes, two.hashes[:2], "a conversation's chain begins alike from turn to turn")
	require.NotEqual(t, one.hashes[1], prefix("other", "hello").hashes[1], "a block's hash covers all before it")
	long := bytes.Repeat([]byte("x"), prefixBlock*3+1)
	p := &Prefix{}
	p.Add(long)
	require.Equal(t, 4, p.Len())
	p.Reset()
	require.Zero(t, p.Len())
	p.Add(bytes.Repeat(long, 2*maxBlocks))
	require.Equal(t, maxBlocks, p.Len(), "a huge prompt costs no more")
}

// TestKeyPassesOverWhatAllShare: with one system prompt common to all traffic,
// users are told apart; a document that few share stays together.
func TestKeyPassesOverWhatAllShare(t *testing.T) {
	s := NewPopularity(8)
	for i := range 2000 {
		s.Key(prefix("the same system prompt", string(rune('a'+i%500))), 8, 0)
	}
	_, depth := s.Key(prefix("the same system prompt", "someone"), 8, 0)
	require.Equal(t, 2, depth)
	key1, _ := s.Key(prefix("the same system prompt", "document", "question 1"), 8, 0)
	key2, _ := s.Key(prefix("the same system prompt", "document", "question 2"), 8, 0)
	require.Equal(t, key1, key2)
	_, depth = s.Key(prefix("the same system prompt"), 8, 0)
	require.Equal(t, 1, depth, "a prompt that ends before uses all its blocks")
}

func TestLittleTrafficKeepsAffinity(t *testing.T) {
	s := NewPopularity(2)
	first, _ := s.Key(prefix("hello"), 2, 0)
	parts := []string{"hello"}
	for range fewRequests - 2 {
		parts = append(parts, "and so on")
		key, _ := s.Key(prefix(parts...), 2, 0)
		require.Equal(t, first, key, "the only conversation stays with its cache")
	}
}

func TestPopularityForgets(t *testing.T) {
	s := NewPopularity(2)
	p := prefix("a", "b")
	for range 1000 {
		s.Key(p, 2, 0)
	}
	_, depth := s.Key(p, 2, 0)
	require.Equal(t, 2, depth)
	for minute := range int64(8) {
		s.Key(prefix("x"), 2, (minute+1)*halfLife)
	}
	_, depth = s.Key(p, 2, 9*halfLife)
	require.Equal(t, 1, depth, "what was popular minutes ago does not count")
}

func TestSketchIsSizedByTheRow(t *testing.T) {
	require.True(t, NewPopularity(8).Fits(9))
	require.False(t, NewPopularity(8).Fits(4000))
	require.LessOrEqual(t, len(NewPopularity(1<<30).counts), sketchRows*maxSketchWidth)
}

func BenchmarkKey(b *testing.B) {
	s := NewPopularity(100)
	p := &Prefix{}
	p.Add(bytes.Repeat([]byte("0123456789abcdef"), 2500))
	for range 10_000 {
		s.Key(p, 100, 0)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Key(p, 100, 0)
	}
}
