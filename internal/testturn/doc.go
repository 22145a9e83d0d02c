// Package testturn has tests take turns that run in different processes: those that measure the
// machine, and those that fill it.
package testturn
