// Package protocol defines version 1 of the tracepoint protocol: the messages that agents and Sibyl exchange, their
// limits and their hashes. It performs no I/O and only depends on the standard library.
//
// All bodies over HTTP are JSON. An agent may gzip its requests. An agent chooses an ID and keeps it until it exits:
//
//	PUT  /agent/v1/agents/{id}                        Registration → Registered; 409: another agent has this ID
//	GET  /agent/v1/agents/{id}/plan?wait=30s&session= Plan; If-None-Match: "hash" → 304 if unchanged after wait
//	POST /agent/v1/agents/{id}/status                 Status → 204, or StatusAnswer for agents that sample stacks
//
// GET and POST return 404 if the agent is not, or no longer, registered. It must then register again. 409 means that
// the agent must choose another ID. 401 means that the token is wrong. 404, 429 and 503 may carry Retry-After. The body
// of every error response is a [Problem].
//
// Rules:
//   - Messages are idempotent: a message that arrives again changes nothing.
//   - A plan replaces the previous plan as a whole. An agent keeps the previous plan for requests that started under
//     it.
//   - Every response to GET plan, including 304, renews the lease. When the lease expires, the agent falls back to its
//     baseline.
//   - An agent reports IDs that it does not know in its Status, and applies the rest of the plan.
//   - Receivers ignore unknown fields, unless Protocol is a different version.
//
// The first agent that a request reaches decides which of a plan's tracepoints are enabled for it. The tracestate
// carries this decision to the other agents: see [Decision].
package protocol
