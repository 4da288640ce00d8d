// Package group puts observations into groups, which are expected to perform alike, and keeps their statistics: exact sums per edge, a
// sketch of the durations, uniform samples, and coarser statistics of the past. It learns request types and applies rules. What is a
// problem, it does not decide: see package detect.
package group
