// Package kube finds engines in Kubernetes, by watching EndpointSlices. It is the
// only package that links Kubernetes' client, and it links no more of it than that
// takes.
package kube
