package discover

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
)

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, cancel
}

// A file is followed: what changes, what is wrong with its place, and that it is away.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "engines.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := contextOf(t)
		var now atomic.Pointer[Found]
		var last Found
		f := &file{config.Source{File: path, Region: "eu", Interval: config.Duration(time.Second)}}
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx, func(f Found) { now.Store(&f) }) }()
		next := func() {
			time.Sleep(time.Second) // virtual
			synctest.Wait()
			last = *now.Load()
		}
		synctest.Wait()
		last = *now.Load()
		require.ErrorIs(t, last.Err, os.ErrNotExist)

		write("engines: [{url: 'http://10.0.0.1:8000', drain: true}]")
		next()
		require.Equal(t, []config.Engine{{URL: "http://10.0.0.1:8000", Region: "eu", Drain: true}}, last.Engines)

		write("engines:\n  - {url: 'http://10.0.0.1:8000', dran: true}")
		for range 2 { // it stays wrong
			next()
			require.EqualError(t, last.Err, path+`:2:35: unknown key "dran" in engines[0]: did you mean "drain"?`)
			require.Empty(t, last.Engines)
		}
		write("")
		next()
		require.ErrorContains(t, last.Err, ":1:1: the file is empty")

		write(`{"engines": [{"url": "http://10.0.0.2:8000"}]}`)
		next()
		require.NoError(t, last.Err)
		require.Equal(t, "http://10.0.0.2:8000", last.Engines[0].URL)
		require.NoError(t, os.Remove(path))
		next()
		require.Error(t, last.Err)
		cancel()
		require.NoError(t, <-done)
	})
}

func TestFileTooLong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "engines.yaml")
	require.NoError(t, os.WriteFile(path, make([]byte, maxPage+1), 0o600))
	_, err := readFile(path)
	require.ErrorContains(t, err, "longer than")
}
