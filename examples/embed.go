// Package examples embeds the configurations that `wardrop up` knows by name.
package examples

import "embed"

// Files holds the example configurations.
//
//go:embed *.yaml
var Files embed.FS
