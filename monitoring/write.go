package monitoring

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// panelWidth and panelHeight are in Grafana's grid of 24 columns.
const (
	panelWidth  = 6
	panelHeight = 8
)

type object = map[string]any

// WriteGrafana writes a dashboard as Grafana imports it: it asks for the source of data.
func WriteGrafana(w io.Writer, d Dashboard) error {
	source := object{"type": "prometheus", "uid": "${source}"}
	panels := []object{}
	y, id := 0, 0
	next := func() int { id++; return id }
	for _, row := range d.Rows {
		panels = append(panels, object{"id": next(), "type": "row", "title": row.Title, "collapsed": false, "panels": []object{}, "gridPos": object{"x": 0, "y": y, "w": 24, "h": 1}})
		y++
		for i, p := range row.Panels {
			targets := make([]object, len(p.Lines))
			for j, l := range p.Lines {
				targets[j] = object{"refId": string(rune('A' + j)), "datasource": source, "expr": l.Expr, "legendFormat": l.Legend}
			}
			custom := object{"fillOpacity": 10, "showPoints": "never"}
			if p.Stack {
				custom["stacking"] = object{"mode": "normal"}
			}
			panels = append(panels, object{
				"id": next(), "type": "timeseries", "title": p.Title, "datasource": source, "targets": targets,
				"fieldConfig": object{"defaults": object{"unit": p.Unit, "min": 0, "custom": custom}, "overrides": []object{}},
				"options":     object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"}},
				"gridPos":     object{"x": i * panelWidth, "y": y, "w": panelWidth, "h": panelHeight},
			})
		}
		y += panelHeight
	}
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	e.SetEscapeHTML(false)
	return e.Encode(object{
		"uid": d.ID, "title": d.Title, "tags": []string{"wardrop"}, "schemaVersion": 39, "editable": true, "refresh": "10s",
		"time": object{"from": "now-1h", "to": "now"}, "panels": panels,
		"templating": object{"list": []object{{"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}}},
	})
}

// WriteAlerts writes the rules as Prometheus reads them.
func WriteAlerts(w io.Writer) error {
	type rule struct {
		Alert       string            `yaml:"alert"`
		Expr        string            `yaml:"expr"`
		For         string            `yaml:"for"`
		Labels      map[string]string `yaml:"labels"`
		Annotations map[string]string `yaml:"annotations"`
	}
	type group struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	}
	g := group{Name: "wardrop"}
	for _, a := range Alerts() {
		g.Rules = append(g.Rules, rule{
			a.Name, strings.TrimSpace(a.Expr), a.For, map[string]string{"severity": a.Severity},
			map[string]string{"summary": a.Summary, "runbook": a.Runbook},
		})
	}
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	return e.Encode(map[string][]group{"groups": {g}})
}

// WriteRunbook writes what to do about each alert, for people.
func WriteRunbook(w io.Writer) error {
	fmt.Fprint(w, "# Runbook\nWhat the alerts of [monitoring/alerts.yaml](../monitoring/alerts.yaml) mean and what to do. A *page* wants somebody now, a *ticket* in working hours. This page is generated from the alerts.\n")
	for _, a := range Alerts() {
		fmt.Fprintf(w, "\n## %s\n*%s after %s.* %s\n\n%s\n\n```\n%s\n```\n", a.Name, a.Severity, a.For, a.Summary, a.Runbook, strings.TrimSpace(a.Expr))
	}
	return nil
}
