// Package collect reads the engines that fall to one instance, a data plane or a
// collector, and makes the readings that it reports.
//
// Who reads an engine is agreed without talking: the engine table names the cluster
// or the region's collectors, the snapshot names their instances, and of those the
// two that an engine's name hashes to (rendezvous) read it. So each is read by two,
// never by all, and when one of the two is gone the other still does.
package collect
