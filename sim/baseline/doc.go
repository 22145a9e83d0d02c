// Package baseline has the rules by which other routers pick, to compare with:
// each as published, with its source. Production does not link it.
//
// A rule that decides in each cluster alone keeps a state for each; one that needs an
// engine's load takes what its original would know: its own requests in flight, or
// readings as late as the scenario makes them.
package baseline
