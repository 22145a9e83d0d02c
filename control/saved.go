package control

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/wardrop-lb/wardrop/fleet"
)

// saved is what the next leader goes on from: the plan in force, the profiles that were
// learned and the clusters that have reported.
type saved struct {
	*fleet.Plan
	Learned map[string]fleet.Profile `json:",omitempty"`
	Heard   []string                 `json:",omitempty"`
}

// save keeps what the next leader needs: of the plan the weights in use.
func save(path string, s saved) error {
	if path == "" {
		return nil
	}
	s.Plan = s.Used()
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return renameio.WriteFile(path, data, 0o644)
}

// load reads what the last leader saved; nothing without an error when there is none.
func load(path string) (saved, error) {
	if path == "" {
		return saved{}, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return saved{}, nil
	}
	if err != nil {
		return saved{}, err
	}
	s := saved{Plan: &fleet.Plan{}}
	if err := json.Unmarshal(data, &s); err != nil {
		return saved{}, err
	}
	for _, r := range s.Rows {
		for _, a := range r.Arcs {
			if a.Engine < 0 || int(a.Engine) >= len(s.Engines) {
				return saved{}, errors.New("it names an engine that it does not describe")
			}
		}
	}
	return s, nil
}
