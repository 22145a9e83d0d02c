// Package wardropv1 is the generated wire of version 1; see wardrop.proto.
package wardropv1
