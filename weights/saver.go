package weights

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"
)

// save writes the snapshot when its content differs from what is on disk, or when that is
// older than it is good for, so that who starts from it knows how old it is. A failure costs
// only the next cold start; it is logged, and the next snapshot is tried again. Those of many
// clusters are written later, so that they do not wait for each other.
func (s *Subscriber) save(c candidate) {
	path, in := s.file(c.Head.Cluster), s.placeOf(c.Head.Cluster)
	published := c.Head.GetPublished().AsTime()
	if path == "" || c.content() == in.saved && published.Sub(in.savedAt) <= c.Head.GetGoodFor().AsDuration() {
		return
	}
	if s.Cluster == "" {
		s.saver.put(path, &c)
	} else if err := store(path, c.Saved); err != nil {
		s.Log.Warn("snapshot not saved", "path", path, "error", err)
		return
	}
	in.saved, in.savedAt = c.content(), published
}

// unsave removes what is saved of a cluster that is no more.
func (s *Subscriber) unsave(cluster string) {
	if path := s.file(cluster); path != "" {
		s.saver.put(path, nil)
	}
}

// saver writes snapshots in its own time, of each cluster the newest.
type saver struct {
	mu      sync.Mutex
	pending map[string]*candidate // by path; nil removes the file
	order   []string
	wake    chan struct{}
}

func (v *saver) put(path string, c *candidate) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.pending[path]; !ok {
		v.order = append(v.order, path)
	}
	if v.pending == nil {
		v.pending = map[string]*candidate{}
	}
	v.pending[path] = c
	select {
	case v.channel() <- struct{}{}:
	default:
	}
}

func (v *saver) channel() chan struct{} {
	if v.wake == nil {
		v.wake = make(chan struct{}, 1)
	}
	return v.wake
}

func (v *saver) next() (path string, c *candidate, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.order) == 0 {
		return "", nil, false
	}
	path, v.order = v.order[0], v.order[1:]
	c = v.pending[path]
	delete(v.pending, path)
	return path, c, true
}

// run writes until ctx is done, and then what is left.
func (v *saver) run(ctx context.Context, log *slog.Logger) {
	v.mu.Lock()
	wake := v.channel()
	v.mu.Unlock()
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-wake:
		}
		for path, c, ok := v.next(); ok; path, c, ok = v.next() {
			if err := write(path, c); err != nil {
				log.Warn("snapshot not saved", "path", path, "error", err)
			}
		}
	}
}

func write(path string, c *candidate) error {
	if c != nil {
		return store(path, c.Saved)
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
