// Package integration holds the tests that run the wardrop binary: whole fleets as processes,
// with load, while members of the control plane, disks, links and engines fail; and in front of
// real engines and a real Envoy, asked by the official OpenAI clients.
//
// scripts/real-engines.sh and scripts/real-envoy.sh install those and print the environment that
// the tests look for; without it they are skipped, as are tests that cut links where the machine
// lets nobody make namespaces.
package integration
