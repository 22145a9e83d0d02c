// Package dashboard is the page at the admin address of a control plane, and what it asks for.
//
// The page is plain HTML, CSS and ECMAScript modules, embedded and served as they stand: nothing
// is built, installed or fetched from elsewhere. What it shows is summed up here, for a
// page cannot take in ten thousand engines: flows by cluster and region, weights over time by
// region and by the heaviest engines, engines a page at a time. One event a tick keeps it live.
//
// Everything here reads. What changes something is the admin API's business.
package dashboard
