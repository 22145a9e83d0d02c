// Package monitoring holds what there is to look at and to be woken by: panels for Grafana,
// alerts for Prometheus, a line for each of these in the runbook. The files are made of one
// list here; a test holds the list against the metrics that there are.
package monitoring
