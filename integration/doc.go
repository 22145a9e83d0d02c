// Package integration holds the tests that run the wardrop binary in front of
// real engines, asked by the official OpenAI clients.
//
// scripts/real-engines.sh installs the engines and the client for Python and
// prints the environment that the tests look for; without it they are skipped.
package integration
