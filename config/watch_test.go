package config

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWatch: a valid change is applied, an invalid one is logged with its line
// and changes nothing, a file that is away for a moment is no change.
func TestWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.yaml")
	require.NoError(t, os.WriteFile(path, []byte(good), 0o600))
	loaded, err := Load(path)
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var applied []*Config
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- Watch(loaded, func(c *Config) { applied = append(applied, c) }, slog.New(slog.NewTextHandler(&log, nil)))(ctx)
		}()
		next := func() {
			time.Sleep(watchInterval) // virtual time
			synctest.Wait()
		}
		synctest.Wait()
		next()
		require.Empty(t, applied, "nothing changed")

		require.NoError(t, os.WriteFile(path, []byte(good+"policy: {tick: 5s}\n"), 0o600))
		next()
		require.Len(t, applied, 1)
		require.Equal(t, Duration(5*time.Second), applied[0].Policy.Tick)

		require.NoError(t, os.WriteFile(path, []byte(good+"policy: {tok: 5s}\n"), 0o600))
		next()
		require.Len(t, applied, 1)
		require.Contains(t, log.String(), "w.yaml:11:10: unknown key")

		require.NoError(t, os.Remove(path))
		next()
		require.NoError(t, os.WriteFile(path, []byte(good), 0o600))
		next()
		require.Len(t, applied, 2)
		cancel()
		require.NoError(t, <-done)
	})
}

// TestWatchMissesNoChangeBeforeItBegins: opening the store takes a while after the
// file was read.
func TestWatchMissesNoChangeBeforeItBegins(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.yaml")
	require.NoError(t, os.WriteFile(path, []byte(good), 0o600))
	loaded, err := Load(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(good+"policy: {tick: 5s}\n"), 0o600))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		applied := make(chan *Config, 1)
		go func() {
			_ = Watch(loaded, func(c *Config) { applied <- c }, slog.New(slog.DiscardHandler))(ctx)
		}()
		require.Equal(t, Duration(5*time.Second), (<-applied).Policy.Tick)
	})
}
