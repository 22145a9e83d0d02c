package config

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"time"
)

const watchInterval = time.Second

// Watch gives a function that looks at the file of a configuration every second
// until its context ends and calls apply with every new valid content, also one
// that came after from was loaded and before the watch began. An invalid one is
// logged and changes nothing. The content is compared, not the time: it works
// where files are links that are swapped, as in a mounted ConfigMap.
func Watch(from *Config, apply func(*Config), log *slog.Logger) func(context.Context) error {
	return func(ctx context.Context) error {
		path, last := from.file, from.data
		tick := time.NewTicker(watchInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			data, err := os.ReadFile(path)
			if err != nil || bytes.Equal(data, last) {
				continue // a file that is away for a moment changes nothing
			}
			last = data
			c, err := Parse(path, data)
			if err != nil {
				log.Error("the new configuration is not valid; the one in force stays", "error", err)
				continue
			}
			log.Info("configuration reloaded", "file", path)
			apply(c)
		}
	}
}
