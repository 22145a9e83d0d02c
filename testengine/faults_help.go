package testengine

// Help lists the faults, as /faults takes and gives them.
const Help = `Faults are switched while the engine runs: POST them as JSON to /faults, which replaces those in force; {} ends them all.

  {"hang":true}             a black hole: accepts, never answers, health good, gauges stand still
  {"livelock":true}         requests join the batch and get no token; preemptions grow, tokens do not
  {"dead_streams":2}        every second stream gets its headers and nothing more; 1: every one
  {"state":"loading"}       503 to everything
  {"state":"draining"}      503 to what is new ("fail" gives another status), what is in the engine is finished
  {"state":"asleep"}        what is in the engine ends with "abort", what is new waits
  {"fail":503,"retry_after":3}  answers with an error's status, and with Retry-After
  {"health":503}            of /health; 200 is what a dead engine with "hang" says
  {"health_busy":503}       of /health while a request waits for its first token
  {"slow":4}                steps take four times as long
  {"abort_after":5}         resets connections after five tokens; 0: after the headers
  {"refuse":true}           resets every connection
  {"break":{"how":"error","after":5,"code":503}}  an error in the stream, after five tokens
      "how":"abort"         finish_reason "abort", in streams and whole answers
      "how":"end"           ends with neither finish_reason nor [DONE]; half of a whole answer
  {"shape":["comments","empty","crlf","split","usage"]}  streams that are right but unusual: comment lines, an event
                            without choices, CRLF, events cut in pieces, totals of usage in every event
  {"page":{...}}            of /metrics, any of:
      "show":{"running":0,"waiting":6,"kv_usage":0}  gauges that say so, whatever is true
      "value":"NaN"         in place of the gauges' numbers; "-nan", "+Inf"
      "omit":["vllm:kv_cache"]  no series whose names begin so; "vllm:" is all
      "old_names":true      vLLM's before 0.12
      "reset":true          counters begin anew, once
      "ranks":4, "processes":8  label sets by rank; gauges by pid
      "duplicate_types":true  every TYPE line twice
      "truncate":1000       ends after so many bytes
      "bytes":100000000     at least so many, comments first
      "body":"html"         in place of the page; "json", "empty"
      "status":500          of the page
      "wait":3              seconds until it comes
  {"for":10}                ends all of these after ten seconds
`
