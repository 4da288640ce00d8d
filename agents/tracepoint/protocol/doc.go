// Package protocol holds what agents and Sibyl say to each other: the tracepoint protocol, version 1. It needs nothing but the
// standard library, and does no I/O.
//
// Over HTTP everything is JSON, requests gzipped if the agent likes. An agent chooses an id for itself, as long as it lives:
//
//	PUT  /agent/v1/agents/{id}                        Registration → Registered; 409: the id is another agent's, take a new one
//	GET  /agent/v1/agents/{id}/plan?wait=30s&session= Plan; If-None-Match: "hash" → 304 once wait is over and nothing changed
//	POST /agent/v1/agents/{id}/status                 Status → 204
//
// 404 to the latter two says that the agent is not known (any more) and shall register. 409 as above. 401: the token is wrong.
// 404, 429 and 503 may say Retry-After. Every body of an error is a [Problem].
//
// What holds:
//   - Everything is idempotent: a message that arrives twice changes nothing.
//   - A plan replaces the one before as a whole. An agent keeps the one before, for requests that began under it.
//   - An answer to GET plan, 304 too, renews the lease. When it ends the agent goes back to its baseline.
//   - An id that an agent does not know is told in its Status, and the rest of the plan applies.
//   - Fields that a receiver does not know are ignored, unless Protocol is another version.
//
// Which of a plan's tracepoints are on is decided once per request, by the first agent that it gets to, and carried along in
// the tracestate: see [Mark].
package protocol
