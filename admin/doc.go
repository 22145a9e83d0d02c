// Package admin is the admin API of every role, HTTP and JSON, and the client
// that the commands use.
//
// Each role serves /metrics (Prometheus), /healthz (the process lives) and
// /readyz (it can do its job). The control plane adds the plan in force and its
// explanations, what it knows of engines, demand and distances, and the dashboard; a data
// plane its snapshot and what it saw of the engines. All of it is read-only but overrides
// and the taking in of members: these want a token where the configuration has one, and
// where it has none the address must be reached by operators alone.
package admin
