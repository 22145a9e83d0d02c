// Package proxy is the request path: an OpenAI-compatible reverse proxy, one or
// more per cluster, that picks an engine for each request from its snapshot.
//
// The body is read whole first, bounded, and sniffed without being decoded; it
// is also what a retry sends. Bytes pass through unmodified in both directions.
// Until a response promises the client something a failure may be retried on the next
// engine of the pick; after it, a failure ends the client's stream visibly.
//
// A DataPlane also carries its ends of the other two paths: it subscribes to
// snapshots, reads the engines that it is told to, measures demand and distances
// and reports them. None of these is needed to serve: with the control plane
// gone it goes on by the last snapshot.
package proxy
