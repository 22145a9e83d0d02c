// Package config reads the one YAML file that every role shares.
//
// Decoding is strict and complete: all mistakes of a file are reported at once,
// each with file, line, column, what is wrong and what would be right. An
// unknown key names the nearest known one. The structs are the documentation:
// their comments say what each key means, its unit and its default, and
// docs/configuration.md is held against them by a test.
//
// Parse is pure; Load reads a file; Watch reloads it when it changes. A file
// that does not validate never replaces a configuration in force.
package config
