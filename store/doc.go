// Package store keeps what must be consistent in the control plane and nothing
// else: who leads, the epoch that fences every plan, and what operators override.
//
// Signals and weights never pass through it: they are soft state that the next
// tick replaces. Embedded runs a member of etcd in this process; its member leads
// that leads the others. Etcd uses one that runs elsewhere, by a lease. Memory forgets
// and is meant for trials and tests.
package store
