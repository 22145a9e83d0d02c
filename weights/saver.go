package weights

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"

	"github.com/wardrop-lb/wardrop/api"
	"github.com/wardrop-lb/wardrop/fleet"
)

// save writes the snapshot when its content differs from what is on disk, or when that is
// older than it is good for, so that who starts from it knows how old it is. A failure costs
// only the next cold start; it is logged, and the next snapshot is tried again. Those of many
// clusters are written later, so that they do not wait for each other.
func (s *Subscriber) save(c *candidate) {
	path, in := s.file(c.cluster), s.placeOf(c.cluster)
	published := in.snapshot.Time
	if path == "" || c.content() == in.saved && published.Sub(in.savedAt) <= in.snapshot.GoodFor {
		return
	}
	if s.Cluster == "" {
		s.saver.put(path, in.snapshot)
	} else if err := write(path, in.snapshot); err != nil {
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
	pending map[string]*fleet.Snapshot // by path; nil removes the file
	order   []string
	wake    chan struct{}
}

func (v *saver) put(path string, s *fleet.Snapshot) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.pending[path]; !ok {
		v.order = append(v.order, path)
	}
	if v.pending == nil {
		v.pending = map[string]*fleet.Snapshot{}
	}
	v.pending[path] = s
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

func (v *saver) next() (path string, s *fleet.Snapshot, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.order) == 0 {
		return "", nil, false
	}
	path, v.order = v.order[0], v.order[1:]
	s = v.pending[path]
	delete(v.pending, path)
	return path, s, true
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
		for path, s, ok := v.next(); ok; path, s, ok = v.next() {
			if err := write(path, s); err != nil {
				log.Warn("snapshot not saved", "path", path, "error", err)
			}
		}
	}
}

// write saves a snapshot, as wire 1 has it, so that a data plane can go back to the version
// before; nil removes what is saved.
func write(path string, s *fleet.Snapshot) error {
	if s != nil {
		p, err := api.EncodeSnapshot(s)
		if err != nil {
			return err
		}
		return store(path, p)
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
