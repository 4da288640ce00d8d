// Package week judges the incidents of sibyl serve in simulated weeks, in compressed time and with default settings: an
// application that changes as production does → traces → [backtest.Player] → [Report].
//
// Its parameters describe operations, not detectors. We chose no parameter by its effect on a result.
//
// # The application
//
// Forty services form three tiers: 4 gateways, 16 services behind them, and 20 at the bottom, each with a database that
// emits no spans. Spans have the default names of OpenTelemetry: SERVER spans are named after their route, calls GET
// and statements SELECT. Every request type is a route of a gateway. It calls one to three operations of the middle
// tier, the last of them in 70 % of the requests. Each of these calls up to two operations of the bottom tier.
//
// Own times are log-normal. Their means are log-uniform between 0.5 and 8 ms and their coefficients of variation
// uniform between 0.3 and 0.8; one own time in 200 is ten times as long. The shares of the request types are
// proportional to 1/rank^0.7, so the rarest of 1 000 occurs about once in five minutes.
//
// # The weeks
//
// Traffic follows the hour: 30 % of its peak at night, a rise from seven to half past nine, a dip at noon, a decline in
// the evening, and half of it at weekends. Own times grow with the square of the traffic, by 10 to 40 % at its peak
// depending on the service. Each service also drifts by some 3 % within hours. Every night at two, a batch runs for
// forty minutes, and makes the database that it reads 30 % slower.
//
// Services have 3 to 6 instances, more with more traffic. The first minutes of an instance are slow: 60 % more at
// first, decaying with a time constant of one minute.
//
// The first week has neither deploys nor faults. Each later week has these events:
//
//   - 20 harmless deploys in working hours. Half of them change the structure: every request to an operation has one
//     more span or statement. Instances are replaced one after the other, 45 s apart.
//   - 20 steps of 20 minutes: the own time of an operation grows so that the mean duration of requests through it grows
//     by 30 %. Ten start at random hours, five a few minutes after a deploy of the same service has ended, and five
//     while another service is slow. Operations with at least one call in six seconds at that time are eligible.
//   - two steps of three times that size that affect one instance only
//   - three operations that fail in 15 % of their calls for 20 minutes, without a change of latency
//   - a request type, one of the five most frequent ones, without requests for half an hour
//   - a leak: own times of a service grow by 5 % an hour for 24 hours
//   - an intermittent fault: three times the own time for two minutes of every seven, for an hour
//
// # Chronic problems
//
// Another installation has 5 200 equally frequent request types, all of them problems, and 320 requests a second for 18
// minutes. Then its most frequent operation becomes slow. The run counts the epochs from the opening of the incident to
// its notification.
package week
