package discover

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/wardrop-lb/wardrop/config"
)

// saved is what a new control plane begins with, so that a source or an engine that
// does not answer just then does not empty the fleet.
type saved struct {
	Sources map[string][]config.Engine `json:"sources"`
	Models  map[string][]string        `json:"models"` // by URL
}

// load reads what was saved; nothing, and no error, when there is no file.
func load(path string) (saved, error) {
	var s saved
	if path == "" {
		return s, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		return saved{}, fmt.Errorf("%s: %w", path, err)
	}
	for url, names := range s.Models {
		for _, name := range names {
			if err := config.CheckModel(name); err != nil {
				return saved{}, fmt.Errorf("%s: models of %s: %w", path, url, err)
			}
		}
	}
	return s, nil
}

func (s saved) save(path string) error {
	if path == "" {
		return nil
	}
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return renameio.WriteFile(path, data, 0o600)
}
