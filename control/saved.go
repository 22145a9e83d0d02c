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

// savePlan keeps what the next leader needs of a plan: the weights in use.
func savePlan(path string, p *fleet.Plan) error {
	if path == "" {
		return nil
	}
	slim := *p
	slim.Rows = make([]fleet.Row, len(p.Rows))
	for i, r := range p.Rows {
		arcs := make([]fleet.Arc, 0, 8)
		for _, a := range r.Arcs {
			if a.Weight > 0 {
				arcs = append(arcs, a)
			}
		}
		r.Arcs = arcs
		slim.Rows[i] = r
	}
	data, err := json.Marshal(&slim)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return renameio.WriteFile(path, data, 0o644)
}

// loadPlan reads the last leader's plan; nil without an error when there is none.
func loadPlan(path string) (*fleet.Plan, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var p fleet.Plan
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, err
	}
	for _, r := range p.Rows {
		for _, a := range r.Arcs {
			if a.Engine < 0 || int(a.Engine) >= len(p.Engines) {
				return nil, errors.New("it names an engine that it does not describe")
			}
		}
	}
	return &p, nil
}
