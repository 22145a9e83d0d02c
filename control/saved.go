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

// saved is what the next leader goes on from: the plan in force and the profiles that were
// learned.
type saved struct {
	*fleet.Plan
	Learned map[string]fleet.Profile `json:",omitempty"`
}

// save keeps what the next leader needs: of the plan the weights in use.
func save(path string, s saved) error {
	if path == "" {
		return nil
	}
	slim := *s.Plan
	slim.Rows = make([]fleet.Row, len(s.Rows))
	for i, r := range s.Rows {
		arcs := make([]fleet.Arc, 0, 8)
		for _, a := range r.Arcs {
			if a.Weight > 0 {
				arcs = append(arcs, a)
			}
		}
		r.Arcs = arcs
		slim.Rows[i] = r
	}
	data, err := json.Marshal(saved{&slim, s.Learned})
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
