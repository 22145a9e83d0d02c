// Package relay serves a region what the control plane serves: it follows the weight path
// of its upstreams and publishes what comes to its own subscribers, and passes the reports
// that it is sent on to every upstream.
//
// To its clients a relay is a control plane, to the control plane it is a client like any
// other, so relays nest. It makes nothing of its own: epochs, versions and times are those
// of the leader, of which the newest counts whoever brings it, and while all upstreams are
// away it goes on serving the last, which it also keeps on disk.
package relay
