// Package latency says how long an engine takes at a load, and what one more
// request there costs everybody.
//
// The model is "processor sharing and knee": continuous batching makes an
// engine share its compute among the requests in it, so latency grows as
// T0/(1-u/u_max), and the limit on requests held at once (slots or KV cache)
// adds a knee near saturation, shaped like the waiting time of a queue with
// many servers. Three numbers of a fleet.Profile fix it, a fourth scales the knee,
// a fifth parts the time until the first token from the rest.
//
// Everything is a pure function of a small value: loads in requests per second,
// times in seconds.
package latency
