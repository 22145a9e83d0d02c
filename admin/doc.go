// Package admin is the admin API of every role, HTTP and JSON, and the client
// that the commands use.
//
// Each role serves /metrics (Prometheus), /healthz (the process lives) and
// /readyz (it can do its job). The control plane adds the plan in force and its
// explanations, and what it knows of engines, demand and distances; a data plane its
// snapshot and what it saw of the engines. All of it is
// read-only but overrides and the taking in of members, for which the address must be
// reached by operators alone.
package admin
