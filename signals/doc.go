// Package signals is the signal path: it reads engines near where they run and
// brings what they say to the control plane.
//
// A Scraper polls engines, each at its own pace, through an Adapter per engine
// kind that turns the kind's metrics into one vocabulary; an engine whose kind is
// not told is asked what it is. A Signal is one reading: absolute values with an
// incarnation and a sequence, so that a lost one costs nothing and several
// readers never count double. What an engine does not say is absent, which is not
// zero; an engine that cannot be read is a State with an error, never a Signal of
// zeros. What engines say of themselves in their answers, ParseORCA and
// State.InBand take in between readings.
//
// Engines' pages are other people's: parsing is tolerant of whatever comes,
// gives what can be trusted and bounds what it takes.
package signals
