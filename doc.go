// Package wardrop holds no code: its tests keep the house in order. See
// docs/architecture.md for the rooms and floors, and cmd/wardrop for the binary.
package wardrop
