// Package store keeps what must be consistent in the control plane and nothing
// else: who leads, and the epoch that fences every plan.
//
// Signals and weights never pass through it: they are soft state that the next
// tick replaces. Embedded runs etcd in this process and survives restarts;
// Memory forgets and is meant for trials and tests.
package store
